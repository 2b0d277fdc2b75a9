//! A node of a network that runs on this host.

mod arriving;
mod command;
mod images;
mod machine;
mod moving;
mod namespace;
mod sending;
mod stream;

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart};

pub use carina_vm::Output;

pub use self::arriving::{Arrival, ArrivalNote, arrival_notes, forget_arrival};
pub use self::command::Until;
pub use self::images::{Images, end_pool, member_mib};
pub use self::machine::{MachineNode, PORTS_MAX as MACHINE_INTERFACES_MAX};
pub use self::moving::{Move, forget_move, forget_moves, recover};
use self::namespace::NamespaceNode;
pub use self::sending::{away, forget_away, note_away, stay};
pub use self::stream::Arrived;
use crate::confinement::Confinement;
use crate::console::Console;
use crate::directory::VnetDir;
use crate::error::{Error, Result};
use crate::probe::Asks;
use crate::saved::Saved;
use crate::second_ports::SecondPorts;

/// Where nodes of a network are made.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// What this host makes of the network.
    pub whole: &'a HostPart,
    /// Which of their ports ends of links are at.
    pub ports: &'a SecondPorts,
    pub dir: &'a VnetDir,
    pub images: &'a Images,
}

/// A node that runs. Its console ends with this value; the node does not.
#[derive(Debug)]
pub struct Node {
    name: String,
    // It ends before the system: a shell ends with its console.
    console: Console,
    system: System,
}

#[derive(Debug)]
enum System {
    Namespace(NamespaceNode),
    Machine(MachineNode),
}

impl Node {
    /// Makes a node, or takes up the one that is there, and gives it its interfaces and routes.
    ///
    /// `saved` is what it goes on from, if it was saved.
    pub fn make(site: &Site<'_>, part: &NodePart, saved: Option<&Saved>) -> Result<Node> {
        let (system, console, is_configured) = match part.kind {
            Kind::Namespace => {
                let (node, console) =
                    NamespaceNode::make(site.whole.vnet, &part.name, &site.dir.carina(&part.name))?;
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
        };
        if !is_configured {
            node.configure(part)?;
        }
        Ok(node)
    }

    /// A node that has come from another host, and runs.
    pub fn arrived(dir: &VnetDir, part: &NodePart, arrival: Arrival) -> Result<Node> {
        let (machine, console) = arrival.settle(dir, part)?;
        Ok(Node {
            name: part.name.clone(),
            system: System::Machine(machine),
            console: Console::serve(&dir.console(&part.name), console)?,
        })
    }

    /// Gives it the cards of links that have come, and takes those of links that have gone; the
    /// ports of `fresh` links are other ones than before. A namespace has them already.
    pub fn rewire(&self, site: &Site<'_>, part: &NodePart, fresh: &[u32]) -> Result<()> {
        match &self.system {
            System::Namespace(_) => Ok(()),
            System::Machine(node) => node.rewire(site, part, fresh),
        }
    }

    /// Gives its interfaces their names and addresses, and it its routes.
    pub fn configure(&self, part: &NodePart) -> Result<()> {
        match &self.system {
            System::Namespace(node) => node.configure(part),
            System::Machine(node) => {
                let script = machine::configuration(part);
                let output = node.run(&script, CONFIGURE)?;
                if output.is_success() {
                    Ok(())
                } else {
                    Err(Error::NodeCommand {
                        node: self.name.clone(),
                        command: "configuring its interfaces".to_owned(),
                        status: output.status,
                        said: output.error_text(),
                    })
                }
            }
        }
    }

    /// Runs a shell command in it to its end.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        let is_cancelled = &AtomicBool::new(false);
        match &self.system {
            System::Namespace(node) => node.run(
                command,
                Until {
                    limit,
                    is_cancelled,
                },
            ),
            System::Machine(node) => node.run(command, limit),
        }
    }

    /// As [`Node::run`], until no one waits for it any more: then it is killed.
    pub fn run_until(&self, command: &str, until: Until<'_>) -> Result<Output> {
        match &self.system {
            System::Namespace(node) => node.run(command, until),
            System::Machine(node) => node.run_until(command, until),
        }
    }

    /// Asks an address for an echo from inside of the node; the round trip.
    pub fn echo(
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

    /// Its machine, if it is one.
    pub fn machine(&self) -> Option<&MachineNode> {
        match &self.system {
            System::Namespace(_) => None,
            System::Machine(node) => Some(node),
        }
    }

    /// The namespace that it is, if it is one.
    pub fn namespace(&self) -> Option<&str> {
        match &self.system {
            System::Namespace(node) => Some(node.namespace()),
            System::Machine(_) => None,
        }
    }

    /// Whether it is a machine with an image of its own, in which nothing takes commands.
    pub fn is_foreign(&self) -> bool {
        matches!(&self.system, System::Machine(node) if node.is_foreign())
    }

    /// How its machine is confined, if it is one that this agent has started.
    pub fn confinement(&self) -> Option<Confinement> {
        match &self.system {
            System::Namespace(_) => None,
            System::Machine(node) => node.confinement(),
        }
    }

    /// Its name in the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its console.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        match &self.system {
            System::Namespace(node) => node.is_alive(),
            System::Machine(node) => node.is_alive(),
        }
    }

    /// Ends and removes it.
    pub fn remove(&self) -> Result<()> {
        match &self.system {
            System::Namespace(node) => node.remove(),
            System::Machine(node) => node.remove(),
        }
    }

    /// Ends what runs of it. What its links are plugged into stays: the namespace that it is, the
    /// taps of a machine.
    pub fn stop(&self) -> Result<()> {
        match &self.system {
            System::Namespace(node) => node.stop(),
            System::Machine(node) => node.remove(),
        }
    }

    /// Lets it run on without this agent.
    pub fn leave(self) {
        if let System::Machine(node) = self.system {
            node.leave();
        }
    }
}

/// How long the configuration of a node's interfaces may take.
const CONFIGURE: Duration = Duration::from_secs(120);
