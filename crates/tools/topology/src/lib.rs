//! Topologies: systems, links, DIFs and applications, read from a `.lab` file and checked.
//!
//! ```text
//!   text --parse--> Draft --resolve--> Topology, or TopologyError with line and column
//!                                         \--node_config--> the configuration of a node, as text
//! ```
//!
//! Deliberately absent: namespaces, guests and nodes. The crate `lab` makes what a topology
//! describes, and has the checks of Carina's node: [`NodeChecks`].

#![forbid(unsafe_code)]
#![deny(unreachable_pub)]

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
pub use config::node_config;

/// A checked topology: all references resolve, and no DIF stands on itself.
#[derive(Debug, Clone, Serialize)]
pub struct Topology {
    /// The systems in order of first mention.
    pub systems: Vec<System>,
    /// The links in the order of the file.
    pub links: Vec<Link>,
    /// The normal DIFs in an order in which they can be made: each after those it stands on.
    pub difs: Vec<Dif>,
    /// The applications in the order of the file.
    pub apps: Vec<App>,
    /// What the file asks for and a lab does not do.
    pub notes: Vec<String>,
}

/// One system with one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct System {
    /// Its name, which is the node's too.
    pub name: String,
    /// A virtual machine; absent for a network namespace.
    pub vm: Option<Vm>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vm {
    /// The system whose node it is attached to, by the DIF `hv.NAME`.
    pub host: String,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
}

/// A network between systems, and the shim DIF over it: one over UDP where the ends have
/// addresses, else one over Ethernet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// Its name, which is that of the DIF.
    pub name: String,
    /// VLAN id of its frames; absent for frames without tag, or the name if that is a number.
    pub vlan: Option<u16>,
    /// Longest payload of a frame in bytes; absent for the kernel's 1500.
    pub mtu: Option<u32>,
    /// The systems on it.
    pub ends: Vec<LinkEnd>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// One system on a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkEnd {
    /// The system.
    pub system: String,
    /// Its interface.
    pub interface: String,
    /// The address of the interface, on a link of UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Impairment of what it sends.
    pub fault: Option<FaultSpec>,
}

/// A normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dif {
    /// Its name.
    pub name: String,
    /// 1 when it stands on links and VMs only, else one more than the highest below.
    pub level: usize,
    /// What the members speak.
    pub dialect: Dialect,
    /// The configuration. In other dialects than the native one, values equal to
    /// [`DifConfig::default`] are left to the dialect.
    pub config: DifConfig,
    /// `KIND:FILE` of authentication.
    pub auth: Option<String>,
    /// Its members in order of enrollment: the first creates it, each other one joins through one
    /// before it.
    pub members: Vec<Member>,
    #[serde(skip)]
    pub(crate) at: Position,
    /// Positions in the file of configuration paths and of `auth`.
    #[serde(skip)]
    pub(crate) places: Vec<(Vec<String>, Position)>,
}

/// A member of a normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// Its system.
    pub system: String,
    /// The DIFs below.
    pub over: Vec<String>,
    /// The systems of members with which it alone shares a DIF below: they always become its
    /// neighbours.
    pub beside: Vec<String>,
    /// The system of the member that it asks for admission by name. Needed over UDP, where only
    /// names with a configured address are found and the DIF's name has none.
    pub via: Option<String>,
    /// Its address, in a DIF of dialect rlite that assigns none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    #[serde(skip)]
    pub(crate) at: Position,
}

/// An application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct App {
    /// The system it runs on.
    pub system: String,
    /// Its command, for a shell.
    pub command: String,
    /// The name to wait for before the next one is started.
    pub wait: Option<String>,
}

/// A place in the file, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Something wrong in a topology file: where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}line {}, column {}: {message}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default(), at.line, at.column)]
pub struct TopologyError {
    /// The file, when there is one.
    pub file: Option<String>,
    /// The place.
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
        /// The file.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The text is not a topology.
    #[error(transparent)]
    Invalid(#[from] TopologyError),
}

impl Topology {
    /// Reads a topology from text. Its nodes must pass `checks`.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, checks: &dyn NodeChecks) -> Result<Self, TopologyError> {
        resolve::resolve(parse::parse(text)?, checks)
    }

    /// Reads a topology from a file. Its nodes must pass `checks`.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong in it.
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

    /// The system of that name.
    pub fn system(&self, name: &str) -> Option<&System> {
        self.systems.iter().find(|system| system.name == name)
    }

    /// The systems that are network namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &System> {
        self.systems.iter().filter(|system| system.vm.is_none())
    }

    /// The systems that are virtual machines, with what they need.
    pub fn machines(&self) -> impl Iterator<Item = (&System, &Vm)> {
        self.systems
            .iter()
            .filter_map(|system| Some((system, system.vm.as_ref()?)))
    }

    /// The DIFs below the normal ones, with the systems in each.
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

    /// The topology as a graph: lines between systems, each with its name.
    pub fn edges(&self) -> Vec<(String, String, String)> {
        let mut edges = Vec::new();
        for link in &self.links {
            let name = |end: &LinkEnd| end.system.clone();
            match &link.ends[..] {
                [a, b] => edges.push((name(a), name(b), link.name.clone())),
                // The bridge is a point of its own.
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
    /// Whether its shim is that over UDP.
    pub fn is_udp(&self) -> bool {
        self.ends.iter().any(|end| end.address.is_some())
    }
}

impl Dif {
    /// The name of the member of a system: an application name in the DIFs below.
    pub fn ipcp(&self, system: &str) -> String {
        format!("{}.{system}", self.name)
    }

    /// The position of the last line that sets a path; that of the DIF if none does.
    pub(crate) fn place_of(&self, path: &[&str]) -> Position {
        let mut places = self.places.iter().rev();
        let place = places.find(|(known, _)| known == path);
        place.map_or(self.at, |(_, at)| *at)
    }

    /// Whether a member has this DIF below.
    pub fn stands_on(&self, lower: &str) -> bool {
        let mut lowers = self.members.iter().flat_map(|member| &member.over);
        lowers.any(|name| name == lower)
    }

    /// The place of a member in its DIF: 0 is the one that makes it.
    pub fn member(&self, system: &str) -> Option<(usize, &Member)> {
        let mut members = self.members.iter().enumerate();
        members.find(|(_, member)| member.system == system)
    }
}

/// The DIF between a VM and the system it is attached to.
pub fn hv_dif(vm: &str) -> String {
    format!("hv.{vm}")
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
