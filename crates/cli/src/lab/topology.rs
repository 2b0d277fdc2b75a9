//! What a topology file says, checked: systems, links, DIFs, applications.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use carina_api::control::Dialect;
use carina_api::control::FaultSpec;
use carina_ipcp::DifConfig;
use serde::Serialize;

use super::address::Address;
use super::{order, parse};

/// A topology: everything in it refers to something that is there, and no DIF stands on itself.
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
    /// What the file says and this cannot do.
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
    pub(super) at: At,
}

/// What a system needs that is a virtual machine.
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
    pub(super) at: At,
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
    /// What all members agree on. In other dialects than the native one what is as in
    /// [`DifConfig::default`] is left to the dialect.
    pub config: DifConfig,
    /// `KIND:FILE` of authentication.
    pub auth: Option<String>,
    /// Its members: the first makes it, each other one finds one before it when it joins.
    pub members: Vec<Member>,
    #[serde(skip)]
    pub(super) at: At,
    /// Where the file says what: paths in the configuration, and `auth`.
    #[serde(skip)]
    pub(super) places: Vec<(Vec<String>, At)>,
}

/// A member of a normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// Its system.
    pub system: String,
    /// The DIFs below.
    pub over: Vec<String>,
    /// The systems of members that it meets in a DIF below in which nobody else is: they become
    /// its neighbours without doubt.
    pub beside: Vec<String>,
    /// The system of the member that it asks for admission, where asking for the DIF's name finds
    /// nobody: over UDP names have addresses, and the DIF's has none.
    pub via: Option<String>,
    #[serde(skip)]
    pub(super) at: At,
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
pub struct At {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// What is wrong with a file, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}line {}, column {}: {what}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default(), at.line, at.column)]
pub struct Wrong {
    /// The file, when there is one.
    pub file: Option<String>,
    /// The place.
    pub at: At,
    /// The words for people.
    pub what: String,
}

/// Why there is no topology.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
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
    Wrong(#[from] Wrong),
}

impl Topology {
    /// Reads a topology from text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        order::arrange(parse::parse(text)?)
    }

    /// Reads a topology from a file.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, TopologyError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| TopologyError::Read {
            file: file.clone(),
            source,
        })?;
        Self::parse(&text).map_err(|wrong| {
            let file = Some(file);
            TopologyError::Wrong(Wrong { file, ..wrong })
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

    /// Where the file says what is at a path; the first line of the DIF where none does.
    pub(super) fn place_of(&self, path: &[&str]) -> At {
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

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
