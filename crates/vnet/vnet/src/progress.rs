//! Progress of the creation of a network: its phases, and the events of its log.

use serde::{Deserialize, Serialize};

/// The phases of creating a network, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Choose hosts for nodes.
    Discovery,
    /// Create namespaces and ports, and start the engine that connects the ports.
    Tunnels,
    /// Create nodes, boot them, and give them their addresses.
    Nodes,
    /// Wait until every console answers.
    Consoles,
    /// Wait until a probe has passed every link in both directions.
    Probes,
}

/// A phase with the time it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTime {
    /// The phase that has ended.
    pub phase: Phase,
    /// Duration of the phase, in ms.
    pub took_ms: f64,
}

/// An entry in the event log of a network, such as the end of a phase or a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Position in the log, counted from 1.
    pub number: u64,
    /// Time of the event, in ms since the log began: in an agent when it created the network or
    /// took it over, in a VNO when its process learned of the network, in a PIP when its process
    /// began.
    pub at_ms: u64,
    /// Text for people that describes the event.
    pub what: String,
}

impl Phase {
    /// All phases, in their order.
    pub const ALL: [Phase; 5] = [
        Phase::Discovery,
        Phase::Tunnels,
        Phase::Nodes,
        Phase::Consoles,
        Phase::Probes,
    ];

    /// The name of the phase, as in JSON.
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
