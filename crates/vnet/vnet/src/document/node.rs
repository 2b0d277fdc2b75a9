//! Requirements of nodes: as a document has them, and with all defaults filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Document, OWN_IMAGE};

/// Requirements of a node. A field that is absent takes the value of the document's `[defaults]`,
/// then the built-in default of [`Document::resolved`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Whether the node is a virtual machine, a namespace or a bridge.
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
}

/// How a node is realized on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A virtual machine.
    Vm,
    /// A network namespace of the host.
    Namespace,
    /// A bridge of Linux in a network namespace of its own: its links are ports of one Ethernet
    /// segment.
    Bridge,
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
    /// What connects the interfaces with the node.
    #[serde(default, skip_serializing_if = "Via::is_forwarder")]
    pub via: Via,
}

/// What connects a physical interface with the node to which it is attached.
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
        })
    }
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Kind {
    /// The keyword of this kind in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Namespace => "namespace",
            Self::Bridge => "bridge",
        }
    }

    /// Whether the node has a network namespace of the host: a namespace or a bridge.
    #[must_use]
    pub const fn has_namespace(self) -> bool {
        match self {
            Self::Vm => false,
            Self::Namespace | Self::Bridge => true,
        }
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
