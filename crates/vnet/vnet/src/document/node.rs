//! Requirements of nodes: as a document has them, and with all defaults filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::start::{NodeFile, Start};
use super::{Document, OWN_IMAGE, Position, Span};

/// Requirements of a node. A field that is absent takes the value of the document's `[defaults]`,
/// then the built-in default of [`Document::resolved`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Whether the node is a virtual machine, a namespace or a bridge; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Name of the disk image or guest that the node boots; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Number of processors that the node asks for; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory that the node asks for, MiB; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How the virtual machine starts: it boots, is cloned from a template, or comes from a pool.
    /// `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Locations where the node may be placed; anywhere if the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub location: Vec<String>,
    /// Physical network interfaces to attach to the node; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics: Option<Nics>,
    /// Nodes that must not share a host with this one. One node of a pair needs to name the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart_from: Vec<String>,
    /// Labels that the host must have, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For a namespace: the root of its file system, `host` or a directory ([`Start`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Environment variables of the node's commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Files that the node gets before its commands run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NodeFile>,
    /// Shell commands that run when the node has started and its links work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<String>,
    /// Longest time for each of these commands; `None` for 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_deadline: Option<Span>,
    /// Where the node is in pictures of the network; `None`: the picture chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// How a virtual machine is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// Boot the machine.
    Cold,
    /// Clone the machine from a template that has already booted.
    Clone,
    /// Take a machine from a pool of paused machines that were made in advance.
    Pool,
}

/// Physical network interfaces of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// Number of interfaces.
    pub count: u32,
    /// Device by which the node has its interfaces.
    #[serde(default, skip_serializing_if = "Via::is_forwarder")]
    pub via: Via,
}

/// What connects a physical interface with the node to which it is attached. Hosts carry out
/// `Forwarder` only, and refuse the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Carina's engine.
    #[default]
    Forwarder,
    /// A bridge of the host's kernel.
    Bridge,
    /// A tap of the host's kernel.
    Tap,
    /// A vhost-user port.
    VhostUser,
    /// The shared-memory device of the hypervisor shim.
    Hv,
}

/// Requirements of a node with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedNode {
    /// Whether the node is a virtual machine, a namespace or a bridge.
    pub kind: Kind,
    /// Name of the disk image or guest that the node boots.
    pub image: String,
    /// Number of processors that the node gets.
    pub cpus: u32,
    /// Memory that the node gets, MiB.
    pub memory: u64,
    /// How the virtual machine starts: it boots, is cloned from a template, or comes from a pool.
    pub boot: Boot,
    /// Locations where the node may be placed; anywhere if the list is empty.
    pub location: Vec<String>,
    /// Physical interfaces, and what connects them with the node.
    pub nics: Nics,
    /// Labels that the host must have, with their values.
    pub labels: BTreeMap<String, String>,
    /// Environment, files, commands and file system that the node gets at its start.
    pub start: Start,
}

impl Document {
    /// The requirements of a node with defaults filled in; `None` if there is no such node. The
    /// built-in defaults are a cloned VM of image `carina` with one processor and 128 MiB.
    #[must_use]
    pub fn resolved(&self, name: &str) -> Option<ResolvedNode> {
        let (node, defaults) = (self.node.get(name)?, &self.defaults);
        let nics = Nics {
            count: 0,
            via: Via::Forwarder,
        };
        let mut labels = defaults.labels.clone();
        labels.extend(node.labels.clone());
        let location = [&node.location, &defaults.location];
        let location = location.into_iter().find(|list| !list.is_empty());
        let kind = node.kind.or(defaults.kind).unwrap_or(Kind::Vm);
        let image = node.image.as_ref().or(defaults.image.as_ref());
        Some(ResolvedNode {
            kind,
            image: image.map_or_else(|| OWN_IMAGE.to_owned(), String::clone),
            cpus: node.cpus.or(defaults.cpus).unwrap_or(1),
            memory: node.memory.or(defaults.memory).unwrap_or(128),
            boot: node.boot.or(defaults.boot).unwrap_or(match kind {
                Kind::Vm => Boot::Clone,
                Kind::Namespace | Kind::Bridge => Boot::Cold,
            }),
            location: location.cloned().unwrap_or_default(),
            nics: node.nics.or(defaults.nics).unwrap_or(nics),
            labels,
            start: start_of(node, defaults, kind),
        })
    }
}

/// What a node is given at its start. A bridge takes nothing from the defaults.
fn start_of(node: &Node, defaults: &Node, kind: Kind) -> Start {
    let nothing = Node::default();
    let defaults = if kind == Kind::Bridge {
        &nothing
    } else {
        defaults
    };
    let filesystem = defaults.filesystem.as_ref();
    let filesystem = filesystem.filter(|_| kind == Kind::Namespace);
    let mut environment = defaults.environment.clone();
    environment.extend(node.environment.clone());
    let lists = [&node.files, &defaults.files];
    let files = lists.into_iter().find(|list| !list.is_empty());
    let lists = [&node.exec, &defaults.exec];
    let exec = lists.into_iter().find(|list| !list.is_empty());
    Start {
        filesystem: node.filesystem.as_ref().or(filesystem).cloned(),
        environment,
        files: files.cloned().unwrap_or_default(),
        exec: exec.cloned().unwrap_or_default(),
        exec_deadline: node.exec_deadline.or(defaults.exec_deadline),
    }
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Boot {
    /// The keyword of this start method in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Clone => "clone",
            Self::Pool => "pool",
        }
    }
}

impl Via {
    fn is_forwarder(&self) -> bool {
        *self == Self::Forwarder
    }
}
