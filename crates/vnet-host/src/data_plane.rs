//! The engine of one network, on threads in the namespace of its ports.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use carina_apps::runner::GraphRunner;
use carina_engine::frames::{Graph, LinkCounts, LinkName};
use carina_frame::PoolConfig;

use crate::error::{Attempt, Error, Result};
use crate::namespace;

/// The engine of one network. It ends with this value.
#[derive(Debug)]
pub struct DataPlane {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

enum Command {
    Become(Box<Graph>, SyncSender<Result<()>>),
    Count(SyncSender<Result<Vec<(LinkName, LinkCounts)>>>),
}

impl DataPlane {
    /// Starts an engine without apps in a namespace, where the kernel forwards nothing from then
    /// on. Its counters go to a file.
    pub fn start(namespace: &str, counters: &Path) -> Result<DataPlane> {
        let (commands, received) = channel();
        let (started, is_started) = sync_channel(1);
        let (namespace, counters) = (namespace.to_owned(), counters.to_owned());
        let run = move || match begin(&namespace, &counters) {
            Ok(runner) => {
                // The other end waits.
                let _ = started.send(Ok(()));
                serve(runner, &received);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name("vnet-links".into())
            .spawn(run)
            .attempt("starting the engine's thread")?;
        let plane = DataPlane {
            commands: Some(commands),
            thread: Some(thread),
        };
        is_started.recv().unwrap_or(Err(Error::Ended(ENGINE)))?;
        Ok(plane)
    }

    /// Becomes a graph, by difference.
    pub fn become_graph(&self, graph: Graph) -> Result<()> {
        self.ask(|reply| Command::Become(Box::new(graph), reply))
    }

    /// What went over each link of the graph.
    pub fn counts(&self) -> Result<Vec<(LinkName, LinkCounts)>> {
        self.ask(Command::Count)
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let sent = self.commands.as_ref().map(|to| to.send(command(reply)));
        match sent {
            Some(Ok(())) => answer.recv().unwrap_or(Err(Error::Ended(ENGINE))),
            _ => Err(Error::Ended(ENGINE)),
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Enters the namespace, before any thread of the engine is started.
fn begin(namespace: &str, counters: &Path) -> Result<GraphRunner> {
    namespace::enter(namespace)?;
    // The kernel has no part in the links: it sends nothing of its own to a port.
    namespace::set("ipv4/ip_forward", "0")?;
    namespace::set("ipv6/conf/all/disable_ipv6", "1")?;
    namespace::set("ipv6/conf/default/disable_ipv6", "1")?;
    Ok(GraphRunner::new(PoolConfig::default(), Some(counters))?)
}

fn serve(mut runner: GraphRunner, commands: &Receiver<Command>) {
    loop {
        match commands.recv_timeout(LOOK) {
            Ok(Command::Become(graph, reply)) => {
                let done = runner.configure(&graph);
                // Who asked may have gone.
                let _ = reply.send(done.map(drop).map_err(Error::from));
            }
            Ok(Command::Count(reply)) => {
                let _ = reply.send(runner.link_counts().map_err(Error::from));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if runner
            .run_for(carina_time::Duration::from_millis(1))
            .is_err()
        {
            // A worker has ended, and its links with it: probes and counters tell.
            return;
        }
    }
}

const ENGINE: &str = "the engine of the links";
/// How long who wants to trace a link waits at most.
const LOOK: Duration = Duration::from_millis(20);
