//! The engine of one network, on threads in the namespace of the network's ports.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use carina_frame::PoolConfig;
use carina_frame_engine::{Graph, LinkCounts, LinkName};
use carina_graph::runner::GraphRunner;
use carina_namespaces::NamespaceAccess;
use carina_sys::EventFd;
use carina_time::Duration;
use rustix::process::Pid;

use crate::error::{Attempt, Error, Result};
use crate::interface_counts::{InterfaceCounts, interface_counts};
use crate::namespace;

/// The engine of one network. Dropping it ends the engine.
#[derive(Debug)]
pub(crate) struct DataPlane {
    commands: Option<Sender<Command>>,
    /// Rung when a command is waiting, or when no further ones will come.
    wakeup: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    /// Bytes that the frames of the engine must have at least.
    frame_bytes: AtomicUsize,
    /// The namespace of the engine, and the thread ID of its first thread.
    inside: (String, Pid),
    /// The counters that the engine reported last.
    known: Mutex<Counts>,
}

/// The counters of each link of a graph.
type Counts = Vec<(LinkName, LinkCounts)>;

enum Command {
    /// Run this graph, with frames of at least this many bytes.
    Become(Box<Graph>, usize, SyncSender<Result<()>>),
    Count(SyncSender<Result<Counts>>),
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
                let engine = Engine {
                    runner,
                    pool: PoolConfig::default(),
                    counters,
                };
                engine.serve(&received, &rung);
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
                frame_bytes: AtomicUsize::new(0),
                inside: (namespace.to_owned(), number),
                known: Mutex::default(),
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

    /// Lets packets of `mtu` bytes pass the graphs from now on. If they do not fit into the frames
    /// of the engine, it starts again with longer ones at the next change of the graph, and loses
    /// the frames that are on their way then.
    pub(crate) fn make_room(&self, mtu: u16) {
        let frame_bytes = usize::from(mtu) + HEADER_BYTES;
        self.frame_bytes.fetch_max(frame_bytes, Ordering::Relaxed);
    }

    /// Changes the running graph to `graph`; apps that stay the same keep running.
    pub(crate) fn become_graph(&self, graph: Graph) -> Result<()> {
        let frame_bytes = self.frame_bytes.load(Ordering::Relaxed);
        let answer = self.ask(|reply| Command::Become(Box::new(graph), frame_bytes, reply))?;
        answer.recv().unwrap_or(Err(Error::Ended(ENGINE)))
    }

    /// The counters of each link of the graph. While the engine is being changed, which may take
    /// seconds, these are the counters that it reported last.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let answer = self.ask(Command::Count)?;
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match answer.recv_timeout(COUNT) {
            Ok(counts) => {
                let counts = counts?;
                known().clone_from(&counts);
                Ok(counts)
            }
            Err(RecvTimeoutError::Timeout) => Ok(known().clone()),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Ended(ENGINE)),
        }
    }

    /// The kernel's counters of the interfaces in the engine's namespace, by name.
    pub(crate) fn interface_counts(&self) -> BTreeMap<String, InterfaceCounts> {
        interface_counts(self.inside.1)
    }

    /// Sends a command to the engine, and returns the end at which its answer will arrive.
    fn ask<T>(
        &self,
        command: impl FnOnce(SyncSender<Result<T>>) -> Command,
    ) -> Result<Receiver<Result<T>>> {
        let (reply, answer) = sync_channel(1);
        let sent = self.commands.as_ref().map(|to| to.send(command(reply)));
        self.wakeup.signal();
        match sent {
            Some(Ok(())) => Ok(answer),
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

/// The engine, as its thread has it.
struct Engine {
    runner: GraphRunner,
    pool: PoolConfig,
    counters: PathBuf,
}

impl Engine {
    fn serve(mut self, commands: &Receiver<Command>, wakeup: &EventFd) {
        loop {
            wakeup.drain();
            loop {
                match commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if self.runner.run_until(wakeup, LOOK).is_err() {
                // A worker has ended, and its links with it; probes and counters show that.
                return;
            }
        }
    }

    /// Executes a command. The caller may have stopped waiting for the reply.
    fn obey(&mut self, command: Command) {
        match command {
            Command::Become(graph, frame_bytes, reply) => {
                let done = self.become_graph(&graph, frame_bytes);
                let _ = reply.send(done);
            }
            Command::Count(reply) => {
                let _ = reply.send(self.runner.link_counts().map_err(Error::from));
            }
        }
    }

    fn become_graph(&mut self, graph: &Graph, frame_bytes: usize) -> Result<()> {
        if frame_bytes > self.pool.frame_bytes {
            let longer = PoolConfig {
                frames: LONG_FRAMES,
                frame_bytes: LONG_FRAME_BYTES.max(frame_bytes),
            };
            // Ports and the file of the counters can be open once. Without apps, the engine has
            // closed its ports.
            self.runner.configure(&Graph::default())?;
            self.runner = GraphRunner::new(longer, Some(&self.counters))?;
            self.pool = longer;
        }
        self.runner.configure(graph).map(drop).map_err(Error::from)
    }
}

/// Bytes of a frame besides its packet: an Ethernet header and a VLAN tag.
const HEADER_BYTES: usize = 14 + 4;
/// Frames of the engine of a network with long packets.
const LONG_FRAMES: usize = 8192;
/// Length of these frames, for packets of the largest MTU.
const LONG_FRAME_BYTES: usize = 9000 + HEADER_BYTES;
const ENGINE: &str = "the engine of the links";
/// How long a report waits for the counters of an engine that is being changed.
const COUNT: std::time::Duration = std::time::Duration::from_millis(100);
/// Time between two checks whether a worker has ended.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use carina_frame_engine::{
        AppConfig, AppContext, AppError, FrameApp, Outside, PortList, Ports,
    };
    use carina_namespaces::Namespace;

    use super::*;

    /// An app that is built when the test allows it.
    #[derive(Clone, Debug)]
    struct Awaiting(Arc<(SyncSender<()>, Mutex<Receiver<()>>)>);

    struct AwaitingApp;

    impl PartialEq for Awaiting {
        fn eq(&self, other: &Awaiting) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    impl AppConfig for Awaiting {
        const KIND: &'static str = "awaiting";
        const INPUTS: PortList = PortList::NO_PORT;
        const OUTPUTS: PortList = PortList::NO_PORT;
        type App = AwaitingApp;

        fn outside(&self) -> Outside {
            Outside::Something
        }

        fn build(&self, _: &mut AppContext<'_>) -> std::result::Result<AwaitingApp, AppError> {
            let (begun, allowed) = &*self.0;
            let limit = std::time::Duration::from_secs(20);
            begun.send(())?;
            allowed.lock().unwrap().recv_timeout(limit)?;
            Ok(AwaitingApp)
        }
    }

    impl FrameApp for AwaitingApp {
        fn push(&mut self, _: &mut Ports<'_>) {}
    }

    #[test]
    fn counters_are_reported_while_the_engine_changes() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let namespace = format!("cv-changing-{}", std::process::id());
        let _namespace = Namespace::new(&namespace).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let plane = DataPlane::start(&namespace, &directory.path().join("counters")).unwrap();
        let ((begun, begins), (allow, allowed)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let mut graph = Graph::new();
        graph.app("a", Awaiting(Arc::new((begun, Mutex::new(allowed)))));
        std::thread::scope(|scope| {
            let change = scope.spawn(|| plane.become_graph(graph));
            begins.recv().unwrap();
            assert!(plane.counts().unwrap().is_empty());
            // The change waits for this test; the report did not wait for the change.
            assert!(!change.is_finished());
            allow.send(()).unwrap();
            change.join().unwrap().unwrap();
        });
    }
}
