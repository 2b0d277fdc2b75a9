//! An N-1 flow, and the state of the exchange between the IPCPs at its ends, whichever side started
//! it.

use alloc::boxed::Box;
use alloc::string::String;

use carina_cdap::{Connection, Limits, Message};
use carina_ipcp::DifConfig;
use carina_ipcp::api::N1Properties;
use carina_time::{Duration, Instant};

use super::RULES;
use super::policies::Policies;
use super::values::EnrollmentInfo;

/// Time limit for each message of an enrollment.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(7);

/// How long the side that did not request the N-1 flow waits for the other side's M_CONNECT before
/// it sends its own.
pub(super) const INITIATOR_WAIT: Duration = Duration::from_millis(500);

/// First pause before an attempt is repeated.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(2);
/// Longest pause before an attempt is repeated.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(30);

/// State of an N-1 flow in layer management.
pub(super) struct N1 {
    pub(super) props: N1Properties,
    pub(super) cdap: Connection,
    pub(super) stage: Stage,
    /// Source address of the last PDU received; not verified.
    pub(super) src: u64,
    /// Name of the IPCP at the other end; empty until it is known.
    pub(super) peer: String,
    /// The next deadline; `None` for none.
    pub(super) at: Option<Instant>,
    /// Invoke id of the last M_CONNECT received, and when it arrived.
    pub(super) connect: Option<(i32, Instant)>,
    /// The other side's M_CONNECT that crossed this side's.
    pub(super) crossed: Option<Crossed>,
    pub(super) missed: u32,
    /// Number of consecutive attempts whose M_CONNECTs were not answered.
    pub(super) unanswered: u32,
    /// Time at which this side last sent M_CONNECT.
    pub(super) asked_at: Instant,
    /// This attempt has sent M_RELEASE, because M_CONNECT was not answered.
    pub(super) has_released: bool,
    pub(super) heard: Instant,
    /// When the IPCP at the other end last became a neighbour.
    pub(super) since: Instant,
    /// Set while it is not clear whether the IPCP that enrolls over this flow is a restarted
    /// neighbour.
    pub(super) former_life: Option<FormerLife>,
    pub(super) retry_after: Duration,
    /// The failure of attempts has been reported.
    pub(super) failure_reported: bool,
    /// Why the flow leads to no neighbour, according to the last attempt.
    pub(super) why: String,
}

/// Stage of the exchange over an N-1 flow; `neighbours` has a diagram.
pub(super) enum Stage {
    Idle,
    Connecting,
    Starting {
        address: u64,
    },
    Adding,
    Joining(Box<EnrolleeState>),
    Accepting,
    Assigning(Box<Assignment>),
    Stopping,
    Up,
    /// The flow is given up: the owner has been asked to deallocate it, or will be.
    Leaving,
}

/// What a joining IPCP has received so far.
pub(super) struct EnrolleeState {
    pub(super) address: u64,
    pub(super) config: DifConfig,
    pub(super) policies: Policies,
}

/// An address proposed for a joining IPCP, to which other members may object.
pub(super) struct Assignment {
    /// The M_START to be answered.
    pub(super) request: Message,
    pub(super) info: EnrollmentInfo,
    pub(super) proposed: u64,
    pub(super) proposals: u32,
}

/// How this side handled an M_CONNECT that crossed its own.
pub(super) enum Crossed {
    /// The M_CONNECT is held, to be answered if this side's own attempt fails.
    Held(Box<Message>),
    /// The M_CONNECT was refused, and this side sends its own again.
    Refused,
}

/// Data of a neighbour from before its new enrollment, kept until it is clear whether it restarted.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerLife {
    /// Sequence number of the neighbour's lower flow to this member.
    pub(super) seq: u64,
    /// When the neighbour enrolled again: flows allocated later belong to its present incarnation.
    pub(super) until: Instant,
}

impl N1 {
    pub(super) fn new(props: N1Properties) -> N1 {
        N1 {
            props,
            cdap: connection(),
            stage: Stage::Idle,
            src: 0,
            peer: String::new(),
            at: None,
            connect: None,
            crossed: None,
            missed: 0,
            unanswered: 0,
            asked_at: Instant::ZERO,
            has_released: false,
            heard: Instant::ZERO,
            since: Instant::ZERO,
            former_life: None,
            retry_after: RETRY_FIRST,
            failure_reported: false,
            why: String::new(),
        }
    }

    /// Name of the neighbour at the other end; `None` if there is no neighbour.
    pub(super) fn neighbour(&self) -> Option<&str> {
        matches!(self.stage, Stage::Up).then_some(self.peer.as_str())
    }

    /// Name of the stage for the RIB.
    pub(super) fn stage_name(&self) -> &'static str {
        match self.stage {
            Stage::Idle => "idle",
            Stage::Connecting => "connecting",
            Stage::Starting { .. } | Stage::Joining(_) | Stage::Adding => "joining",
            Stage::Accepting => "accepting",
            Stage::Assigning(_) | Stage::Stopping => "admitting",
            Stage::Up => "up",
            Stage::Leaving => "leaving",
        }
    }
}

/// Makes the CDAP connection of an N-1 flow. As in rlite, the first invoke id is 2, and every
/// request has an invoke id. Requests that are not answered are forgotten after 15 s.
pub(super) fn connection() -> Connection {
    let limits = Limits {
        pending_max: 16_384,
        ..Limits::default()
    };
    Connection::new(RULES, limits).numbered_from(2)
}

/// The N-1 DIF of an N-1 flow, and the name of the other end.
pub(super) fn contact(props: &N1Properties) -> (String, String) {
    (props.dif.clone(), props.remote.clone())
}
