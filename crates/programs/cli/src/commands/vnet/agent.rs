//! `carina vnet agent`: the process that makes and repairs the networks of a host.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::control::ClientError;
use carina_api::paths::RunDir;
use carina_apps::prefix::Prefix4;
use carina_apps::tunnel_mux::Gateway;
use carina_sys::{SUCCESSION, lock_file};
use carina_vnet::access::AtAddress;
use carina_vnet::host_part::InterfaceAddress;
use carina_vnet_agent::{Gate, Inside, OpenAgent, Openness};
use carina_vnet_host::admission_check::can_make_namespaces;
use carina_vnet_host::client::{Answer, Client, socket_of};
use carina_vnet_host::{Agent, Error, HostSettings, Underlay, own_name, server};
use carina_vnet_roles::agent;
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::{KeyDir, Tls};
use carina_vnet_roles::log::Log;
use carina_vnet_web::PageServer;

use super::page::Page;
use super::page_file::PageFile;
use super::roles::Party;
use super::user_namespace;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::progress;

/// Options of `carina vnet agent`: what the agent may use on this host, and whose orders it carries
/// out.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Exit when the agent has had no network and no request for 1 s; the first request may come
    /// up to 21 s after the start [default: run until Ctrl-C]
    #[arg(long)]
    transient: bool,
    /// Number of virtual machines to keep ready, cloned and paused, for nodes with `boot = "pool"`
    /// [default: 0]
    ///
    /// They fit nodes with one processor, 128 MiB and up to four links; other nodes are clones.
    #[arg(long, value_name = "MACHINES", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u16).range(..=256))]
    pool: u16,
    /// Name of this host in the inventory of its provider [default: the host name of the system]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Network interface that carries links to other hosts, such as eth1 [default: no links to
    /// other hosts]
    #[arg(long, value_name = "INTERFACE")]
    underlay: Option<String>,
    /// Router to hosts on other segments, with the prefix length of the underlay's segment, such as
    /// 192.0.2.254/24 [default: all hosts are on one segment]
    #[arg(long, value_name = "ADDRESS/BITS", requires = "underlay")]
    gateway: Option<InterfaceAddress>,
    /// Interface of this host that one node of a network can have as its card (`nics` in the
    /// document): the agent passes all frames between node and interface; may be repeated [default:
    /// none]
    #[arg(long = "nic", value_name = "INTERFACE")]
    nics: Vec<String>,
    /// Serve a web page that shows the networks, at this address of the loopback interface, such as
    /// 127.0.0.1:8080 [default: no page]
    #[arg(long, value_name = "ADDRESS:PORT")]
    web: Option<SocketAddr>,
    /// PIP whose orders this agent carries out: its name, and the address of each process that runs
    /// this PIP, such as uk=192.0.2.1:7101 [default: no PIP; networks of this host only]
    #[arg(
        long,
        value_name = "NAME=ADDRESS,...",
        requires = "keys",
        conflicts_with = "transient"
    )]
    pip: Option<Party>,
    /// Directory with the certificate and key of this host, by which the PIP recognises the agent
    /// (made by `carina vnet keys issue`)
    #[arg(long, value_name = "DIR", requires = "pip")]
    keys: Option<PathBuf>,
    /// Address of this host at which to accept nodes that move here from other hosts, such as
    /// 192.0.2.5:7110 [default: accept none]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "pip")]
    moves: Option<SocketAddr>,
    /// Address at which end users reach this host; the agent writes it into the tokens for access
    /// points on this host; may be given up to four times [default: the host's own addresses]
    ///
    /// Add the port if an address translator (NAT) forwards it. `carina vnet token --at` overrides
    /// the addresses for one token.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    users_at: Vec<AtAddress>,
    /// Allow operators of networks to run commands in nodes that are namespaces [default: refuse]
    ///
    /// Such a command runs as root with the files of this host. Commands in virtual machines are
    /// always allowed.
    #[arg(long, requires = "pip")]
    open_namespaces: bool,
}

/// The PIP that this agent works for.
struct Provider<'a> {
    name: &'a str,
    /// Addresses where the processes of the PIP listen.
    addresses: Vec<Address>,
    /// Certificate and key of this host, with which the agent calls the PIP.
    tls: Tls,
}

impl AgentArgs {
    fn agent(&self, run_dir: &RunDir) -> carina_vnet_host::Result<Agent> {
        let gateway = self.gateway.map(|gateway| Gateway {
            prefix: Prefix4::new(gateway.address(), gateway.bits()),
            address: gateway.address(),
        });
        let underlay = self.underlay.as_deref().map(|interface| Underlay {
            gateway,
            ..Underlay::of(interface)
        });
        if let Some(underlay) = &underlay {
            // A missing interface is reported now, not with the first link.
            underlay.read_port()?;
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

    /// Continues in namespaces of the user if this process may not create network namespaces. The
    /// agent has no interface of the host there.
    fn enter_user_namespace(&self, shared: &Shared) -> Outcome {
        if can_make_namespaces() {
            return Ok(());
        }
        let options = [
            ("--underlay", self.underlay.is_some()),
            ("--nic", !self.nics.is_empty()),
            ("--pip", self.pip.is_some()),
            ("--users-at", !self.users_at.is_empty()),
        ];
        if let Some((option, _)) = options.into_iter().find(|(_, is_given)| *is_given) {
            return Err(usage(format!(
                "{option} needs root: the agent of another user runs in a user namespace, without \
                 the network interfaces of this host"
            )));
        }
        let listener = self.web.map(PageServer::listen).transpose();
        user_namespace::enter(shared, listener.attempt("serving the page")?)
    }

    /// The page of `--web`, on the listener that was passed on to the user's namespaces if there is
    /// one.
    fn page_server(&self) -> Result<Option<PageServer>, Failure> {
        let Some(address) = self.web else {
            return Ok(None);
        };
        let page_server = match user_namespace::inherited_listener() {
            Some(listener) => PageServer::on(listener),
            None => PageServer::bind(address),
        };
        page_server.attempt("serving the page").map(Some)
    }

    fn host_name(&self) -> String {
        self.host.clone().unwrap_or_else(own_name)
    }

    /// The PIP to work for. `None` without `--pip`.
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

/// Prints the URL of the agent's page. If no agent runs, starts one that serves the page at
/// `address`.
///
/// # Errors
/// The agent that runs serves no page, or no agent can be started.
pub(super) fn show_page(shared: &Shared, address: SocketAddr) -> Outcome {
    let client = reach_or_start_with(shared, Some(address))?;
    let mut page = PageFile::read_of(&shared.run_dir());
    if page.is_err() && client.list().map_or(true, |networks| networks.is_empty()) {
        // An agent that another command has started may be about to end, unless it gets requests.
        std::thread::sleep(TRANSIENT_END);
        reach_or_start_with(shared, Some(address))?;
        page = PageFile::read_of(&shared.run_dir());
    }
    let url = page.map_err(|_| {
        failed(format!(
            "serving the page at {address}: an agent runs already, and serves no page. End it with \
             its networks (`carina vnet down --all`), or restart it as `carina vnet agent --web \
             {address}`"
        ))
    })?;
    progress(format!("open {} in a browser", url.trim()));
    Ok(())
}

/// Serves `vnet.sock` until a signal arrives, or for a transient agent until it has had no network
/// and no request for a while.
///
/// # Errors
/// Another agent uses the run directory, or the socket cannot be made.
pub(super) fn serve(shared: &Shared, args: &AgentArgs) -> Outcome {
    let run_dir = shared.run_dir();
    args.enter_user_namespace(shared)?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    fs::create_dir_all(run_dir.path()).attempt(format!("making {}", run_dir.path().display()))?;
    let _lock = match lock(shared, args.transient)? {
        Some(lock) => lock,
        None if args.transient => {
            // The command that started this agent finds the other one.
            progress("another agent uses the run directory");
            return Ok(());
        }
        None => {
            return Err(failed(format!(
                "an agent with the run directory {} runs already",
                run_dir.path().display()
            )));
        }
    };
    PageFile::remove_of(&run_dir);
    let provider = args.provider(shared)?;
    let agent = Arc::new(args.agent(&run_dir).attempt("taking over networks")?);
    if args.moves.is_some_and(|at| at.ip().is_unspecified()) {
        let what = "--moves: must be an address at which other hosts reach this one";
        return Err(usage(what));
    }
    let orders = provider.map(|provider| serve_provider(args, &agent, provider));
    let _orders = orders.transpose().attempt("serving the provider")?;
    let path = socket_of(&run_dir);
    let listener = listening(&path)?;
    let page_server = args.page_server()?;
    let page_file = page_server
        .as_ref()
        .map(|server| PageFile::write(&run_dir, server));
    let _page_file = page_file.transpose().attempt("writing vnet.page")?;
    let (ended, end) = std::sync::mpsc::channel();
    let (stop, stopped) = server::stop_handle();
    let (is_transient, pool) = (args.transient, args.pool.into());
    let (serves, keeps) = (Arc::clone(&agent), Arc::clone(&agent));
    std::thread::spawn(move || {
        if let Err(error) = keeps.keep_ready(pool) {
            progress(format!("the pool of ready machines is not filled: {error}"));
        }
    });
    let serving = std::thread::spawn(move || {
        let served = server::serve(listener, serves, is_transient, stopped);
        // The receiver may already be closed.
        let _ = ended.send(());
        served
    });
    progress(format!("serving {}", path.display()));
    let page = page_server.map(|page_server| Page::serve(page_server, &agent));
    drop(agent);
    while end.try_recv().is_err() && !interrupt.comes_within(LOOK).attempt(TAKING_SIGNALS)? {}
    drop(stop);
    drop(page);
    let served = serving
        .join()
        .map_err(|_| failed("the agent's server has failed"))?;
    // The next agent, which waits for the lock, makes the socket again.
    let _ = fs::remove_file(&path);
    served.attempt("serving vnet.sock")?;
    user_namespace::release(shared)
}

/// Starts to carry out the orders of the provider, until the returned values are dropped.
fn serve_provider(
    args: &AgentArgs,
    agent: &Arc<Agent>,
    provider: Provider<'_>,
) -> io::Result<(Gate, agent::Service)> {
    let log = Log::new(provider.tls.party(), Arc::new(|line: &str| progress(line)));
    let openness = Openness {
        opens_namespaces: args.open_namespaces,
    };
    let inside = Inside::new(openness, agent.access_log(), log.clone());
    let gate = Gate::open(agent, &provider.tls, args.moves, &log)?;
    let host = Arc::new(OpenAgent {
        agent: Arc::clone(agent),
        inside,
    });
    let service = agent::Service::start(
        &host,
        &provider.tls,
        provider.name,
        &provider.addresses,
        &log,
    )?;
    Ok((gate, service))
}

/// Makes the socket of an agent that holds the lock of its run directory.
fn listening(path: &Path) -> Result<UnixListener, Failure> {
    let what = || format!("listening on {}", path.display());
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).attempt(what())?,
        // An old socket is of an agent that has ended, because this agent holds the lock.
        _ => {}
    }
    let listener = UnixListener::bind(path).attempt(what())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).attempt(what())?;
    Ok(listener)
}

/// Locks the run directory for this agent. Returns `None` if another agent holds the lock and
/// answers. An agent that is ending holds the lock for a moment longer, so this waits for a while.
fn lock(shared: &Shared, is_transient: bool) -> Result<Option<File>, Failure> {
    let path = shared.run_dir().path().join("vnet.lock");
    let file = File::create(&path).attempt(format!("making {}", path.display()))?;
    let client = client(shared);
    let began = Instant::now();
    loop {
        if lock_file(&file, LOOK).attempt("locking vnet.lock")? {
            return Ok(Some(file));
        }
        let is_patient = began.elapsed() < SUCCESSION && !is_transient;
        if !is_patient && client.list().is_ok() {
            return Ok(None);
        }
        if began.elapsed() > START {
            return Err(failed(format!(
                "another process has the lock {}, and no agent answers on {}",
                path.display(),
                client.path().display()
            )));
        }
    }
}

/// A client of the agent. If no agent answers, starts one that ends with its last network.
///
/// # Errors
/// No agent can be started.
pub(super) fn reach_or_start(shared: &Shared) -> Result<Client, Failure> {
    reach_or_start_with(shared, None)
}

/// Like [`reach_or_start`]; an agent that this starts serves a page at `web`, if it is given.
fn reach_or_start_with(shared: &Shared, web: Option<SocketAddr>) -> Result<Client, Failure> {
    let client = client(shared);
    let deadline = Instant::now() + START;
    let mut started: Option<Started> = None;
    loop {
        if client.list().is_ok() {
            return Ok(client);
        }
        let Some(agent) = &mut started else {
            started = Some(Started::new(shared, web)?);
            continue;
        };
        let is_late = Instant::now() > deadline;
        match agent.has_ended()? {
            // The started agent found another one, which has ended since then.
            Some(status) if status.success() && !is_late => started = None,
            None if !is_late => {}
            Some(_) | None => {
                let logged = agent.logged();
                return Err(failed(format!("the agent does not answer: {logged}")));
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Sends a request to the agent, and starts an agent if none answers. If the agent is ending and
/// refuses the request, repeats it with the next agent.
///
/// # Errors
/// No agent can be started, or the agent refuses the request.
pub(super) fn ask_or_start<T>(
    shared: &Shared,
    what: &str,
    ask: impl Fn(&Client) -> Answer<T>,
) -> Result<(Client, T), Failure> {
    let deadline = Instant::now() + START;
    loop {
        let client = reach_or_start(shared)?;
        match ask(&client) {
            Err(error) if is_ending(&error) && Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            answer => return Ok((client, answer.attempt(what)?)),
        }
    }
}

/// Whether a request failed because the agent is ending.
fn is_ending(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { .. } | ClientError::Io { .. } => true,
        ClientError::Refused { body, .. } => body.message == Error::Ending.to_string(),
        _ => false,
    }
}

/// An agent that this command has started, and its log.
struct Started {
    child: Child,
    log: PathBuf,
    /// Length of the log before the agent started, in bytes.
    before: u64,
}

impl Started {
    fn new(shared: &Shared, web: Option<SocketAddr>) -> Result<Started, Failure> {
        let run_dir = shared.run_dir();
        let what = format!("making {}", run_dir.path().display());
        fs::create_dir_all(run_dir.path()).attempt(what)?;
        let log = run_dir.path().join("vnet.log");
        let stderr = File::options().append(true).create(true).open(&log);
        let stderr = stderr.attempt(format!("writing {}", log.display()))?;
        let before = stderr.metadata().map_or(0, |file| file.len());
        let program = std::env::current_exe().attempt("finding this program")?;
        let child = Command::new(program)
            .args(["vnet", "agent", "--transient", "--run"])
            .arg(run_dir.path())
            .args(web.map(|address| format!("--web={address}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C at this terminal must not reach the agent.
            .process_group(0)
            .spawn()
            .attempt("starting an agent")?;
        Ok(Started { child, log, before })
    }

    fn has_ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child
            .try_wait()
            .attempt("checking whether the agent has ended")
    }

    /// What the agent has written to its log since its start.
    fn logged(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let before = usize::try_from(self.before).unwrap_or(usize::MAX);
        let logged = log.get(before..).unwrap_or_default();
        String::from_utf8_lossy(logged).trim().to_owned()
    }
}

const LOOK: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long an agent may take until it answers.
const START: Duration = Duration::from_secs(20);
/// A transient agent without networks ends within this time after its last request.
const TRANSIENT_END: Duration = Duration::from_millis(1500);

/// A client of the running agent, without a check that one runs.
pub(super) fn client(shared: &Shared) -> Client {
    Client::new(&shared.run_dir(), shared.answer_limit())
}
