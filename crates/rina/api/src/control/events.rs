//! The node's journal: what has happened at the node since it started.

use serde::{Deserialize, Serialize};

/// Response of `GET /v1/events?since=N&wait_ms=M`: the events of the node's journal with numbers
/// above `N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The events with higher numbers than the request's `since`, oldest first.
    pub events: Vec<Event>,
    /// The value of `since` for the next request.
    pub next: u64,
    /// Number of events after `since` that the node has already discarded.
    pub lost: u64,
}

/// One event in the node's journal, such as a flow that was allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event, counted from 1 since the node started.
    pub seq: u64,
    /// When the event happened: time since the start of the node, in milliseconds.
    pub at_ms: u64,
    /// Kind of the event, such as `flow-allocated`.
    pub kind: EventKind,
    /// Name of the IPCP, VM or application, or the port-id, that the event is about.
    pub subject: String,
    /// Further details of the event, as text for people.
    #[serde(default)]
    pub detail: String,
}

/// What an event of the journal reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An IPCP was created.
    IpcpCreated,
    /// An IPCP was destroyed.
    IpcpDestroyed,
    /// The link of an IPCP came up.
    LinkUp,
    /// The link of an IPCP went down.
    LinkDown,
    /// An application registered at this node.
    AppRegistered,
    /// An application of this node unregistered or died.
    AppUnregistered,
    /// A peer registered an application name.
    PeerRegistered,
    /// A peer withdrew an application name.
    PeerUnregistered,
    /// A flow was allocated.
    FlowAllocated,
    /// A request for a flow was refused.
    FlowRefused,
    /// A flow ended.
    FlowClosed,
    /// QEMU attached to a VM's socket.
    VmAttached,
    /// QEMU disconnected from a VM's socket.
    VmDetached,
    /// Something works, but worse than it could; the detail gives the reason.
    Degraded,
    /// The node applied a configuration.
    Applied,
    /// An IPCP became a member of its DIF.
    Enrolled,
    /// An attempt of an IPCP to become a member of its DIF failed.
    EnrollFailed,
    /// An IPCP ceased to be a member of its DIF.
    LeftDif,
    /// A member of a DIF became a neighbour.
    NeighbourUp,
    /// A neighbour ceased to be a neighbour.
    NeighbourDown,
    /// Any other information for the operator, in the detail of the event.
    Notice,
    /// An event of a kind that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}
