//! Questions and orders that `control.sock` passes on to the core.

use carina_api::control::{Dialect, DifCreate, DifExtend, IpcpCreate, VmCreate};
use carina_api::{DifName, ErrorBody, LocalName, PortId};
use carina_engine::tap::Tap;
use carina_ipcp::api::RibOp;
use carina_vmpi::ll::VmpiImpl;
use serde_json::Value;
use tokio::sync::oneshot;

/// Whose policies are asked for.
#[derive(Debug)]
pub enum PoliciesOf {
    /// Of DIFs of this dialect.
    Dialect(Dialect),
    /// Of the DIF of that name.
    Dif(String),
}

/// A question to a RIB.
#[derive(Debug)]
pub struct RibQuestion {
    /// The DIF; none for the only one.
    pub dif: Option<String>,
    /// The member; none for this system's.
    pub member: Option<String>,
    /// What is asked.
    pub op: RibOp,
}

/// One request of `control.sock`.
#[derive(Debug)]
pub enum Ask {
    /// The node itself.
    Node,
    /// All IPCPs.
    Ipcps,
    /// Make an IPCP.
    CreateIpcp(IpcpCreate),
    /// Destroy the IPCP of that name.
    DestroyIpcp(String),
    /// All registrations.
    Apps,
    /// All flows.
    Flows,
    /// End a flow.
    DeallocateFlow(PortId),
    /// All DIFs.
    Difs,
    /// Make an IPCP that creates or joins a normal DIF.
    CreateDif(DifCreate),
    /// Let a member of the normal DIF of that name use another N-1 DIF.
    ExtendDif(String, DifExtend),
    /// Take an N-1 DIF (the second name) away from a member of the normal DIF of the first name.
    RetractDif(String, String, Option<String>),
    /// A member, of this name where there are several, leaves the normal DIF of the first name.
    LeaveDif(String, Option<String>),
    /// Make a member of the normal DIF of that name leave it.
    Expel(String, String),
    /// Read or write a RIB.
    Rib(RibQuestion),
    /// The policies that there are and, for a DIF, those in force.
    Policies(PoliciesOf),
    /// All VM ports.
    Vms,
    /// The VM port of that name.
    Vm(String),
    /// Make a VM port.
    CreateVm(VmCreate),
    /// Destroy the VM port of that name.
    DestroyVm(String),
    /// Begin a capture at the IPCP or DIF of that name.
    Capture(String, Tap),
    /// Events after that number.
    Events(u64),
    /// Make the node what this configuration says.
    Apply(String),
}

/// The JSON that answers, or a refusal.
pub type Answer = Result<Value, ErrorBody>;

/// A question and where its answer goes.
pub struct Query {
    /// The question.
    pub ask: Ask,
    /// Where the answer goes; the asker may be gone.
    pub reply: oneshot::Sender<Answer>,
}

/// What other threads ask of the core.
#[expect(
    clippy::large_enum_variant,
    reason = "a request is moved twice in its life"
)]
pub enum ControlRequest {
    /// A question from `control.sock`.
    Query(Query),
    /// A VMPI device for a new hv IPCP.
    Attach(Attachment),
}

/// A VMPI device that exists already, for a new hv IPCP.
pub struct Attachment {
    /// Name of the IPCP.
    pub name: LocalName,
    /// Its DIF.
    pub dif: DifName,
    /// The device; it knows its side.
    pub device: Box<dyn VmpiImpl + Send>,
    /// Where the answer goes.
    pub reply: std::sync::mpsc::Sender<Result<(), ErrorBody>>,
}
