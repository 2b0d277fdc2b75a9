//! Topologies: systems, links, DIFs and applications, read from a `.lab` file and checked.
//!
//! ```text
//!   text --parse--> Draft --resolve--> Topology, or TopologyError with line and column
//!                                         \--node_config--> the configuration of a node, as text
//! ```
//!
//! This crate makes no namespaces, guests or nodes. The crate `lab` makes what a topology
//! describes, and implements [`NodeChecks`] with the checks of Carina's node.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use carina_api::control::Dialect;
use carina_api::control::FaultSpec;
use carina_ipcp::DifConfig;
use serde::Serialize;

mod address;
mod check;
mod config;
mod lower;
mod netem;
mod parse;
mod resolve;
mod token;

pub use address::Address;
pub use check::NodeChecks;
pub use config::{hv_ipcp, node_config};

/// A checked topology: all references resolve, and no DIF is below itself.
#[derive(Debug, Clone, Serialize)]
pub struct Topology {
    /// The systems, in the order in which the file first mentions them.
    pub systems: Vec<System>,
    /// The links in the order of the file.
    pub links: Vec<Link>,
    /// The normal DIFs, in an order in which they can be made: each after its N-1 DIFs.
    pub difs: Vec<Dif>,
    /// The applications in the order of the file.
    pub apps: Vec<App>,
    /// Settings of the file that a lab ignores, as text for the user.
    pub notes: Vec<String>,
}

/// A system of a lab, with one node: a network namespace or a virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct System {
    /// Name of the system, and of its node.
    pub name: String,
    /// The VM's parameters; `None` if the system is a network namespace.
    pub vm: Option<Vm>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// The parameters of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vm {
    /// The system to whose node the VM is attached, by the DIF `hv.NAME`.
    pub host: String,
    /// Memory of the VM, in MiB.
    pub memory_mib: u32,
    /// Number of processors of the VM.
    pub cpus: u32,
}

/// A network between systems, with a shim DIF over it. The shim is over UDP if the ends have
/// addresses, otherwise over Ethernet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// Name of the link, and of its shim DIF.
    pub name: String,
    /// VLAN ID of the link's frames. `None` if frames have no tag, or if the name of the link is
    /// the VLAN ID.
    pub vlan: Option<u16>,
    /// Longest payload of a frame in bytes; `None` for the kernel's default of 1500.
    pub mtu: Option<u32>,
    /// The systems on the link, each with its interface.
    pub ends: Vec<LinkEnd>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// The end of a link at one system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkEnd {
    /// Name of the system at this end of the link.
    pub system: String,
    /// Name of the system's interface on the link.
    pub interface: String,
    /// The address of the interface, on a link of UDP; `None` on other links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Impairment of the frames that this end sends; `None` for no impairment.
    pub fault: Option<FaultSpec>,
}

/// A normal DIF with its configuration and its members.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dif {
    /// Name of the DIF that the topology describes.
    pub name: String,
    /// 1 if all N-1 DIFs are links and VMs, otherwise one more than the highest level of an N-1
    /// DIF.
    pub level: usize,
    /// Dialect of the protocols that all members of the DIF use.
    pub dialect: Dialect,
    /// Configuration of the DIF. In other dialects than native, values equal to
    /// [`DifConfig::default`] are replaced by the dialect's defaults.
    pub config: DifConfig,
    /// Authentication as `KIND:FILE`; `None` for none.
    pub auth: Option<String>,
    /// The members in order of enrollment: the first creates the DIF, each other one enrolls with
    /// an earlier one.
    pub members: Vec<Member>,
    #[serde(skip)]
    pub(crate) at: Position,
    /// Position in the file of each configuration path, and of `auth`.
    #[serde(skip)]
    pub(crate) places: Vec<(Vec<String>, Position)>,
}

/// A member of a normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// Name of the system whose node has this member.
    pub system: String,
    /// Names of the N-1 DIFs of the member.
    pub over: Vec<String>,
    /// Systems of the members with which it shares an N-1 DIF that has no third member. These
    /// always become its neighbours.
    pub beside: Vec<String>,
    /// System of the member with which this member enrolls, by name. Needed over UDP, where only
    /// names with a configured address can be reached, and the DIF's name has none.
    pub via: Option<String>,
    /// The member's address, in a DIF of dialect rlite that does not assign addresses; otherwise
    /// `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// An application that the lab starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct App {
    /// Name of the system on which the lab starts the application.
    pub system: String,
    /// Shell command of the application.
    pub command: String,
    /// Application name that must be registered before the next application is started; `None` to
    /// start the next one at once.
    pub wait: Option<String>,
}

/// A position in the file; line and column are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the line.
    pub line: usize,
    /// Number of the character in that line.
    pub column: usize,
}

/// An error in a topology file: the position, what is wrong, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}line {}, column {}: {message}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default(), at.line, at.column)]
pub struct TopologyError {
    /// Name of the file; `None` if the text is not from a file.
    pub file: Option<String>,
    /// Position of the error.
    pub at: Position,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Why a topology could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// Path of the file, as given.
        file: String,
        /// Why the operating system could not read the file.
        source: std::io::Error,
    },
    /// The text is not a topology.
    #[error(transparent)]
    Invalid(#[from] TopologyError),
}

impl Topology {
    /// Parses a topology. Its nodes must pass `checks`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &str, checks: &dyn NodeChecks) -> Result<Self, TopologyError> {
        resolve::resolve(parse::parse(text)?, checks)
    }

    /// Loads a topology from a file. Its nodes must pass `checks`.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong.
    pub fn load(path: &Path, checks: &dyn NodeChecks) -> Result<Self, LoadError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read {
            file: file.clone(),
            source,
        })?;
        Self::parse(&text, checks).map_err(|error| {
            let file = Some(file);
            LoadError::Invalid(TopologyError { file, ..error })
        })
    }

    /// The system with this name; `None` if the topology has none.
    pub fn system(&self, name: &str) -> Option<&System> {
        self.systems.iter().find(|system| system.name == name)
    }

    /// The systems that are network namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &System> {
        self.systems.iter().filter(|system| system.vm.is_none())
    }

    /// The systems that are virtual machines, with their parameters.
    pub fn machines(&self) -> impl Iterator<Item = (&System, &Vm)> {
        self.systems
            .iter()
            .filter_map(|system| Some((system, system.vm.as_ref()?)))
    }

    /// The shim DIFs, by name, each with its systems.
    pub fn shims(&self) -> BTreeMap<String, Vec<String>> {
        let links = self.links.iter().map(|link| {
            let ends = link.ends.iter().map(|end| end.system.clone());
            (link.name.clone(), ends.collect())
        });
        let machines = self
            .machines()
            .map(|(vm, needs)| (hv_dif(&vm.name), vec![needs.host.clone(), vm.name.clone()]));
        links.chain(machines).collect()
    }

    /// The topology as a graph: lines between two systems, each with its label.
    pub fn edges(&self) -> Vec<(String, String, String)> {
        let mut edges = Vec::new();
        for link in &self.links {
            let name = |end: &LinkEnd| end.system.clone();
            match &link.ends[..] {
                [a, b] => edges.push((name(a), name(b), link.name.clone())),
                // The bridge is a point of its own in the graph.
                ends => {
                    for end in ends {
                        edges.push((name(end), format!("[{}]", link.name), String::new()));
                    }
                }
            }
        }
        for (vm, needs) in self.machines() {
            edges.push((needs.host.clone(), vm.name.clone(), hv_dif(&vm.name)));
        }
        edges
    }
}

impl Link {
    /// Whether the link's shim is over UDP.
    pub fn is_udp(&self) -> bool {
        self.ends.iter().any(|end| end.address.is_some())
    }
}

impl Dif {
    /// Name of the IPCP of a system in this DIF, which is its application name in the N-1 DIFs.
    pub fn ipcp(&self, system: &str) -> String {
        format!("{}.{system}", self.name)
    }

    /// Position of the last line that sets the configuration path; that of the DIF if none does.
    pub(crate) fn place_of(&self, path: &[&str]) -> Position {
        let mut places = self.places.iter().rev();
        let place = places.find(|(known, _)| known == path);
        place.map_or(self.at, |(_, at)| *at)
    }

    /// Whether a member of the DIF has this N-1 DIF.
    pub fn stands_on(&self, lower: &str) -> bool {
        let mut lowers = self.members.iter().flat_map(|member| &member.over);
        lowers.any(|name| name == lower)
    }

    /// The member on a system, and its index in `members`; index 0 is the member that creates the
    /// DIF. `None` if the system has no member.
    pub fn member(&self, system: &str) -> Option<(usize, &Member)> {
        let mut members = self.members.iter().enumerate();
        members.find(|(_, member)| member.system == system)
    }
}

/// Name of the DIF between a VM and the system that it is attached to.
pub fn hv_dif(vm: &str) -> String {
    format!("hv.{vm}")
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
