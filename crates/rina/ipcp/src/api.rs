//! Input and output of an IPCP besides SDUs and PDUs: commands, events, and the ids in them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use carina_wire::FlowSpec;
use carina_wire::dif::Address;

pub use crate::scalar::Scalar;

/// Id of a flow that this IPCP provides to an application or to an IPCP above: a small index. The
/// IPCP reuses it after [`Event::Closed`] or [`Command::Deallocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub u32);

/// Id of an N-1 flow that this IPCP uses: a small index. The caller that binds the IPCP chooses it,
/// and may reuse it after [`Command::N1Down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct N1Port(pub u32);

/// Properties of an N-1 flow, which the caller states with [`Command::N1Up`]: its DIF, its other
/// end, and what it guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N1Properties {
    /// Name of the N-1 DIF that provides the N-1 flow.
    pub dif: String,
    /// Name of the IPCP at the other end of the N-1 flow, as the N-1 DIF gave it. It may be the
    /// name of a DIF. Empty: unknown.
    pub remote: String,
    /// Longest SDU that the N-1 flow carries, in bytes.
    pub sdu_max: usize,
    /// The N-1 flow delivers SDUs once, whole and in order, and ends if it cannot.
    pub is_reliable: bool,
    /// Others can listen to the medium or write to it, so the DIF's SDU protection is used.
    pub is_exposed: bool,
    /// This IPCP's system requested the N-1 flow; `false` if the other end requested it.
    pub is_initiator: bool,
    /// Cost of the N-1 flow for routing: a path's cost is the sum of the costs of its flows
    /// (default: 1).
    pub cost: u32,
}

/// A command that the owner of an IPCP gives to it with [`Ipcp::handle`](crate::Ipcp).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Become the first member of the DIF. Needs [`Config::dif_config`](crate::Config).
    Bootstrap,
    /// An N-1 flow is up. An IPCP that is not enrolled starts the exchange that makes the other end
    /// a neighbour. An enrolled IPCP starts it only if this side requested the flow.
    N1Up {
        /// The id by which the caller refers to the N-1 flow from now on.
        n1: N1Port,
        /// The properties of the N-1 flow.
        props: N1Properties,
    },
    /// An N-1 flow has ended.
    N1Down {
        /// The N-1 flow that ended.
        n1: N1Port,
        /// Why the N-1 flow ended, as text for operators.
        reason: String,
    },
    /// Enroll through this N-1 flow, or become a neighbour of the member at its other end. This
    /// IPCP is the initiator.
    Enroll {
        /// The N-1 flow to the member.
        n1: N1Port,
    },
    /// Detach from the neighbour at the other end of an N-1 flow, and stop using the flow. Traffic
    /// on other N-1 flows continues. The IPCP emits [`Event::DropN1`] after the neighbour has had
    /// time to receive the notice.
    GiveUpN1 {
        /// The N-1 flow to give up.
        n1: N1Port,
        /// Why the flow is given up, as text for operators.
        reason: String,
    },
    /// Replaces the list of N-1 DIFs of this member, with the N-1 flows that it wants in each. The
    /// list is only shown in the RIB.
    N1Difs {
        /// All N-1 DIFs of this member; the list replaces the earlier one.
        difs: Vec<N1Dif>,
    },
    /// Leave the DIF in order: the IPCP informs its neighbours and withdraws its directory entries.
    Leave,
    /// Tell another member to leave the DIF. The IPCP answers with [`Event::Answer`] without
    /// objects after that member has received the notice.
    Expel {
        /// Number that the IPCP repeats in [`Event::Answer`].
        id: u64,
        /// Name of the member's IPCP.
        member: String,
    },
    /// Registers an application of this system. The IPCP answers with [`Event::Registered`].
    Register {
        /// Name of the application to register.
        name: String,
    },
    /// Withdraws the registration of `name`.
    Unregister {
        /// Name of the application to unregister.
        name: String,
    },
    /// Answers [`Event::Incoming`]: accepts or refuses the flow.
    Respond {
        /// The flow that was requested.
        flow: FlowKey,
        /// `Ok`: the application accepted the flow. `Err`: why it refused.
        answer: Result<(), Reason>,
    },
    /// Ends a flow. On a reliable flow, SDUs written before are delivered first.
    Deallocate {
        /// The flow to end.
        flow: FlowKey,
        /// The reason, sent to the other side; empty for an ordinary end.
        reason: String,
    },
    /// Reads or writes objects of the RIB of this IPCP or of another member. The IPCP answers with
    /// [`Event::Answer`].
    Rib {
        /// Number that the IPCP repeats in [`Event::Answer`].
        id: u64,
        /// IPCP name or address (in digits) of the member; `None` for this one.
        member: Option<String>,
        /// The read or write to carry out.
        op: RibOp,
    },
}

/// An N-1 DIF of a member, with what its existing N-1 flows do not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct N1Dif {
    /// Name of the N-1 DIF.
    pub name: String,
    /// N-1 flows that are wanted but not up, one pair each: the name of the remote IPCP, and why
    /// the last attempt failed (empty before the first attempt).
    pub wanted: Vec<(String, String)>,
    /// Why the member does not use this N-1 DIF; `None` if it uses it.
    pub refused: Option<String>,
}

/// Why a request failed, as text for people. The text is from an application, from another member
/// (as received), or from this IPCP; no code depends on which.
#[derive(Clone, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// Returns the text of the reason.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Reason {
        Reason(words)
    }
}

impl From<&str> for Reason {
    fn from(words: &str) -> Reason {
        Reason(words.into())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        reason.0
    }
}

/// Formats the text like a string, because traces of the simulator contain reasons.
impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Reason {}

/// A read or write that [`Command::Rib`] carries out on the RIB of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RibOp {
    /// Reads the object at `path` and the objects up to `scope` levels below it.
    Read {
        /// Object name, such as `/routing/forwarding`.
        path: String,
        /// Number of levels below `path`; 0 for the object at `path` alone.
        scope: u32,
        /// Condition on the objects: `FIELD=VALUE` or `class=CLASS`, several joined by `&`. Empty:
        /// all objects. At most 1024 bytes.
        filter: String,
    },
    /// Writes a policy or its parameters. `path` is `/policies/COMPONENT`.
    Write {
        /// Object name: `/policies/COMPONENT`.
        path: String,
        /// Fields to set, as names and values.
        fields: Vec<(String, Scalar)>,
    },
}

/// An object of a member's RIB, as a read returns it and tools show it: path, class and fields.
#[derive(Clone, Debug, PartialEq)]
pub struct RibObject {
    /// Name of the object: its path in the RIB tree.
    pub path: String,
    /// Class of the object: the kind of thing that it describes.
    pub class: String,
    /// Fields of the object, as names and values, in order.
    pub fields: Vec<(String, Scalar)>,
}

/// An event that the IPCP reports to its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// This IPCP has become a member, by bootstrap or enrollment.
    Enrolled {
        /// The address that this IPCP was given.
        address: Address,
        /// The DIF's configuration in force.
        config: crate::DifConfig,
    },
    /// Enrollment through this N-1 flow failed; a later attempt may succeed.
    EnrollFailed {
        /// The N-1 flow that the event or command is about.
        n1: N1Port,
        /// Why the enrollment failed, as text for operators.
        reason: String,
    },
    /// Enrollment through this N-1 flow was refused for a lasting reason: credentials, an access
    /// rule, a name already in use, or incompatible constants of the DIF.
    EnrollRefused {
        /// The N-1 flow that the event or command is about.
        n1: N1Port,
        /// Why the enrollment was refused, as text for operators.
        reason: String,
    },
    /// This IPCP is no longer a member of the DIF.
    Left {
        /// Why this IPCP is no longer a member, as text for operators.
        reason: String,
    },
    /// The member at the other end of an N-1 flow has become a neighbour.
    NeighbourUp {
        /// Name of the neighbour's IPCP.
        name: String,
        /// Address of the neighbour.
        address: Address,
        /// The N-1 flow to the neighbour.
        n1: N1Port,
    },
    /// A member is no longer a neighbour through this N-1 flow.
    NeighbourDown {
        /// Name of the member's IPCP.
        name: String,
        /// The N-1 flow that led to the member.
        n1: N1Port,
        /// Why the neighbour is lost, as text for operators.
        reason: String,
    },
    /// Asks the binder to allocate an N-1 flow and to pass it with [`Command::N1Up`].
    NeedN1 {
        /// Name of the N-1 DIF to use.
        dif: String,
        /// Name of the IPCP or DIF to connect to.
        remote: String,
    },
    /// Asks the binder to deallocate this N-1 flow.
    DropN1 {
        /// The N-1 flow to deallocate.
        n1: N1Port,
        /// Why the flow must be deallocated, as text for operators.
        reason: String,
    },
    /// An application has become reachable through this DIF, at this member or another.
    Reachable {
        /// Name of the application that has become reachable.
        name: String,
    },
    /// An application is no longer reachable through this DIF.
    Unreachable {
        /// Name of the application that is no longer reachable.
        name: String,
    },
    /// Answers [`Command::Register`]. An error that follows a successful answer means: the name was
    /// registered before this IPCP was a member, and the DIF refuses it.
    Registered {
        /// Name of the application whose registration is answered.
        name: String,
        /// `Ok`: other members can find the application, or will once this IPCP is a member. `Err`:
        /// the name is not registered; the text names the limit that is reached and a remedy.
        result: Result<(), Reason>,
    },
    /// A remote application requests a flow to an application of this system. The owner answers
    /// with [`Command::Respond`].
    Incoming {
        /// Id of the new flow.
        flow: FlowKey,
        /// Name of the called application.
        local: String,
        /// Name of the calling application.
        remote: String,
        /// The requested QoS.
        spec: FlowSpec,
    },
    /// The result of [`Ipcp::allocate`](crate::Ipcp). After an error the key is free again.
    Allocated {
        /// Key of the flow.
        flow: FlowKey,
        /// `Ok`: the flow is allocated. `Err`: why not.
        result: Result<(), Reason>,
    },
    /// A flow has ended and its key is free. All SDUs received before are delivered first.
    Closed {
        /// The flow that ended.
        flow: FlowKey,
        /// The other side ended the flow in order, and no SDU is missing.
        is_graceful: bool,
        /// Why the flow ended, as text for people.
        reason: String,
    },
    /// The answer to [`Command::Rib`] or [`Command::Expel`].
    Answer {
        /// Id of the request.
        id: u64,
        /// The objects that were read or written, or the reason of the failure.
        result: Result<Vec<RibObject>, Reason>,
    },
    /// A problem to show to a person, such as a malformed message or a forged address. Reported
    /// when a cause first occurs, and later at growing intervals.
    Notice {
        /// Text of the notice, for people.
        text: String,
    },
}

/// Direction of a PDU that a [`Watch`] sees: received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The IPCP has received the PDU from an N-1 flow.
    In,
    /// The IPCP has sent the PDU to an N-1 flow.
    Out,
}

/// Function that is called with every PDU, without SDU protection. The data path calls it inline,
/// so it must be quick.
pub type Watch<P> = alloc::boxed::Box<dyn FnMut(Passage, N1Port, &P)>;

/// An SDU, or a piece of one, to deliver to the reader of a flow.
#[derive(Debug)]
pub struct Delivery<P> {
    /// Key of the flow that received the SDU.
    pub flow: FlowKey,
    /// The bytes of the SDU, or of the piece.
    pub sdu: P,
    /// Whether a further piece of the same SDU follows.
    pub more: bool,
}
