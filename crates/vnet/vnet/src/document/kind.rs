//! How nodes are realized.

use serde::{Deserialize, Serialize};

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
