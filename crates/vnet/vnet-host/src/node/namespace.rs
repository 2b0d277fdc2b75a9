//! Nodes that are network namespaces.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use carina_namespaces::{
    ChildProcess, NamespaceAccess, end_processes_in, is_namespace, remove_namespaces,
};
use carina_vm::Sink;
use carina_vnet::host_part::{NodePart, VnetId};

use crate::error::{Attempt, Result};
use crate::names::node_namespace;
use crate::namespace;
use crate::node::{CommandLimits, Output};
use crate::probe::{self, Asks};
use crate::removal::remove_directory;

/// A namespace, with the shell of its console.
#[derive(Debug)]
pub(super) struct NamespaceNode {
    namespace: String,
    /// Run directory of the Carina node in this namespace, if there is one.
    carina: PathBuf,
    _shell: ChildProcess,
}

impl NamespaceNode {
    /// Adopts a namespace, which was created together with its ports, and starts the shell of its
    /// console.
    pub(super) fn make(
        vnet: VnetId,
        name: &str,
        carina: &Path,
    ) -> Result<(NamespaceNode, UnixStream)> {
        let namespace = node_namespace(vnet, name);
        namespace::within(&namespace, || namespace::set("ipv4/ip_forward", "1"))?;
        let (ours, theirs) = UnixStream::pair().attempt("making a console")?;
        let end = || -> Result<Stdio> {
            let end = theirs.try_clone().attempt("making a console")?;
            Ok(Stdio::from(OwnedFd::from(end)))
        };
        // `script` gives the shell a terminal, and ends with its standard input.
        let mut command = NamespaceAccess::of_root().command_in(&namespace, "script");
        command
            .args(["--quiet", "--flush", "--return", "--command"])
            .arg("exec sh -i")
            .arg("/dev/null")
            .env("PS1", format!("{name}# "))
            .env("CARINA_NODE", name)
            .envs(surroundings(carina))
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?);
        let what = format!("the console of {name} (`script` is in the package bsdutils)");
        let shell = ChildProcess::start(&mut command, what)?;
        let node = NamespaceNode {
            namespace,
            carina: carina.to_owned(),
            _shell: shell,
        };
        Ok((node, ours))
    }

    /// Configures the interfaces and routes of the namespace, replacing existing ones.
    pub(super) fn configure(&self, part: &NodePart) -> Result<()> {
        let mut lines = vec![
            "link set dev lo up".to_owned(),
            "route flush proto static".to_owned(),
        ];
        if part.has_ipv6() {
            namespace::within(&self.namespace, || {
                namespace::set("ipv6/conf/all/forwarding", "1")
            })?;
            let flush = [
                "-n",
                &self.namespace,
                "-6",
                "route",
                "flush",
                "proto",
                "static",
            ];
            NamespaceAccess::of_root().ip(&flush)?;
        }
        for interface in &part.interfaces {
            let (name, mac, mtu) = (&interface.name, interface.mac, interface.mtu);
            let address = interface.address;
            lines.push(format!("link set dev {name} address {mac} mtu {mtu} up"));
            lines.push(format!("address replace {address} dev {name}"));
            let address6 = interface.address6.iter();
            // The other end is known: detection of duplicates would only delay the first packets.
            lines.extend(address6.map(|it| format!("address replace {it} dev {name} nodad")));
        }
        for route in &part.routes {
            let (to, via) = (route.to, route.via);
            lines.push(format!("route replace {to} via {via} proto static"));
        }
        for route in &part.routes6 {
            let (to, via) = (route.to, route.via);
            lines.push(format!("route replace {to} via {via} proto static"));
        }
        namespace::batch(&self.namespace, &lines)
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
        let mut shell = NamespaceAccess::of_root().command_in(&self.namespace, "sh");
        shell.args(["-c", command]).envs(surroundings(&self.carina));
        shell
    }

    pub(super) fn echo(
        &self,
        own: Ipv4Addr,
        peer: Ipv4Addr,
        limit: Duration,
        asks: Asks,
    ) -> Result<Duration> {
        namespace::within(&self.namespace, || probe::echo(own, peer, limit, asks))
    }

    pub(super) fn is_alive(&self) -> bool {
        is_namespace(&self.namespace)
    }

    /// Ends all processes in the namespace.
    pub(super) fn stop(&self) -> Result<()> {
        let names = std::slice::from_ref(&self.namespace);
        end_processes_in(&NamespaceAccess::of_root(), names)?;
        remove_directory(&self.carina)
    }

    pub(super) fn remove(&self) -> Result<()> {
        let names = std::slice::from_ref(&self.namespace);
        remove_namespaces(&NamespaceAccess::of_root(), names)?;
        remove_directory(&self.carina)
    }
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
