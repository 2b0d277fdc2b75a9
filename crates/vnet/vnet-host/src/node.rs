//! A node of a network that runs on this host.

mod arriving;
mod bare;
mod bridge;
mod command;
mod images;
mod machine;
mod moving;
mod namespace;
mod neighbours;
mod resuming;
mod sending;
mod start;
mod stream;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart};

pub use carina_vm::{Collector, CommandLimits, Output, Sink, Stream};

pub(crate) use self::arriving::{Arrival, ArrivalNote, arrival_notes, forget_arrival};
pub(crate) use self::images::{Images, end_pool, member_mib};
pub(crate) use self::machine::MachineNode;
pub use self::machine::PORTS_MAX as MACHINE_INTERFACES_MAX;
pub(crate) use self::moving::{Move, forget_move, forget_moves, recover};
use self::namespace::NamespaceNode;
pub(crate) use self::sending::{away, forget_away, note_away, stay};
use self::start::quoted;
pub use self::stream::Arrived;
use crate::confinement::Confinement;
use crate::console::Console;
use crate::directory::VnetDir;
use crate::error::{Error, Result};
use crate::port_selection::PortSelection;
use crate::probe::Asks;
use crate::removal::remove_file;
use crate::saved::Saved;

/// What is needed to make a network's nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// The part of the network that this host makes.
    pub whole: &'a HostPart,
    /// For each link end, which of its two ports it uses.
    pub ports: &'a PortSelection,
    pub dir: &'a VnetDir,
    pub images: &'a Images,
}

/// A running node. Dropping this value ends its console, but not the node.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    // Dropped before `system`: a shell ends with its console.
    console: Console,
    system: System,
    /// A script that sets the variables of a machine's commands; empty without variables.
    exports: String,
    /// Marks that the node has had its files and commands.
    started: PathBuf,
}

#[derive(Debug)]
enum System {
    Namespace(NamespaceNode),
    Machine(MachineNode),
}

impl Node {
    /// Makes a node, or adopts the existing one, and configures its interfaces and routes.
    ///
    /// `saved` is the saved network from which the node is restored, if any.
    pub(crate) fn make(site: &Site<'_>, part: &NodePart, saved: Option<&Saved>) -> Result<Node> {
        let (system, console, is_configured) = match part.kind {
            Kind::Namespace | Kind::Bridge => {
                let (node, console) = NamespaceNode::make(site.whole.vnet, part, site.dir)?;
                (System::Namespace(node), console, false)
            }
            Kind::Vm => {
                let (node, console, is_configured) = MachineNode::make(site, part, saved)?;
                let is_configured = is_configured || node.is_foreign();
                (System::Machine(node), console, is_configured)
            }
        };
        let node = Node {
            name: part.name.clone(),
            system,
            console: Console::serve(&site.dir.console(&part.name), console)?,
            exports: exports_of(part),
            started: site.dir.started(&part.name),
        };
        if !is_configured {
            node.configure(part, site.whole)?;
        }
        Ok(node)
    }

    /// A node that has arrived from another host and runs.
    pub(crate) fn arrived(dir: &VnetDir, part: &NodePart, arrival: Arrival) -> Result<Node> {
        let (machine, console) = arrival.finish(dir, part)?;
        Ok(Node {
            name: part.name.clone(),
            system: System::Machine(machine),
            console: Console::serve(&dir.console(&part.name), console)?,
            exports: exports_of(part),
            started: dir.started(&part.name),
        })
    }

    /// Adds cards for new links to the node and removes those of removed links. `fresh` are links
    /// whose ports were made again. A namespace gets no cards: its interfaces are the ports' other
    /// ends.
    pub(crate) fn rewire(&self, site: &Site<'_>, part: &NodePart, fresh: &[u32]) -> Result<()> {
        match &self.system {
            System::Namespace(node) => {
                if part
                    .interfaces
                    .iter()
                    .any(|interface| fresh.contains(&interface.link))
                {
                    node.forget_interfaces();
                }
                Ok(())
            }
            System::Machine(node) => node.rewire(site, part, fresh),
        }
    }

    /// Configures the names and addresses of the interfaces, and the routes. `whole` is the part of
    /// the network to which the node belongs.
    pub(crate) fn configure(&self, part: &NodePart, whole: &HostPart) -> Result<()> {
        match &self.system {
            System::Namespace(node) => node.configure(part, whole),
            System::Machine(node) => {
                let script = machine::configuration(part);
                if script.is_empty() {
                    // A machine without links.
                    return Ok(());
                }
                let output = node.run(&script, CONFIGURE)?;
                if output.is_success() {
                    Ok(())
                } else {
                    Err(Error::NodeCommand {
                        node: self.name.clone(),
                        command: "configuring its interfaces".to_owned(),
                        status: output.status,
                        output: output.error_text(),
                    })
                }
            }
        }
    }

    /// Runs a shell command in the node, and returns its output when it has ended.
    pub(crate) fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        match &self.system {
            System::Namespace(node) => node.run(command, limit),
            System::Machine(node) => node.run(&self.exported(command), limit),
        }
    }

    /// Like [`Node::run`], but hands the output to `sink` while the command runs, and returns the
    /// exit status. Kills the command at the end of `until`, or when the sink refuses output.
    pub(crate) fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        match &self.system {
            System::Namespace(node) => node.stream(command, until, sink),
            System::Machine(node) => node.stream(&self.exported(command), until, sink),
        }
    }

    /// Round trip of an echo request that the node sends to an address.
    pub(crate) fn echo(
        &self,
        own: Ipv4Addr,
        peer: Ipv4Addr,
        limit: Duration,
        asks: Asks,
    ) -> Result<Duration> {
        match &self.system {
            System::Namespace(node) => node.echo(own, peer, limit, asks),
            System::Machine(node) => node.echo(own, peer, limit, asks),
        }
    }

    /// The machine, if the node is one.
    pub(crate) fn machine(&self) -> Option<&MachineNode> {
        match &self.system {
            System::Namespace(_) => None,
            System::Machine(node) => Some(node),
        }
    }

    /// Name of the namespace, if the node is one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match &self.system {
            System::Namespace(node) => Some(node.namespace()),
            System::Machine(_) => None,
        }
    }

    /// Whether the node is a machine with an image of the store, in which no agent executes
    /// commands.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(&self.system, System::Machine(node) if node.is_foreign())
    }

    /// The confinement of the machine; `None` if this agent has not started it.
    pub(crate) fn confinement(&self) -> Option<Confinement> {
        match &self.system {
            System::Namespace(_) => None,
            System::Machine(node) => node.confinement(),
        }
    }

    /// Name of the node in its network.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The console of the node.
    pub(crate) fn console(&self) -> &Console {
        &self.console
    }

    /// Whether the node runs: its QEMU process or its namespace exists.
    pub(crate) fn is_alive(&self) -> bool {
        match &self.system {
            System::Namespace(node) => node.is_alive(),
            System::Machine(node) => node.is_alive(),
        }
    }

    /// The command with the variables of the document, for a machine.
    fn exported(&self, command: &str) -> String {
        format!("{}{command}", self.exports)
    }

    /// A text that identifies this run of the node: the process ID of the machine, or the number of
    /// the namespace. A later node of the same name has another text.
    pub(crate) fn incarnation(&self) -> Result<String> {
        match &self.system {
            System::Namespace(node) => node.incarnation(),
            System::Machine(node) => node.incarnation(),
        }
    }

    /// Ends the node and removes it.
    pub(crate) fn remove(&self) -> Result<()> {
        remove_file(&self.started)?;
        match &self.system {
            System::Namespace(node) => node.remove(),
            System::Machine(node) => node.remove(),
        }
    }

    /// Ends what runs in the node. The namespace, or the taps of a machine, stay, with the links
    /// connected to them.
    pub(crate) fn stop(&self) -> Result<()> {
        remove_file(&self.started)?;
        match &self.system {
            System::Namespace(node) => node.stop(),
            System::Machine(node) => node.remove(),
        }
    }

    /// Ends the agent's control of the node, but leaves the node running.
    pub(crate) fn leave(self) {
        if let System::Machine(node) = self.system {
            node.leave();
        }
    }
}

/// The script that sets the variables of a machine's commands.
fn exports_of(part: &NodePart) -> String {
    let variables = part.start.environment.iter();
    let export = |(name, value): (&String, &String)| format!("export {name}={}\n", quoted(value));
    variables.map(export).collect()
}

/// Longest time for configuring a node's interfaces.
const CONFIGURE: Duration = Duration::from_secs(120);
