//! What goes into an IPCP and what comes out of it, besides SDUs and PDUs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use carina_wire::FlowSpec;
use carina_wire::dif::Address;

pub use crate::scalar::Scalar;

/// A flow that this IPCP gives to an application or to an IPCP above. A small index, reused after
/// [`Event::Closed`] or [`Command::Deallocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub u32);

/// An N-1 flow that this IPCP uses. A small index chosen by the caller that binds the IPCP; may be
/// reused after [`Command::N1Down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct N1Port(pub u32);

/// What is known of an N-1 flow when it comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N1Properties {
    /// The N-1 DIF.
    pub dif: String,
    /// The name at the other end, as the N-1 DIF gave it; may be a DIF's name or unknown (empty).
    pub remote: String,
    /// Longest SDU that it carries, in bytes.
    pub sdu_max: usize,
    /// SDUs arrive once, whole and in order, or the flow ends.
    pub is_reliable: bool,
    /// Others can listen or write: SDU protection is wanted.
    pub is_exposed: bool,
    /// This side asked for the flow.
    pub is_initiator: bool,
    /// Cost for routing; 1 unless configured.
    pub cost: u32,
}

/// A command to an IPCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Become the first member of the DIF. Needs [`Config::dif_config`](crate::Config).
    Bootstrap,
    /// An N-1 flow is there. When the IPCP is enrolled and this side asked, or when it is not
    /// enrolled, it starts the exchange that makes the other end a neighbour.
    N1Up {
        /// How it is called from here on.
        n1: N1Port,
        /// What is known of it.
        props: N1Properties,
    },
    /// An N-1 flow has ended.
    N1Down {
        /// Which.
        n1: N1Port,
        /// Why.
        reason: String,
    },
    /// Enroll, or become a neighbour, through this N-1 flow: this IPCP is the initiator.
    Enroll {
        /// The flow to the member.
        n1: N1Port,
    },
    /// Detach from the neighbour at the other end of an N-1 flow, and use the flow no more. What
    /// goes through other N-1 flows goes on. [`Event::DropN1`] comes when the other end has had
    /// time to hear of it.
    GiveUpN1 {
        /// The flow.
        n1: N1Port,
        /// Why, in words for people.
        reason: String,
    },
    /// The N-1 DIFs that this member has from here on, and what is wanted in each: for readers of
    /// the RIB.
    N1Difs {
        /// All of them.
        difs: Vec<N1Dif>,
    },
    /// Leave the DIF in order: neighbours and directory are informed.
    Leave,
    /// Tell this member (its IPCP name) to leave the DIF. Answer: [`Event::Answer`] without
    /// objects, once it has heard of it.
    Expel {
        /// Comes back with the answer.
        id: u64,
        /// Name of the IPCP.
        member: String,
    },
    /// An application of this system can be reached. Answer: [`Event::Registered`].
    Register {
        /// Its name.
        name: String,
    },
    /// Withdraws the registration of `name`.
    Unregister {
        /// Its name.
        name: String,
    },
    /// Answers [`Event::Incoming`].
    Respond {
        /// The flow.
        flow: FlowKey,
        /// The application took it, or why not.
        answer: Result<(), Reason>,
    },
    /// Ends a flow; what was written is delivered first when the flow is reliable.
    Deallocate {
        /// The flow.
        flow: FlowKey,
        /// Why, for the other side; empty for an ordinary end.
        reason: String,
    },
    /// A management operation on this IPCP's RIB or another member's. Answer: [`Event::Answer`].
    Rib {
        /// Comes back with the answer.
        id: u64,
        /// IPCP name or address (in digits) of the member; `None` for this one.
        member: Option<String>,
        /// What to do.
        op: RibOp,
    },
}

/// An N-1 DIF of a member, with what the N-1 flows that are there do not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct N1Dif {
    /// Its name.
    pub name: String,
    /// N-1 flows that are wanted and not there: the member asked, and why the last attempt failed
    /// (empty when there was none).
    pub wanted: Vec<(String, String)>,
    /// Why the member leaves it alone, if it does.
    pub refused: Option<String>,
}

/// Why something did not come about, in words for people. They are those of an application, of
/// another member as they came over the wire, or of this IPCP: nothing acts on the difference.
#[derive(Clone, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// The words.
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

/// As the words: reasons stand in the trace of a simulation.
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

/// An operation on a RIB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RibOp {
    /// Reads the object at `path` and what is below it to a depth of `scope` (0: only it).
    Read {
        /// Object name, such as `/routing/forwarding`.
        path: String,
        /// Depth.
        scope: u32,
        /// Only objects that it lets pass: `FIELD=VALUE` or `class=CLASS`, several joined by `&`;
        /// empty for all. At most 1024 bytes.
        filter: String,
    },
    /// Writes a policy or a parameter: `path` is `/policies/COMPONENT`.
    Write {
        /// Object name.
        path: String,
        /// Fields to set.
        fields: Vec<(String, Scalar)>,
    },
}

/// An object as the RIB shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RibObject {
    /// Its name: a path.
    pub path: String,
    /// Its class.
    pub class: String,
    /// Its fields in order.
    pub fields: Vec<(String, Scalar)>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// This IPCP is a member now (bootstrap or enrollment).
    Enrolled {
        /// Its address.
        address: Address,
        /// The DIF's configuration as it is in force.
        config: crate::DifConfig,
    },
    /// Enrollment through this N-1 flow failed.
    EnrollFailed {
        /// The N-1 flow.
        n1: N1Port,
        /// Why, in words for people.
        reason: String,
    },
    /// Enrollment through this N-1 flow was refused for a reason that time does not change:
    /// credentials, an access rule, a name that is taken, constants of the DIF that do not fit.
    EnrollRefused {
        /// The N-1 flow.
        n1: N1Port,
        /// Why, in words for people.
        reason: String,
    },
    /// This IPCP is no member any more.
    Left {
        /// Why.
        reason: String,
    },
    /// A member at the other end of an N-1 flow is a neighbour.
    NeighbourUp {
        /// Name of the IPCP.
        name: String,
        /// Its address.
        address: Address,
        /// Through which flow.
        n1: N1Port,
    },
    /// It is not any more (through this N-1 flow).
    NeighbourDown {
        /// Name of the IPCP.
        name: String,
        /// Through which flow.
        n1: N1Port,
        /// Why.
        reason: String,
    },
    /// The binder should allocate an N-1 flow and say [`Command::N1Up`].
    NeedN1 {
        /// In which N-1 DIF.
        dif: String,
        /// To whom.
        remote: String,
    },
    /// The binder should deallocate this N-1 flow.
    DropN1 {
        /// Which.
        n1: N1Port,
        /// Why.
        reason: String,
    },
    /// An application can be reached through this DIF (here or at any member).
    Reachable {
        /// Its name.
        name: String,
    },
    /// It cannot any more.
    Unreachable {
        /// Its name.
        name: String,
    },
    /// The answer to [`Command::Register`]. An error after an answer without one: the name was
    /// registered before this IPCP was a member, and the DIF does not take it.
    Registered {
        /// Its name.
        name: String,
        /// Others can find it, or will when this IPCP is a member. An error names the limit that is
        /// reached and what would help; the name is not registered then.
        result: Result<(), Reason>,
    },
    /// A remote application asks for a flow to an application of this system.
    Incoming {
        /// The flow.
        flow: FlowKey,
        /// Called application.
        local: String,
        /// Calling application.
        remote: String,
        /// What is asked of it.
        spec: FlowSpec,
    },
    /// The result of [`Ipcp::allocate`](crate::Ipcp); on an error the key is free again.
    Allocated {
        /// The flow.
        flow: FlowKey,
        /// It is there, or why not.
        result: Result<(), Reason>,
    },
    /// A flow has ended and its key is free. Everything that came before is delivered first.
    Closed {
        /// The flow.
        flow: FlowKey,
        /// The other side ended it in order and nothing is missing.
        is_graceful: bool,
        /// Why.
        reason: String,
    },
    /// The answer to [`Command::Rib`] or [`Command::Expel`].
    Answer {
        /// The id of the order.
        id: u64,
        /// What was read or written, or what went wrong.
        result: Result<Vec<RibObject>, Reason>,
    },
    /// Something a person should know, said once per cause: a malformed message, a forged address.
    Notice {
        /// The words.
        text: String,
    },
}

/// Which way a PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// From an N-1 flow.
    In,
    /// To an N-1 flow.
    Out,
}

/// Sees every PDU as it passes, without its protection. Called in the middle of the data
/// path: it must be quick.
pub type Watch<P> = alloc::boxed::Box<dyn FnMut(Passage, N1Port, &P)>;

/// An SDU, or a piece of one, for the reader of a flow.
#[derive(Debug)]
pub struct Delivery<P> {
    /// The flow.
    pub flow: FlowKey,
    /// The bytes.
    pub sdu: P,
    /// A further piece of the same SDU follows.
    pub more: bool,
}
