//! Nodes that are network namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carina_namespaces::{
    ChildProcess, NamespaceAccess, end_processes_in, is_namespace, namespace_file,
    remove_namespaces,
};
use carina_vm::Sink;
use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart, VnetId};

use super::neighbours::{Neighbour, neighbours};
use super::start::quoted;
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::filesystem::{Filesystem, unmount};
use crate::names::node_namespace;
use crate::namespace;
use crate::node::{CommandLimits, Output};
use crate::probe::{self, Asks, EchoRequest};
use crate::removal::remove_directory;
use crate::rtnetlink::{Interface, Request, RouteSocket, StaticRoute};

/// A namespace, with the shell of its console.
#[derive(Debug)]
pub(super) struct NamespaceNode {
    namespace: String,
    /// Run directory for a Carina node in this namespace; the directory exists only if the
    /// namespace has such a node.
    carina: PathBuf,
    /// What this agent has configured the namespace for, unless interfaces were made again since.
    configured: Mutex<Option<Box<NodePart>>>,
    /// File system of its own, if it has one.
    filesystem: Option<Filesystem>,
    /// Directory at which the node's own file system is mounted.
    mounted: PathBuf,
    environment: BTreeMap<String, String>,
    _shell: ChildProcess,
}

impl NamespaceNode {
    /// Adopts a namespace, which was created together with its ports, and starts the shell of its
    /// console.
    pub(super) fn make(
        vnet: VnetId,
        part: &NodePart,
        dir: &VnetDir,
    ) -> Result<(NamespaceNode, UnixStream)> {
        let (carina, mounted) = (dir.carina(&part.name), dir.filesystem(&part.name));
        let lower = part.start.filesystem.as_deref();
        let filesystem =
            lower.map(|lower| Filesystem::mount(&mounted, &part.name, (lower, part.memory_mib)));
        let filesystem = filesystem.transpose()?;
        let name = &part.name;
        let namespace = node_namespace(vnet, name);
        let (ours, theirs) = UnixStream::pair().attempt("making a console")?;
        let end = || -> Result<Stdio> {
            let end = theirs.try_clone().attempt("making a console")?;
            Ok(Stdio::from(OwnedFd::from(end)))
        };
        // `script` gives the shell a terminal, and ends with its standard input.
        let mut command = Command::new(path_of("script"));
        command
            .args(["--quiet", "--flush", "--return", "--command"])
            .arg(shell_words(filesystem.as_ref()))
            .arg("/dev/null")
            .env("PS1", format!("{name}# "))
            .env("CARINA_NODE", name)
            .envs(surroundings(&carina))
            .envs(&part.start.environment)
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?);
        let what = format!("the console of {name} (`script` is in the package bsdutils)");
        // A process begins in the namespace of the thread that starts it.
        let forwards = if part.kind == Kind::Bridge { "0" } else { "1" };
        let shell = namespace::within(&namespace, || {
            namespace::set("ipv4/ip_forward", forwards)?;
            Ok(ChildProcess::start(&mut command, what)?)
        })?;
        let node = NamespaceNode {
            namespace,
            carina,
            configured: Mutex::default(),
            filesystem,
            mounted,
            environment: part.start.environment.clone(),
            _shell: shell,
        };
        Ok((node, ours))
    }

    /// Makes the next configuration compare the interfaces with those of the kernel, because some
    /// were made again.
    pub(super) fn forget_interfaces(&self) {
        *self.lock() = None;
    }

    /// Configures the interfaces and routes of the namespace, replacing existing ones, and its
    /// neighbours in `whole`, the part of the network on this host.
    pub(super) fn configure(&self, part: &NodePart, whole: &HostPart) -> Result<()> {
        let mut configured = self.lock();
        // If this fails, the next configuration is a complete one.
        let before = configured.take().map(|part| *part);
        if part.kind == Kind::Bridge {
            let is_changed = before.as_ref().is_none_or(|before| {
                (&before.interfaces, before.has_loop) != (&part.interfaces, part.has_loop)
            });
            if is_changed {
                let lines = super::bridge::lines_of(&self.namespace, part)?;
                namespace::batch(&self.namespace, &lines)?;
            }
            namespace::within(&self.namespace, || configure_routes(part))?;
            *configured = Some(Box::new(part.clone()));
            return Ok(());
        }
        namespace::within(&self.namespace, || match &before {
            Some(before) if before.interfaces == part.interfaces => {
                change_routes(&routes_of(before), &routes_of(part))
            }
            _ => configure_all(part, &neighbours(part, whole)),
        })?;
        *configured = Some(Box::new(part.clone()));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<NodePart>>> {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of the namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs a shell command in the namespace, and returns its output when it has ended.
    pub(super) fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        super::command::run(&mut self.shell(command), &format!("`{command}`"), limit)
    }

    /// Like [`NamespaceNode::run`], but hands the output to `sink` while the command runs, and
    /// returns the exit status.
    pub(super) fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        let what = format!("`{command}`");
        super::command::stream(&mut self.shell(command), &what, until, sink)
    }

    fn shell(&self, command: &str) -> Command {
        let words = match &self.filesystem {
            Some(filesystem) => filesystem.words(command),
            None => ["sh", "-c", command].map(OsString::from).into(),
        };
        let mut shell = NamespaceAccess::of_root().command_in(&self.namespace, &words[0]);
        shell
            .args(&words[1..])
            .envs(surroundings(&self.carina))
            .envs(&self.environment);
        shell
    }

    pub(super) fn echo(
        &self,
        own: Ipv4Addr,
        peer: Ipv4Addr,
        limit: Duration,
        asks: Asks,
    ) -> Result<Duration> {
        let namespace = self.namespace.clone();
        let ask = EchoRequest {
            namespace,
            own,
            peer,
            asks,
        };
        probe::echo(ask, limit)
    }

    pub(super) fn is_alive(&self) -> bool {
        is_namespace(&self.namespace)
    }

    /// Ends all processes in the namespace.
    pub(super) fn stop(&self) -> Result<()> {
        let names = std::slice::from_ref(&self.namespace);
        end_processes_in(&NamespaceAccess::of_root(), names)?;
        unmount(&self.mounted)?;
        remove_directory(&self.carina)
    }

    pub(super) fn remove(&self) -> Result<()> {
        let names = std::slice::from_ref(&self.namespace);
        remove_namespaces(&NamespaceAccess::of_root(), names)?;
        unmount(&self.mounted)?;
        remove_directory(&self.carina)
    }

    /// The kernel's number of the namespace (its inode), which changes when the namespace is made
    /// again.
    pub(super) fn incarnation(&self) -> Result<String> {
        let path = namespace_file(&self.namespace);
        let found = std::fs::metadata(&path).attempt(format!("looking at {}", path.display()))?;
        Ok(format!("namespace {}", found.ino()))
    }
}

/// The command of a console's shell, as a script.
fn shell_words(filesystem: Option<&Filesystem>) -> String {
    let Some(filesystem) = filesystem else {
        return "exec sh -i".to_owned();
    };
    let words = filesystem.words("exec sh -i").into_iter();
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    format!("exec {}", words.join(" "))
}

/// Configures the namespace of this thread: changes every setting that differs from the kernel's.
fn configure_all(part: &NodePart, neighbours: &[Neighbour]) -> Result<()> {
    let mut socket = RouteSocket::new()?;
    let has_ipv6 = part.has_ipv6();
    if has_ipv6 {
        namespace::set("ipv6/conf/all/forwarding", "1")?;
    }
    let existing = socket.interfaces()?;
    let mut requests = requests_for_interfaces(part, &existing)?;
    requests.extend(requests_for_neighbours(neighbours, &existing));
    socket.execute(&requests)?;
    let before = socket.static_routes(has_ipv6)?;
    socket.execute(&requests_for_routes(&before, &routes_of(part)))
}

/// Replaces all routes in the namespace of this thread.
fn configure_routes(part: &NodePart) -> Result<()> {
    let mut socket = RouteSocket::new()?;
    let before = socket.static_routes(part.has_ipv6())?;
    socket.execute(&requests_for_routes(&before, &routes_of(part)))
}

/// Changes the routes in the namespace of this thread.
fn change_routes(before: &BTreeSet<StaticRoute>, wanted: &BTreeSet<StaticRoute>) -> Result<()> {
    let requests = requests_for_routes(before, wanted);
    if requests.is_empty() {
        return Ok(());
    }
    RouteSocket::new()?.execute(&requests)
}

/// The requests that configure the interfaces of a node.
///
/// # Errors
/// The node lacks an interface.
fn requests_for_interfaces<'a>(
    part: &NodePart,
    existing: &'a [Interface],
) -> Result<Vec<Request<'a>>> {
    let by_name: BTreeMap<&str, &Interface> = existing
        .iter()
        .map(|interface| (interface.name.as_str(), interface))
        .collect();
    let mut requests = Vec::new();
    if let Some(interface) = by_name.get("lo").filter(|interface| !interface.is_up) {
        let (mac, mtu) = (None, None);
        requests.push(Request::Up {
            interface,
            mac,
            mtu,
        });
    }
    for wanted in &part.interfaces {
        let found = by_name.get(wanted.name.as_str());
        let interface = found.ok_or_else(|| Error::NoInterface {
            node: part.name.clone(),
            interface: wanted.name.clone(),
        })?;
        let (mac, mtu) = (wanted.mac, wanted.mtu);
        let is_set = interface.mac == Some(mac) && interface.mtu == u32::from(mtu);
        if !(interface.is_up && is_set) {
            requests.push(Request::Up {
                interface,
                mac: Some(mac),
                mtu: Some(mtu),
            });
        }
        let address = (IpAddr::V4(wanted.address.address()), wanted.address.bits());
        let address6 = wanted.address6;
        let address6 = address6.map(|address6| (IpAddr::V6(address6.address()), address6.bits()));
        for (address, bits) in std::iter::once(address).chain(address6) {
            requests.push(Request::Address {
                interface,
                address,
                bits,
            });
        }
    }
    Ok(requests)
}

/// The requests that tell a node its neighbours.
fn requests_for_neighbours<'a>(
    neighbours: &[Neighbour],
    existing: &'a [Interface],
) -> Vec<Request<'a>> {
    let found = neighbours.iter().filter_map(|neighbour| {
        let mut interfaces = existing.iter();
        let interface = interfaces.find(|interface| interface.name == neighbour.interface)?;
        let addresses = neighbour.addresses.iter();
        Some(addresses.map(move |address| Request::Neighbour {
            interface,
            address: *address,
            mac: neighbour.mac,
        }))
    });
    found.flatten().collect()
}

/// The requests that change the routes of a node. A route to the same destination is replaced.
fn requests_for_routes<'a>(
    before: &BTreeSet<StaticRoute>,
    wanted: &BTreeSet<StaticRoute>,
) -> Vec<Request<'a>> {
    let destinations: BTreeSet<_> = wanted.iter().map(|route| (route.to, route.bits)).collect();
    let removed = before.difference(wanted);
    let removed = removed.filter(|removed| !destinations.contains(&(removed.to, removed.bits)));
    let added = wanted.difference(before).copied().map(Request::Route);
    let removed = removed.copied().map(Request::RemoveRoute);
    removed.chain(added).collect()
}

/// The routes of a node; the first one to a destination counts.
fn routes_of(part: &NodePart) -> BTreeSet<StaticRoute> {
    let routes = part.routes.iter().map(|route| StaticRoute {
        to: route.to.prefix().address().into(),
        bits: route.to.bits(),
        via: route.via.into(),
    });
    let routes6 = part.routes6.iter().map(|route6| StaticRoute {
        to: route6.to.prefix().address().into(),
        bits: route6.to.bits(),
        via: route6.via.into(),
    });
    routes.chain(routes6).collect()
}

/// The file of a program. With its path, the standard library starts it without a copy of this
/// process, which would take longer with each thread.
fn path_of(program: &str) -> PathBuf {
    let known = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&known).map(|place| place.join(program));
    places
        .find(|place| place.is_file())
        .unwrap_or_else(|| program.into())
}

/// The environment of commands: `PATH` with this program as `carina`, and the run directory of the
/// Carina node in this namespace.
fn surroundings(carina: &Path) -> Vec<(&'static str, OsString)> {
    let mut all = vec![("CARINA_RUN", carina.into())];
    let program = std::env::current_exe().ok();
    let directory = program
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_owned);
    let known = std::env::var_os("PATH").unwrap_or_default();
    let places = directory.into_iter().chain(std::env::split_paths(&known));
    if let Ok(path) = std::env::join_paths(places) {
        all.push(("PATH", path));
    }
    all
}
