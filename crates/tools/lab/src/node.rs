//! A node with its applications, for tests and benchmarks. All of it ends when the value is
//! dropped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::control::{Client, DifCreate, DifRole, IpcpCreate, IpcpType, MemberState};
use carina_api::paths::RunDir;
use carina_api::{AppName, DifName, LocalName};
use carina_namespaces::{ChildProcess, Namespace, NamespaceAccess, run_within};
use carina_scratch::Scratch;
use carina_sys::end_with_parent;

use crate::error::{Attempt, Error, Result};

/// The network namespace of a node and its applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// The network namespace of this process.
    Shared,
    /// A new network namespace without links.
    Own,
}

/// A node in a run directory of its own, with its applications.
#[derive(Debug)]
pub struct TestNode {
    name: String,
    // The fields are dropped in this order: applications, node, namespace, directory.
    children: Vec<ChildProcess>,
    process: ChildProcess,
    namespace: Option<Namespace>,
    directory: Scratch,
}

impl TestNode {
    /// Starts a node, and waits until it answers. If `config` is `None`, the node has no
    /// configuration file. A new namespace needs the rights of root, or those that
    /// [`enter_private`](carina_namespaces::enter_private) gives.
    ///
    /// # Errors
    /// The namespace cannot be made, or the node does not start. The error contains the end of its
    /// log.
    pub fn start(name: &str, network: Network, config: Option<&str>) -> Result<Self> {
        let label = format!("{name}-{}", std::process::id());
        let directory = Scratch::new(&label)?;
        let path = directory.path().to_owned();
        let namespace = match network {
            Network::Shared => None,
            Network::Own => Some(Namespace::new(&format!("carina-bench-{label}"))?),
        };
        let run = path.to_string_lossy().into_owned();
        let mut arguments = vec!["node", "--run", &run];
        let file = path.join("node.toml");
        let file_name = file.to_string_lossy();
        if let Some(config) = config {
            std::fs::write(&file, config).attempt(format!("writing {}", file.display()))?;
            arguments.extend(["--config", &file_name]);
        }
        let process = start_child(namespace.as_ref(), &arguments, &path.join("node.log"))?;
        let mut node = Self {
            name: name.to_owned(),
            children: Vec::new(),
            process,
            namespace,
            directory,
        };
        let control = node.control();
        node.wait_for("the node to answer", START, || control.node().is_ok())?;
        Ok(node)
    }

    /// Name of this node, which the caller chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The run directory of the node, which also contains its logs.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A client of the node's control socket.
    pub fn control(&self) -> Client {
        Client::new(RunDir::new(self.path()).control_sock())
    }

    /// Path of the node's socket for applications, `ipc.sock`.
    pub fn ipc_socket(&self) -> PathBuf {
        RunDir::new(self.path()).ipc_sock()
    }

    /// Process ID of the node.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The network namespace of the node; `None` if it is the namespace of this process.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Runs `ip` in the node's network namespace.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        match &self.namespace {
            Some(namespace) => namespace.ip(arguments)?,
            None => NamespaceAccess::of_root().ip(arguments).map(drop)?,
        }
        Ok(())
    }

    /// Joins two nodes by a veth pair with these interface names.
    ///
    /// # Errors
    /// A node has no namespace of its own, or `ip` fails.
    pub fn connect(&self, interface: &str, peer: &TestNode, peer_interface: &str) -> Result<()> {
        let namespace = self.own_namespace()?;
        Ok(namespace.connect(interface, peer.own_namespace()?, peer_interface)?)
    }

    /// Makes a bridge in the node's network namespace.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn add_bridge(&self, bridge: &str) -> Result<()> {
        self.ip(&["link", "add", "name", bridge, "type", "bridge"])?;
        self.ip(&["link", "set", "dev", bridge, "up"])
    }

    /// Makes a tap interface in the node's network namespace, and adds it to a bridge.
    ///
    /// # Errors
    /// `ip` is missing, or there is no such bridge.
    pub fn add_tap(&self, tap: &str, bridge: &str) -> Result<()> {
        self.ip(&["tuntap", "add", "dev", tap, "mode", "tap"])?;
        self.ip(&["link", "set", "dev", tap, "master", bridge])?;
        self.ip(&["link", "set", "dev", tap, "up"])
    }

    fn own_namespace(&self) -> Result<&Namespace> {
        let missing = || Error::NoNamespace(self.name.clone());
        self.namespace.as_ref().ok_or_else(missing)
    }

    /// Runs a program in the node's network namespace, and returns its standard output when it has
    /// ended.
    ///
    /// # Errors
    /// The program cannot be started, fails, or takes longer than `limit`.
    pub fn run(&self, program: &str, arguments: &[&str], limit: Duration) -> Result<String> {
        let what = format!("{program} in {}", self.name);
        let mut command = program_in(self.namespace.as_ref(), program);
        let output = run_within(command.args(arguments), &what, limit)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Command {
            command: format!("in {}, {program} {}", self.name, arguments.join(" ")),
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// Creates a shim IPCP for Ethernet on an interface, without a VLAN tag.
    ///
    /// # Errors
    /// The node refuses.
    pub fn add_eth(&self, interface: &str, dif: &str) -> Result<()> {
        self.ip(&["link", "set", "dev", interface, "up"])?;
        let name = LocalName::new(format!("eth.{interface}")).attempt("naming an IPCP")?;
        let dif = DifName::new(dif).attempt("naming a DIF")?;
        let mut create = IpcpCreate::new(name, IpcpType::Eth, dif);
        create.interface = Some(interface.to_owned());
        create.vlan = Some(0);
        let made = self.control().create_ipcp(&create);
        made.attempt(format!("making the IPCP of {interface} in {}", self.name))?;
        Ok(())
    }

    /// Creates or joins a normal DIF and waits until the member is enrolled.
    ///
    /// # Errors
    /// The node refuses, or the member is not enrolled in time.
    pub fn add_member(&self, role: DifRole, dif: &str, over: &[&str]) -> Result<()> {
        let dif_name = |text: &str| DifName::new(text).attempt("naming a DIF");
        let over: Result<Vec<DifName>> = over.iter().map(|dif| dif_name(dif)).collect();
        let ipcp = LocalName::new(format!("{dif}.{}", self.name)).attempt("naming an IPCP")?;
        let create = DifCreate {
            name: dif_name(dif)?,
            role,
            over: over?,
            ipcp: Some(ipcp),
            via: None,
            auth: None,
            dialect: Default::default(),
            config: None,
        };
        let made = self.control().create_dif(&create);
        made.attempt(format!("making a member of {dif} in {}", self.name))?;
        self.wait_until_enrolled(dif)
    }

    fn wait_until_enrolled(&self, dif: &str) -> Result<()> {
        let deadline = Instant::now() + ENROLLED;
        loop {
            let ipcps = self.control().ipcps().attempt("listing IPCPs")?;
            let member = ipcps
                .into_iter()
                .find(|ipcp| ipcp.dif.as_str() == dif)
                .and_then(|ipcp| ipcp.member)
                .ok_or_else(|| Error::NoMember {
                    system: self.name.clone(),
                    dif: dif.to_owned(),
                })?;
            if member.state == MemberState::Enrolled {
                return Ok(());
            }
            if Instant::now() > deadline {
                let timeout = Error::Timeout {
                    what: format!("{} to join {dif}", self.name),
                    limit: ENROLLED,
                };
                let (step, why) = (member.step, member.last_error.unwrap_or_default());
                return Err(timeout.with(format!(": {step} {why}\n{}", self.logs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts this program with other arguments, as an application of the node. Its standard error
    /// goes to the file `log` in the run directory.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start_child(&mut self, arguments: &[&str], log: &str) -> Result<()> {
        let run = self.path().to_string_lossy().into_owned();
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--run", &run]).collect();
        let log = self.path().join(log);
        let child = start_child(self.namespace.as_ref(), &arguments, &log)?;
        self.children.push(child);
        Ok(())
    }

    /// Ends the most recently started application.
    pub fn stop_last_child(&mut self) {
        self.children.pop();
    }

    /// Waits until an application of this system, or of the other end of a shim, has registered a
    /// name, at most for `limit`.
    ///
    /// # Errors
    /// The name is not registered within `limit`, or a process has ended.
    pub fn wait_for_name(&mut self, name: &AppName, limit: Duration) -> Result<()> {
        let control = self.control();
        let is_known = || {
            control
                .apps()
                .is_ok_and(|apps| apps.iter().any(|app| app.name == *name))
        };
        self.wait_for(&format!("{name} to be registered"), limit, is_known)
    }

    /// Waits until a name is in the directory of a DIF.
    ///
    /// # Errors
    /// The name is not there in time.
    pub fn wait_for_name_in(&self, dif: &str, name: &str) -> Result<()> {
        let deadline = Instant::now() + ENROLLED;
        loop {
            let difs = self.control().difs().attempt("listing DIFs")?;
            let is_known = difs
                .iter()
                .any(|d| d.name.as_str() == dif && d.names.iter().any(|n| n.as_str() == name));
            if is_known {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: format!("{name} to be known in {dif} at {}", self.name),
                    limit: ENROLLED,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for(&mut self, what: &str, limit: Duration, ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !ready() {
            let processes = self.children.iter_mut().chain([&mut self.process]);
            let ended = processes
                .map(ChildProcess::check_alive)
                .find_map(std::result::Result::err);
            if let Some(error) = ended {
                return Err(Error::from(error).with(format!("\n{}", self.logs())));
            }
            if Instant::now() > deadline {
                let what = what.to_owned();
                return Err(Error::Timeout { what, limit }.with(format!("\n{}", self.logs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The last lines of the logs of the node, and of the application whose log is `peer.log`.
    pub fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = std::fs::read_to_string(self.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(20);
            format!("--- end of {name}\n{}", lines[from..].join("\n"))
        };
        [tail("node.log"), tail("peer.log")].join("\n")
    }
}

/// Starts this program, with its standard error in a file.
fn start_child(
    namespace: Option<&Namespace>,
    arguments: &[&str],
    log: &Path,
) -> Result<ChildProcess> {
    let program = std::env::current_exe().attempt("finding this program")?;
    let log = std::fs::File::create(log).attempt(format!("writing {}", log.display()))?;
    let mut command = match namespace {
        None => Command::new(program),
        Some(namespace) => namespace.command(program),
    };
    end_with_parent(&mut command)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let child = ChildProcess::start(&mut command, format!("carina {}", arguments.join(" ")))?;
    Ok(child)
}

fn program_in(namespace: Option<&Namespace>, program: &str) -> Command {
    match namespace {
        None => Command::new(program),
        Some(namespace) => namespace.command(program),
    }
}

/// How long a node may take until it answers.
const START: Duration = Duration::from_secs(20);
/// How long a member may take to enroll, and a name to become known.
const ENROLLED: Duration = Duration::from_secs(30);
