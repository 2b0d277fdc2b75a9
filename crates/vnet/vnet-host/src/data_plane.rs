//! The engine of one network, on threads in the namespace of the network's ports.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

use carina_frame::PoolConfig;
use carina_frame_engine::{Graph, LinkCounts, LinkName};
use carina_graph::runner::GraphRunner;
use carina_namespaces::NamespaceAccess;
use carina_sys::EventFd;
use carina_time::Duration;
use rustix::process::Pid;

use crate::error::{Attempt, Error, Result};
use crate::namespace;

/// The engine of one network. Dropping it ends the engine.
#[derive(Debug)]
pub(crate) struct DataPlane {
    commands: Option<Sender<Command>>,
    /// Rung when a command is waiting, or when no further ones will come.
    wakeup: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    /// The namespace of the engine, and the thread ID of its first thread.
    inside: (String, Pid),
}

enum Command {
    Become(Box<Graph>, SyncSender<Result<()>>),
    Count(SyncSender<Result<Vec<(LinkName, LinkCounts)>>>),
}

impl DataPlane {
    /// Starts an engine without apps in a namespace, and disables forwarding by the kernel there.
    /// The engine writes its counters to a file.
    pub(crate) fn start(namespace: &str, counters: &Path) -> Result<DataPlane> {
        let (commands, received) = channel();
        let (started, is_started) = sync_channel(1);
        let (inside, counters) = (namespace.to_owned(), counters.to_owned());
        let wakeup = Arc::new(EventFd::new().attempt("making a bell for the engine")?);
        let rung = Arc::clone(&wakeup);
        let run = move || match begin(&inside, &counters) {
            Ok(runner) => {
                // The other end waits for this.
                let _ = started.send(Ok(rustix::thread::gettid()));
                serve(runner, &received, &rung);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name("vnet-links".into())
            .spawn(run)
            .attempt("starting the engine's thread")?;
        match is_started.recv().unwrap_or(Err(Error::Ended(ENGINE))) {
            Ok(number) => Ok(DataPlane {
                commands: Some(commands),
                wakeup,
                thread: Some(thread),
                inside: (namespace.to_owned(), number),
            }),
            Err(error) => {
                // The thread has sent the error as its last action, or it has panicked.
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Restores the name of the namespace if another process has removed it; the engine and the
    /// ports are still in the namespace. Returns whether the name was restored.
    ///
    /// # Errors
    /// The engine has ended, or the name is in use.
    pub(crate) fn name_namespace(&self) -> Result<bool> {
        let (namespace, thread) = &self.inside;
        if carina_namespaces::is_namespace(namespace) {
            return Ok(false);
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(Error::Ended(ENGINE));
        }
        let path = carina_namespaces::namespace_file(namespace);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.attempt(format!("removing {}", path.display()))?,
        }
        let thread = thread.as_raw_nonzero().to_string();
        NamespaceAccess::of_root().ip(&["netns", "attach", namespace, &thread])?;
        Ok(true)
    }

    /// Changes the running graph to `graph`; apps that stay the same keep running.
    pub(crate) fn become_graph(&self, graph: Graph) -> Result<()> {
        self.ask(|reply| Command::Become(Box::new(graph), reply))
    }

    /// The counters of each link of the graph.
    pub(crate) fn counts(&self) -> Result<Vec<(LinkName, LinkCounts)>> {
        self.ask(Command::Count)
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let sent = self.commands.as_ref().map(|to| to.send(command(reply)));
        self.wakeup.signal();
        match sent {
            Some(Ok(())) => answer.recv().unwrap_or(Err(Error::Ended(ENGINE))),
            _ => Err(Error::Ended(ENGINE)),
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.commands = None;
        self.wakeup.signal();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Enters the namespace. To be called before any thread of the engine starts.
fn begin(namespace: &str, counters: &Path) -> Result<GraphRunner> {
    namespace::enter(namespace)?;
    // The kernel must not take part in the links: it sends nothing of its own to a port.
    namespace::set("ipv4/ip_forward", "0")?;
    namespace::set("ipv6/conf/all/disable_ipv6", "1")?;
    namespace::set("ipv6/conf/default/disable_ipv6", "1")?;
    Ok(GraphRunner::new(PoolConfig::default(), Some(counters))?)
}

fn serve(mut runner: GraphRunner, commands: &Receiver<Command>, wakeup: &EventFd) {
    loop {
        wakeup.drain();
        loop {
            match commands.try_recv() {
                Ok(command) => obey(&mut runner, command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        if runner.run_until(wakeup, LOOK).is_err() {
            // A worker has ended, and its links with it; probes and counters show that.
            return;
        }
    }
}

/// Executes a command. The caller may have stopped waiting for the reply.
fn obey(runner: &mut GraphRunner, command: Command) {
    match command {
        Command::Become(graph, reply) => {
            let done = runner.configure(&graph);
            let _ = reply.send(done.map(drop).map_err(Error::from));
        }
        Command::Count(reply) => {
            let _ = reply.send(runner.link_counts().map_err(Error::from));
        }
    }
}

const ENGINE: &str = "the engine of the links";
/// Time between two checks whether a worker has ended.
const LOOK: Duration = Duration::from_secs(1);
