//! `carina nfv`: connects virtual machines to a network through ports behind one uplink.

use std::fs;
use std::path::{Path, PathBuf};

use carina_frame::PoolConfig;
use carina_graph::graph_file::Kind;
use carina_nfv::port::PortSpec;
use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::{Defaults, Traffic, TrafficPort, read, uplink_of};
use carina_text::duration::parse_ns;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, refused};
use crate::file_watch::check_not_empty;
use crate::report::{print_json, print_line, progress};

mod attach;
#[cfg(feature = "tools")]
pub(crate) mod demo;
mod record;
mod running;
mod table;

/// Connect virtual machines to a network, with filters, rate limits and tunnels per port
#[derive(Debug, Subcommand)]
pub(crate) enum NfvCommand {
    /// Run the ports described in a file, and apply changes of the file
    ///
    /// The file is TOML, as docs/tutorials/nfv.md describes it, or a file of snabbnfv. When the
    /// file changes, or on SIGHUP, only the ports that differ change; the other ports lose no
    /// frame. A file with errors is reported and changes nothing.
    #[command(after_help = "Examples:\n  carina nfv run ports.toml\n  \
        carina nfv run ports.toml --cpu 1 --for 10s --json\n  \
        carina nfv run snabbnfv.cfg --uplink eth1 --socket /run/vm/%s.socket\n\n\
        Needs CAP_NET_RAW for an interface, CAP_NET_ADMIN for a tap. Exit code 3: the file is wrong.")]
    Run(running::RunArgs),
    /// Check a file of ports without running it
    #[command(after_help = "Example:\n  carina nfv check ports.toml")]
    Check(Source),
    /// Print rates and drops of the ports of all running nfv processes
    #[command(after_help = "Examples:\n  carina nfv show\n  carina nfv show --over 5s --json")]
    Show {
        /// Time over which rates and drops are measured, such as 5s
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_ns)]
        over: u64,
    },
    /// Print the QEMU arguments or libvirt elements that connect a virtual machine to a port
    #[command(
        after_help = "Examples:\n  qemu-system-x86_64 -m 1G … $(carina nfv args web \
        --memory 1G)\n  carina nfv args web --libvirt\n  carina nfv args web --file \
        ports.toml\n\nQEMU must share the guest's memory: --memory SIZE (the SIZE of -m) adds \
        the arguments for that."
    )]
    Args(attach::AttachArgs),
    #[cfg(feature = "tools")]
    /// Boot two VMs with two network cards each; test pings, a rate limit and a filter; draw how
    /// the rate of a graph falls with each app
    ///
    /// The cards are virtio-net over vhost-user, each at a port of `carina nfv run`. The server's
    /// port begins with a rate limit, which the demo removes; then it adds and removes a filter,
    /// while pings continue. At last it measures, on the host and in a VM, how the rate of a graph
    /// falls with the number of its `hop` apps. A `hop` app swaps the MAC addresses and decrements
    /// the TTL. The figure is like figure 4 of K. Mathiazhagan, "Network Function Virtualization
    /// with Snabb".
    #[command(
        after_help = "Example:\n  carina nfv demo --out .\n\nWrites fig4.svg and \
        fig4.json. Needs QEMU and busybox, but not root. Exit code 1: a result is not as \
        expected, such as a lost ping."
    )]
    Demo(demo::DemoArgs),
}

/// Options that name a file of ports, and the defaults for the uplink and the sockets that the file
/// does not name.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// File of the ports: TOML, or a Lua table as for snabbnfv
    file: PathBuf,
    /// Port to use as the uplink if the file has no uplink, such as eth1 or tap:inside [default: no
    /// uplink]
    #[arg(long, value_name = "PORT")]
    uplink: Option<PortSpec>,
    /// Path of the vhost-user socket of each port that has no key `socket` in the file; %s stands
    /// for the port's name [default: nfv/%s.sock in the run directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
}

impl Source {
    fn defaults(&self, shared: &Shared) -> Defaults {
        let own = || record::directory(shared).join("%s.sock");
        Defaults {
            uplink: self.uplink.as_ref().map(uplink_of),
            sockets: self
                .socket
                .clone()
                .unwrap_or_else(|| own().to_string_lossy().into_owned()),
        }
    }

    fn read(&self, shared: &Shared) -> Result<Traffic, Failure> {
        Ok(self.read_with_text(shared)?.0)
    }

    /// What the file describes, and the text of the file.
    fn read_with_text(&self, shared: &Shared) -> Result<(Traffic, String), Failure> {
        let file = &self.file;
        let text = fs::read_to_string(file).attempt(format!("reading {}", file.display()))?;
        check_not_empty(file, &text)?;
        let traffic = parse(file, &text, &self.defaults(shared), &port_kinds())?;
        Ok((traffic, text))
    }
}

/// Reads the text of a file of ports. Errors name `file`.
fn parse(file: &Path, text: &str, defaults: &Defaults, kinds: &[Kind]) -> Result<Traffic, Failure> {
    read(text, defaults, kinds).map_err(|error| {
        // `FILE:LINE: fault`, as compilers print it, so that editors can find the place.
        let (file, line, fault) = (file.display(), error.line, error.fault);
        refused(format!("{file}:{line}: {fault}"))
    })
}

/// Finds the port of a running `carina nfv run` that has this socket. `None` if no port has it.
pub(crate) fn port_at(shared: &Shared, socket: &Path) -> Result<Option<TrafficPort>, Failure> {
    for record in record::all(shared) {
        let traffic = record.traffic()?;
        let mut ports = traffic.ports.into_iter();
        let is_its = |port: &TrafficPort| {
            let path = port.app.get("socket").and_then(|path| path.as_str());
            path.is_some_and(|path| std::path::absolute(path).is_ok_and(|path| path == socket))
        };
        if let Some(port) = ports.find(is_its) {
            return Ok(Some(port));
        }
    }
    Ok(None)
}

/// The commands of `carina nfv` that only the program `carina-tools` implements.
#[cfg(feature = "tools")]
pub(crate) struct NfvTools {
    /// `carina nfv demo`.
    pub demo: fn(&Shared, demo::DemoArgs) -> Outcome,
}

/// Runs a command of `carina nfv`.
///
/// # Errors
/// The file is invalid, or the system refuses a resource.
pub(crate) fn run(
    shared: &Shared,
    command: NfvCommand,
    #[cfg(feature = "tools")] tools: &NfvTools,
) -> Outcome {
    match command {
        NfvCommand::Run(args) => running::run(shared, &args),
        NfvCommand::Check(source) => check(shared, &source),
        NfvCommand::Show { over } => running::show(shared, over),
        NfvCommand::Args(args) => attach::run(shared, &args),
        #[cfg(feature = "tools")]
        NfvCommand::Demo(args) => (tools.demo)(shared, args),
    }
}

fn check(shared: &Shared, source: &Source) -> Outcome {
    let traffic = source.read(shared)?;
    warn(&source.file, &traffic);
    let file = source.file.display();
    let wrong = |error: &dyn std::fmt::Display| refused(format!("{file}: {error}"));
    let apps = graph(&traffic, &port_kinds()).map_err(|error| wrong(&error))?;
    let rehearsed = apps.rehearse(PoolConfig::default().frame_bytes);
    rehearsed.map_err(|error| wrong(&error))?;
    let count = traffic.ports.len();
    if shared.json {
        let names: Vec<&str> = traffic.ports.iter().map(|port| &*port.name).collect();
        let warnings = &traffic.warnings;
        let has_uplink = traffic.uplink.is_some();
        return print_json(&json!({
            "ports": names, "uplink": has_uplink, "warnings": warnings,
        }));
    }
    let uplink = match traffic.uplink {
        Some(_) => "with an uplink",
        None => "without an uplink",
    };
    print_line(format!("ports: {count}, {uplink}"))
}

/// Prints warnings about fields that take effect otherwise than their author may expect.
fn warn(file: &Path, traffic: &Traffic) {
    for warning in &traffic.warnings {
        progress(format!("{}: {warning}", file.display()));
    }
}
