//! Queries and commands that `control.sock` passes to the core.

use carina_api::control::{Dialect, DifCreate, DifExtend, IpcpCreate, VmCreate};
use carina_api::{DifName, ErrorBody, LocalName, PortId};
use carina_frame_engine::tap::Tap;
use carina_ipcp::api::RibOp;
use carina_vmpi::ll::VmpiImpl;
use serde_json::Value;
use tokio::sync::oneshot;

/// Selects the policies to list.
#[derive(Debug)]
pub(crate) enum PoliciesOf {
    /// Policies that DIFs of this dialect can use.
    Dialect(Dialect),
    /// Policies of the DIF with this name.
    Dif(String),
}

/// A query to the RIB of a member.
#[derive(Debug)]
pub(crate) struct RibQuestion {
    /// Name of the DIF; `None` if this system is a member of only one normal DIF.
    pub dif: Option<String>,
    /// Name or address of the member to query; `None` for this system's own.
    pub member: Option<String>,
    /// The read or write to carry out.
    pub op: RibOp,
}

/// A request of `control.sock`.
#[derive(Debug)]
pub(crate) enum Request {
    /// Show the node itself.
    Node,
    /// List all IPCPs.
    Ipcps,
    /// Create an IPCP.
    CreateIpcp(IpcpCreate),
    /// Destroy the IPCP with this name.
    DestroyIpcp(String),
    /// List all registrations.
    Apps,
    /// List all flows.
    Flows,
    /// End a flow.
    DeallocateFlow(PortId),
    /// List all DIFs.
    Difs,
    /// Create an IPCP that creates or joins a normal DIF.
    CreateDif(DifCreate),
    /// Add an N-1 DIF to a member of the normal DIF with this name.
    ExtendDif(String, DifExtend),
    /// Remove an N-1 DIF (the second name) from a member of the normal DIF with the first name. The
    /// third name selects one of several members.
    RetractDif(String, String, Option<String>),
    /// Remove a member of the normal DIF with the first name. The second name selects one of
    /// several members.
    LeaveDif(String, Option<String>),
    /// Make a member (the second name) leave the normal DIF with the first name.
    Expel(String, String),
    /// Read or write objects of a RIB.
    Rib(RibQuestion),
    /// List the available policies and, for a DIF, those in force.
    Policies(PoliciesOf),
    /// List all VM ports.
    Vms,
    /// Show the VM port with this name.
    Vm(String),
    /// Create a VM port.
    CreateVm(VmCreate),
    /// Destroy the VM port with this name.
    DestroyVm(String),
    /// Start a capture at the IPCP or DIF with this name.
    Capture(String, Tap),
    /// List the events after the one with this number.
    Events(u64),
    /// Make the node match this configuration.
    Apply(String),
}

/// The answer as JSON, or an error.
pub(crate) type Answer = Result<Value, ErrorBody>;

/// A query with the destination of its answer.
pub(crate) struct Query {
    /// What the requester asks of the core.
    pub request: Request,
    /// Channel for the answer; the receiver may no longer exist.
    pub reply: oneshot::Sender<Answer>,
}

/// Requests of other threads to the core.
#[expect(
    clippy::large_enum_variant,
    reason = "a request is moved twice in its life"
)]
pub(crate) enum ControlRequest {
    /// A query from `control.sock`.
    Query(Query),
    /// A request for an hv IPCP over an existing VMPI device.
    Attach(Attachment),
}

/// A VMPI device that is already open, for a new hv IPCP.
pub(crate) struct Attachment {
    /// Name of the hv IPCP to create.
    pub name: LocalName,
    /// DIF of the IPCP.
    pub dif: DifName,
    /// The device, which determines the side: host or guest.
    pub device: Box<dyn VmpiImpl + Send>,
    /// Channel for the answer.
    pub reply: std::sync::mpsc::Sender<Result<(), ErrorBody>>,
}
