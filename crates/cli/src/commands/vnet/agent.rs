//! `carina vnet agent`: the process that holds the networks of a host.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_apps::prefix::Prefix4;
use carina_apps::tunnel_mux::Gateway;
use carina_vnet::host_part::InterfaceAddress;
use carina_vnet_host::access::AtAddress;
use carina_vnet_host::client::{Client, socket_of};
use carina_vnet_host::web::Web;
use carina_vnet_host::{Agent, HostSettings, Underlay, own_name, server};
use carina_vnet_roles::agent;
use carina_vnet_roles::agent::moves::Gate;
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::inside::hosting::{Inside, Openness};
use carina_vnet_roles::keys::{KeyDir, Tls};
use carina_vnet_roles::log::Log;

use super::roles::Party;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::progress;

/// Options of `carina vnet agent`.
#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    /// End when the last network is removed
    #[arg(long)]
    transient: bool,
    /// Keep so many machines ready for nodes with `boot = "pool"` [default: none]
    ///
    /// They are of one processor and 128 MiB, with up to four links; other nodes are clones.
    #[arg(long, value_name = "MACHINES", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u16).range(..=256))]
    pool: u16,
    /// The name of this host in the inventory of its provider [default: the system's]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The interface over which links to other hosts leave
    #[arg(long, value_name = "INTERFACE")]
    underlay: Option<String>,
    /// The next hop of hosts that are not on its segment, with the length of the segment's prefix:
    /// 192.0.2.254/24 [default: all are on it]
    #[arg(long, value_name = "ADDRESS/BITS", requires = "underlay")]
    gateway: Option<InterfaceAddress>,
    /// An interface of this host that a node may have as its own (`nics`); say it for each
    #[arg(long = "nic", value_name = "INTERFACE")]
    nics: Vec<String>,
    /// Serve a page for people at this address of the loopback interface, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS:PORT")]
    web: Option<SocketAddr>,
    /// Serve this PIP, whose processes listen at these addresses
    #[arg(
        long,
        value_name = "NAME=ADDRESS,...",
        requires = "keys",
        conflicts_with = "transient"
    )]
    pip: Option<Party>,
    /// The directory of the host's certificate and key (`carina vnet keys`)
    #[arg(long, value_name = "DIR", requires = "pip")]
    keys: Option<PathBuf>,
    /// Take nodes that move here from other hosts at this address, at which their agents reach it
    #[arg(long, value_name = "ADDRESS:PORT", requires = "pip")]
    moves: Option<SocketAddr>,
    /// Where end users find this host, up to four times, as tokens for its access points say it
    /// [default: its own addresses]
    ///
    /// With a port where a translator of addresses is in between. `carina vnet token --at` says
    /// others for one token.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    users_at: Vec<AtAddress>,
    /// Let operators of the provider's networks run commands in nodes that are namespaces
    ///
    /// Such a command has the files of this host, and its root. Nodes that are machines are open
    /// without this.
    #[arg(long, requires = "pip")]
    open_namespaces: bool,
}

/// A provider to serve.
struct Provider<'a> {
    name: &'a str,
    /// Where its processes listen.
    addresses: Vec<Address>,
    /// The certificate for it.
    tls: Tls,
}

impl AgentArgs {
    fn agent(&self, run_dir: &RunDir) -> carina_vnet_host::Result<Agent> {
        let gateway = self.gateway.map(|it| Gateway {
            prefix: Prefix4::new(it.address(), it.bits()),
            address: it.address(),
        });
        let underlay = self.underlay.as_deref().map(|interface| Underlay {
            gateway,
            ..Underlay::of(interface)
        });
        if let Some(underlay) = &underlay {
            // Better said now than with the first link.
            underlay.look()?;
        }
        let settings = HostSettings {
            name: self.host_name(),
            underlay,
        };
        let agent = Agent::of_host(run_dir, settings)?;
        agent.offer_nics(&self.nics)?;
        agent.meet_users_at(&self.users_at);
        Ok(agent)
    }

    fn host_name(&self) -> String {
        self.host.clone().unwrap_or_else(own_name)
    }

    /// The provider to serve, if one is named.
    fn provider(&self, shared: &Shared) -> Result<Option<Provider<'_>>, Failure> {
        let (Some(pip), Some(keys)) = (&self.pip, &self.keys) else {
            return Ok(None);
        };
        let party = Identity::new(Role::Agent, &self.host_name()).map_err(refused)?;
        let tls = Tls::of(&KeyDir::new(keys), &party);
        let tls = tls.attempt(format!("reading the keys of {party}"))?;
        Ok(Some(Provider {
            name: &pip.name,
            addresses: pip.addresses(shared)?,
            tls,
        }))
    }
}

/// The page, on a thread that ends with this value.
struct Page {
    stop: Option<server::Stop>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Page {
    fn serve(web: Web, agent: &Arc<Agent>) -> Page {
        progress(format!("open {} in a browser", web.url()));
        let (stop, stopped) = server::stop_handle();
        let agent = Arc::clone(agent);
        Page {
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || web.serve(agent, stopped))),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            progress(format!("the page: {error}"));
        }
    }
}

/// Serves `vnet.sock` until a signal comes, or the last network goes.
///
/// # Errors
/// Another agent has the run directory, or the socket cannot be made.
pub fn serve(shared: &Shared, args: &AgentArgs) -> Outcome {
    let run_dir = shared.run_dir();
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    fs::create_dir_all(run_dir.path()).attempt(format!("making {}", run_dir.path().display()))?;
    let _lock = match lock(&run_dir)? {
        Some(lock) => lock,
        None if args.transient => {
            // The command that has started this one finds the other.
            progress("another agent has the run directory");
            return Ok(());
        }
        None => {
            return Err(failed(format!(
                "an agent with the run directory {} runs already",
                run_dir.path().display()
            )));
        }
    };
    let provider = args.provider(shared)?;
    let agent = Arc::new(args.agent(&run_dir).attempt("taking up networks")?);
    if args.moves.is_some_and(|at| at.ip().is_unspecified()) {
        let what = "--moves: give the address at which other hosts reach this one";
        return Err(usage(what));
    }
    let orders = provider.map(|it| {
        let log = Log::new(it.tls.party(), Arc::new(|line: &str| progress(line)));
        let openness = Openness {
            opens_namespaces: args.open_namespaces,
        };
        let inside = Inside::new(openness, agent.access_log(), log.clone());
        let gate = Gate::open(&agent, &it.tls, args.moves, &log)?;
        let agent = Arc::clone(&agent);
        let host = Arc::new(agent::OpenAgent { agent, inside });
        let service = agent::Service::start(&host, &it.tls, it.name, &it.addresses, &log)?;
        Ok::<_, io::Error>((gate, service))
    });
    let _orders = orders.transpose().attempt("serving the provider")?;
    let path = socket_of(&run_dir);
    let listener = listening(&path)?;
    let web = args
        .web
        .map(Web::bind)
        .transpose()
        .attempt("serving the page")?;
    let (ended, end) = std::sync::mpsc::channel();
    let (stop, stopped) = server::stop_handle();
    let (is_transient, pool) = (args.transient, args.pool.into());
    let (serves, keeps) = (Arc::clone(&agent), Arc::clone(&agent));
    std::thread::spawn(move || {
        if let Err(error) = keeps.keep_ready(pool) {
            progress(format!("no machines stand ready: {error}"));
        }
    });
    let serving = std::thread::spawn(move || {
        let served = server::serve(listener, serves, is_transient, stopped);
        // The other end may have gone.
        let _ = ended.send(());
        served
    });
    progress(format!("serving {}", path.display()));
    let page = web.map(|web| Page::serve(web, &agent));
    drop(agent);
    while end.try_recv().is_err() && !interrupt.comes_within(LOOK).attempt(TAKING_SIGNALS)? {}
    drop(stop);
    drop(page);
    let served = serving
        .join()
        .map_err(|_| failed("the agent's server has failed"))?;
    // A successor that has the lock makes it anew.
    let _ = fs::remove_file(&path);
    served.attempt("serving vnet.sock")
}

/// The socket of an agent that has the lock of its run directory.
fn listening(path: &Path) -> Result<UnixListener, Failure> {
    let what = || format!("listening on {}", path.display());
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).attempt(what())?,
        // It was that of an agent that has gone: this one has the lock.
        _ => {}
    }
    let listener = UnixListener::bind(path).attempt(what())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).attempt(what())?;
    Ok(listener)
}

/// The lock of the agent of a run directory; none if another agent has it.
fn lock(run_dir: &RunDir) -> Result<Option<File>, Failure> {
    let path = run_dir.path().join("vnet.lock");
    let file = File::create(&path).attempt(format!("making {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).attempt("locking vnet.lock"),
    }
}

/// A client of the agent; where none answers, one is started that ends with its last network.
///
/// # Errors
/// None can be started.
pub fn reach_or_start(shared: &Shared) -> Result<Client, Failure> {
    let run_dir = shared.run_dir();
    let client = Client::new(&run_dir, shared.answer_limit());
    if client.list().is_ok() {
        return Ok(client);
    }
    fs::create_dir_all(run_dir.path()).attempt(format!("making {}", run_dir.path().display()))?;
    let log = run_dir.path().join("vnet.log");
    let stderr = File::options().append(true).create(true).open(&log);
    let stderr = stderr.attempt(format!("writing {}", log.display()))?;
    let before = stderr.metadata().map_or(0, |file| file.len());
    let program = std::env::current_exe().attempt("finding this program")?;
    let mut child = Command::new(program)
        .args(["vnet", "agent", "--transient", "--run"])
        .arg(run_dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // An interrupt typed at this terminal is not for it.
        .process_group(0)
        .spawn()
        .attempt("starting an agent")?;
    let deadline = Instant::now() + START;
    loop {
        if client.list().is_ok() {
            return Ok(client);
        }
        let ended = child.try_wait().attempt("looking after the agent")?;
        // One that has ended well has found that another agent is about to answer.
        if ended.is_some_and(|status| !status.success()) || Instant::now() > deadline {
            let said = fs::read(&log).unwrap_or_default();
            let said = said.get(before as usize..).unwrap_or_default();
            return Err(failed(format!(
                "the agent does not answer: {}",
                String::from_utf8_lossy(said).trim()
            )));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

const LOOK: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long an agent may take until it answers.
const START: Duration = Duration::from_secs(20);
