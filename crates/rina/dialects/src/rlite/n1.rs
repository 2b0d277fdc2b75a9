//! An N-1 flow, and how far the IPCPs at its ends are: the state of attempts of either side.

use alloc::boxed::Box;
use alloc::string::String;

use carina_cdap::{Connection, Limits, Message};
use carina_ipcp::DifConfig;
use carina_ipcp::api::N1Properties;
use carina_time::{Duration, Instant};

use super::RULES;
use super::policies::Policies;
use super::values::EnrollmentInfo;

/// How long each message of an enrollment is waited for.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(7);

/// How long a side that did not ask for the N-1 flow waits for the other side's M_CONNECT before
/// it sends its own.
pub(super) const INITIATOR_WAIT: Duration = Duration::from_millis(500);

/// Pauses before an attempt is repeated.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(2);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(30);

/// An N-1 flow.
pub(super) struct N1 {
    pub(super) props: N1Properties,
    pub(super) cdap: Connection,
    pub(super) stage: Stage,
    /// Source address of the last PDU that came; not verified.
    pub(super) src: u64,
    /// Name of the IPCP at the other end, once it has said so.
    pub(super) peer: String,
    /// When the next thing happens by itself.
    pub(super) at: Option<Instant>,
    /// The M_CONNECT that came last: its invoke id, and when it came.
    pub(super) connect: Option<(i32, Instant)>,
    /// An M_CONNECT that has crossed this side's.
    pub(super) crossed: Option<Crossed>,
    pub(super) missed: u32,
    /// Attempts in turn to whose M_CONNECTs nothing came.
    pub(super) unanswered: u32,
    /// When M_CONNECT was sent last.
    pub(super) asked_at: Instant,
    /// M_RELEASE was sent in this attempt, because M_CONNECT had no answer.
    pub(super) has_released: bool,
    pub(super) heard: Instant,
    /// When the IPCP at the other end became a neighbour last.
    pub(super) since: Instant,
    /// The IPCP that enrolls over it may be another life of a neighbour.
    pub(super) former_life: Option<FormerLife>,
    pub(super) retry_after: Duration,
    /// The failure of attempts has been reported.
    pub(super) failure_reported: bool,
    /// Why it leads to no neighbour, as far as the last attempt has shown.
    pub(super) why: String,
}

/// How far an N-1 flow is.
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
    /// The driver has been asked to return it, or will be.
    Leaving,
}

/// What an enrollee has received so far.
pub(super) struct EnrolleeState {
    pub(super) address: u64,
    pub(super) config: DifConfig,
    pub(super) policies: Policies,
}

/// An address that others may object to, for an IPCP that enrolls.
pub(super) struct Assignment {
    /// The M_START to answer.
    pub(super) request: Message,
    pub(super) info: EnrollmentInfo,
    pub(super) proposed: u64,
    pub(super) proposals: u32,
}

/// What an IPCP has done with an M_CONNECT that crossed its own.
pub(super) enum Crossed {
    /// It is answered when this side's own fails.
    Held(Box<Message>),
    /// This side's own is sent again.
    Refused,
}

/// What was known of a neighbour before it enrolled, for as long as its life is unclear.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerLife {
    /// Sequence number of its lower flow to this member.
    pub(super) seq: u64,
    /// When it enrolled: later flows are not of that life.
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

    /// Name of the neighbour behind it.
    pub(super) fn neighbour(&self) -> Option<&str> {
        matches!(self.stage, Stage::Up).then_some(self.peer.as_str())
    }

    /// The words for its stage.
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

/// rlite's first invoke id of a connection is 2, and every request has one, also those that have
/// no answer: they are forgotten after 15 s.
pub(super) fn connection() -> Connection {
    let limits = Limits {
        pending_max: 16_384,
        ..Limits::default()
    };
    Connection::new(RULES, limits).numbered_from(2)
}

/// The N-1 DIF of an N-1 flow, and the name that it leads to.
pub(super) fn contact(props: &N1Properties) -> (String, String) {
    (props.dif.clone(), props.remote.clone())
}
