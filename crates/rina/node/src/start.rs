//! Start and stop of a node.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use carina_api::paths::RunDir;
use carina_api::{DifName, ErrorBody, LocalName};
use carina_dataplane::DataPlane;
use carina_engine::counters::Table;
use carina_ip::Members;
use carina_sys::{
    Epoll, EventFd, SocketWatch, cpus_possible, listen_seqpacket, membarrier_register,
    raise_nofile_limit,
};
use carina_vmpi::ll::VmpiImpl;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::apply::check_alone;
use crate::config::{Config, ConfigError, Placement, in_file};
use crate::connections::Connections;
use crate::core::Core;
use crate::endpoints::Endpoints;
use crate::http::{self, ControlState};
use crate::ipcp_kinds::remove_stale_counters;
use crate::ipcps::Ipcps;
use crate::journal::Journal;
use crate::requests::{Attachment, ControlRequest};
use crate::rib_queries::RibQueries;
use crate::rules::Rules;
use crate::run_directory::{RunDirError, RunDirLock};
use crate::users::Users;

/// The functions that check a configuration, or run a node with it.
#[derive(Debug)]
pub struct Node;

/// Why a node does not start, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The run directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The operating system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The purpose of the failed operation, as text for people.
        what: String,
        /// The reason of the operating system.
        source: io::Error,
    },
    /// An IPCP or VM of the configuration cannot be created.
    #[error("configuration{}: {error}", in_file(path))]
    Config {
        /// The configuration file; `None` for a configuration from elsewhere.
        path: Option<PathBuf>,
        /// The error with its line and the valid alternative.
        error: ErrorBody,
    },
    /// The node ended although no command stopped it; its log has the reason.
    #[error("the node ended without being asked to")]
    Ended,
}

impl Node {
    /// Checks a configuration as a node does when it starts. Reads the files of credentials that
    /// the configuration names, but opens no device and no socket. A node starts with an accepted
    /// configuration, unless the system refuses it a device or a socket.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`].
    pub fn check(config: &Config) -> Result<(), ConfigError> {
        check_alone(config, &node_name(config))
    }

    /// Runs a node in the calling thread until SIGTERM or SIGINT arrives. SIGHUP is ignored.
    ///
    /// # Errors
    /// [`NodeError`] when the node cannot start, or ended without being stopped.
    pub fn run(config: Config) -> Result<(), NodeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(io_error("starting the runtime that handles signals"))?;
        runtime.block_on(async {
            // Handlers are set before the node starts, so that a signal during the start is not
            // lost.
            let mut term = signal(SignalKind::terminate()).map_err(io_error("SIGTERM"))?;
            let mut int = signal(SignalKind::interrupt()).map_err(io_error("SIGINT"))?;
            // Ignored, since closing a terminal must not end the system's network.
            let _hangup = signal(SignalKind::hangup()).map_err(io_error("SIGHUP"))?;
            let mut node = Self::spawn(config)?;
            let ended = node.ended.take();
            let by_itself = tokio::select! {
                _ = term.recv() => false,
                _ = int.recv() => false,
                _ = async { if let Some(ended) = ended { let _ = ended.await; } } => true,
            };
            node.stop();
            if by_itself {
                Err(NodeError::Ended)
            } else {
                Ok(())
            }
        })
    }

    /// Starts a node in threads of its own, and returns when its sockets accept requests.
    ///
    /// # Errors
    /// [`NodeError`] when the node cannot start.
    pub fn spawn(config: Config) -> Result<NodeHandle, NodeError> {
        let run_dir = config
            .node
            .run_dir
            .clone()
            .map_or_else(RunDir::from_env, RunDir::new);
        let run_dir_lock = RunDirLock::take(run_dir.clone())?;
        let (requests, inbox) = channel();
        let doorbell = EventFd::new().map_err(io_error("an eventfd"))?;
        let twin = || doorbell.try_clone().map_err(io_error("an eventfd"));
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let (journal, last_event) = Journal::new(start);
        let control_state = ControlState {
            requests: requests.clone(),
            doorbell: twin()?,
            last_event,
            captures: Default::default(),
        };
        let control_path = run_dir.control_sock();
        let control_listener = UnixListener::bind(&control_path).map_err(at(&control_path))?;
        run_dir_lock.set_mode(&control_path, 0o600)?;
        let node = CoreParts {
            run_dir_lock,
            journal,
            start,
            inbox,
            doorbell: twin()?,
            stop: Arc::clone(&stop),
        };
        let core = node.build(config)?;
        let (ending, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("core".into())
            .spawn(move || {
                core.run();
                // The receiver no longer exists when the handle has stopped the node.
                let _ = ending.send(());
            })
            .map_err(io_error("starting the thread of the IPC Manager"))?;
        let (stop_control, stopped) = oneshot::channel();
        let mut handle = NodeHandle {
            run_dir,
            requests,
            doorbell,
            stop,
            core: Some(thread),
            control: None,
            stop_control: Some(stop_control),
            ended: Some(ended),
        };
        let control = http::spawn(control_listener, control_state, stopped)
            .map_err(io_error("starting the thread of control.sock"))?;
        handle.control = Some(control);
        Ok(handle)
    }
}

/// A running node that [`Node::spawn`] started. Dropping it stops the node.
#[derive(Debug)]
pub struct NodeHandle {
    run_dir: RunDir,
    requests: Sender<ControlRequest>,
    doorbell: EventFd,
    stop: Arc<AtomicBool>,
    core: Option<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    stop_control: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl NodeHandle {
    /// Returns the run directory, which contains the node's sockets.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// Creates an hv IPCP over a VMPI device that is already open, for example one side of a
    /// `memfd` region.
    ///
    /// # Errors
    /// The name is in use, or the node has ended.
    pub fn attach(
        &self,
        name: LocalName,
        dif: DifName,
        device: Box<dyn VmpiImpl + Send>,
    ) -> Result<(), ErrorBody> {
        let ended = || ErrorBody::new(carina_api::ErrorCode::Internal, "the node has ended");
        let (reply, answer) = channel();
        let order = ControlRequest::Attach(Attachment {
            name,
            dif,
            device,
            reply,
        });
        self.requests.send(order).map_err(|_| ended())?;
        self.doorbell.signal();
        answer.recv().map_err(|_| ended())?
    }

    /// Stops the node: it reports the end to applications and peers, and removes its sockets.
    /// Returns when the node has ended.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.signal();
        drop(self.stop_control.take());
        for thread in [self.core.take(), self.control.take()]
            .into_iter()
            .flatten()
        {
            if thread.join().is_err() {
                tracing::error!("a thread of the node panicked");
            }
        }
    }
}

/// What a core is made from, besides its configuration.
struct CoreParts {
    run_dir_lock: RunDirLock,
    journal: Journal,
    start: Instant,
    inbox: Receiver<ControlRequest>,
    doorbell: EventFd,
    stop: Arc<AtomicBool>,
}

impl CoreParts {
    /// Makes the core, with the IPCPs and VMs of the configuration.
    fn build(self, config: Config) -> Result<Core, NodeError> {
        if let Err(error) = raise_nofile_limit() {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
        let dir = self.run_dir_lock.dir().clone();
        remove_stale_counters(&dir.path().join("graphs"));
        let counters = Table::create(&dir.counters()).map_err(at(&dir.counters()))?;
        let plane = DataPlane::spawn_workers(&config.node.data_plane(), counters)
            .map_err(io_error("starting the data plane"))?;
        let listener = listen_seqpacket(&dir.ipc_sock()).map_err(at(&dir.ipc_sock()))?;
        // Access rules decide who may use the socket, not its mode.
        self.run_dir_lock.set_mode(&dir.ipc_sock(), 0o666)?;
        let name = node_name(&config);
        let mut core = Core {
            epoll: Epoll::new().map_err(io_error("epoll"))?,
            run_dir_lock: self.run_dir_lock,
            name,
            start: self.start,
            journal: self.journal,
            rules: Rules::default(),
            limits: config.limits.clone(),
            dif_order: Vec::new(),
            placement: Placement::new(),
            workers: config.node.data_plane(),
            listener,
            connections: Connections::default(),
            users: Users::default(),
            ipcps: Ipcps::default(),
            endpoints: Endpoints::default(),
            rib: RibQueries::default(),
            has_socket_flows: false,
            socket_watch: SocketWatch::new().map_err(io_error("epoll"))?,
            last_watched: 0,
            configured_services: Vec::new(),
            configured_ips: Vec::new(),
            services: None,
            ip_members: Members::new(dir),
            next_socket_poll: self.start,
            next_early_poll: self.start,
            plane,
            barrier_is_free: cpus_possible() == Some(1) && membarrier_register(),
            requests: self.inbox,
            doorbell: self.doorbell,
            stop: self.stop,
            message: Vec::new(),
        };
        core.watch().map_err(io_error("epoll"))?;
        let path = config.origin.path().map(Into::into);
        let applied = core.apply(config);
        applied.map_err(|error| NodeError::Config { path, error })?;
        core.adopt_vms()?;
        Ok(core)
    }
}

/// The name of this system that peers see.
fn node_name(config: &Config) -> String {
    config.node.name.clone().unwrap_or_else(host_name)
}

fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if carina_wire::check_name(&name).is_ok() {
        name
    } else {
        "carina".into()
    }
}

fn io_error(what: &str) -> impl Fn(io::Error) -> NodeError + '_ {
    move |source| NodeError::Io {
        what: what.to_owned(),
        source,
    }
}

fn at(path: &std::path::Path) -> impl Fn(io::Error) -> NodeError {
    let what = PathBuf::from(path).display().to_string();
    move |source| NodeError::Io {
        what: what.clone(),
        source,
    }
}
