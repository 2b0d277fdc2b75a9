//! How far the making of a network is: its phases, and what happens to it.

use serde::{Deserialize, Serialize};

/// The phases of an instantiation, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Hosts are found for nodes.
    Discovery,
    /// Namespaces, ports and the engine between them.
    Tunnels,
    /// Nodes are made, boot, and get their addresses.
    Nodes,
    /// Consoles answer.
    Consoles,
    /// Probes pass every link both ways.
    Probes,
}

/// A phase with the time it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// How long it took, ms.
    pub took_ms: f64,
}

/// Something that happened to a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its number, from 1.
    pub number: u64,
    /// When, ms after the agent took the network up.
    pub at_ms: u64,
    /// What happened.
    pub what: String,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Phase; 5] = [
        Phase::Discovery,
        Phase::Tunnels,
        Phase::Nodes,
        Phase::Consoles,
        Phase::Probes,
    ];

    /// The name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Discovery => "discovery",
            Phase::Tunnels => "tunnels",
            Phase::Nodes => "nodes",
            Phase::Consoles => "consoles",
            Phase::Probes => "probes",
        }
    }
}
