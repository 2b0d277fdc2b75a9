//! An N-1 flow, and the state of the exchange between the IPCPs at its ends.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::Message;
use carina_ipcp::api::N1Properties;
use carina_ipcp::security::Authenticator;
use carina_time::{Duration, Instant};

use super::objects::result;
use crate::interop::link_state::Key;

/// Time limit of a step of an enrollment.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next attempt.
pub(super) const RETRY_SOON: Duration = Duration::from_millis(500);

/// State of an N-1 flow in layer management.
pub(super) struct N1 {
    pub(super) props: N1Properties,
    pub(super) stage: Stage,
    /// Deadline of the present step of an enrollment.
    pub(super) until: Instant,
    pub(super) peer: Peer,
    pub(super) attempts: u32,
    /// When this side starts an attempt; `None` for never.
    pub(super) retry_at: Option<Instant>,
    /// The failure has been reported to the owner, and no attempt since has succeeded.
    pub(super) failure_reported: bool,
    /// Since when this side's attempt is deferred because of one over another N-1 flow.
    pub(super) deferred_since: Option<Instant>,
    /// M_CONNECT of the other side that arrived during this side's own attempt.
    pub(super) pending_connect: Option<Message>,
    /// A neighbour that wants to enroll again must answer a keep-alive before this time, to prove
    /// that it has not restarted.
    pub(super) suspect_until: Option<Instant>,
    /// Link-state entries to send to the neighbour.
    pub(super) pending_links: BTreeSet<Key>,
    /// Time at which the last message arrived over this N-1 flow.
    pub(super) heard: Instant,
    pub(super) watch_at: Instant,
    pub(super) missed: u32,
    /// The neighbour has answered a keep-alive.
    pub(super) has_answered: bool,
    /// The flow is given up: when it is returned (`None` once it has been returned and only its end
    /// is awaited), and why.
    pub(super) detaching: Option<(Option<Instant>, String)>,
}

/// The IPCP at the other end, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) instance: String,
    pub(super) address: u64,
}

/// How an attempt to join has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A message did not arrive or is malformed: another attempt may succeed without a wait.
    Broken,
    /// The other IPCP refused. Whether its reason is lasting is unknown: the next attempt comes
    /// after a wait.
    Refused,
    /// The other IPCP refused for a lasting reason.
    ForGood,
}

impl Failure {
    /// The failure that the result code of an answer means. Only one code means a lasting reason;
    /// the others are also used for passing ones, such as an IPCP that is not a member yet.
    pub(super) fn of_result(code: i32) -> Failure {
        match code {
            result::ACCESS => Failure::ForGood,
            _ => Failure::Refused,
        }
    }
}

/// The stage of the exchange; [`enrollee`](super::enrollee) shows their order.
pub(super) enum Stage {
    Idle,
    /// Joining: M_CONNECT was sent.
    Connecting {
        auth: Option<Box<dyn Authenticator>>,
    },
    /// Joining: M_START was sent.
    Starting,
    /// Joining: objects arrive, then M_STOP. The objects are applied when the enrollment is
    /// complete.
    Learning {
        learned: Vec<Message>,
    },
    /// Joining: missing objects were requested; M_STOP is answered afterwards.
    Reading {
        learned: Vec<Message>,
        token: String,
    },
    /// Joining: M_STOP was answered.
    Stopped {
        learned: Vec<Message>,
        token: String,
    },
    /// Admitting: the other side has been challenged.
    Challenging {
        auth: Box<dyn Authenticator>,
        connect: Box<Message>,
    },
    /// Admitting: M_CONNECT was answered.
    Admitting,
    /// Admitting: M_STOP was sent.
    Stopping {
        token: String,
    },
    /// Admitting: M_START of the operational status was sent.
    Confirming {
        token: String,
    },
    /// Both are neighbours.
    Up,
}

impl Stage {
    /// The message that this side waits for; `None` when it waits for none.
    pub(super) fn step(&self) -> Option<&'static str> {
        match self {
            Stage::Idle | Stage::Up => None,
            Stage::Connecting { .. } => Some("the answer to M_CONNECT"),
            Stage::Starting => Some("the answer to M_START of the enrollment"),
            Stage::Learning { .. } => Some("M_STOP of the enrollment"),
            Stage::Reading { .. } => Some("the answer to M_READ of the neighbours"),
            Stage::Stopped { .. } => Some("M_START of the operation"),
            Stage::Challenging { .. } => Some("the reply to the challenge"),
            Stage::Admitting => Some("M_START of the enrollment"),
            Stage::Stopping { .. } => Some("the answer to M_STOP of the enrollment"),
            Stage::Confirming { .. } => Some("the answer to M_START of the operation"),
        }
    }

    /// True when this side is joining.
    pub(super) fn is_joining(&self) -> bool {
        matches!(
            self,
            Stage::Connecting { .. }
                | Stage::Starting
                | Stage::Learning { .. }
                | Stage::Reading { .. }
                | Stage::Stopped { .. }
        )
    }

    fn state_name(&self) -> &'static str {
        match self {
            Stage::Idle => "idle",
            Stage::Up => "neighbours",
            stage if stage.is_joining() => "joining",
            _ => "admitting",
        }
    }
}

/// An N-1 flow that was lost and is requested again.
#[derive(Clone, Debug)]
pub(super) struct WantedN1 {
    pub(super) at: Instant,
    pub(super) pause: Duration,
}

impl N1 {
    pub(super) fn new(now: Instant, props: N1Properties) -> N1 {
        N1 {
            props,
            stage: Stage::Idle,
            until: Instant::ZERO,
            peer: Peer::default(),
            attempts: 0,
            retry_at: None,
            failure_reported: false,
            deferred_since: None,
            pending_connect: None,
            suspect_until: None,
            pending_links: BTreeSet::new(),
            heard: now,
            watch_at: Instant::ZERO,
            missed: 0,
            has_answered: false,
            detaching: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    pub(super) fn state_name(&self) -> &'static str {
        self.stage.state_name()
    }

    /// Cancels this side's next attempt, because the other side is the initiator.
    pub(super) fn cancel_retry(&mut self) {
        (self.retry_at, self.deferred_since) = (None, None);
    }

    /// Schedules an attempt soon. The side that did not request the N-1 flow first leaves time for
    /// the other side's attempt.
    pub(super) fn retry_in(&mut self, now: Instant) {
        let pause = if self.props.is_initiator {
            RETRY_SOON
        } else {
            STEP_TIMEOUT
        };
        self.retry_at = Some(now + pause);
    }

    /// A name of the other end, for messages to people.
    pub(super) fn display_name(&self) -> &str {
        match self.peer.name.as_str() {
            "" => &self.props.remote,
            name => name,
        }
    }

    pub(super) fn due(&self, watches: bool) -> Option<Instant> {
        if let Some((at, _)) = &self.detaching {
            return *at;
        }
        let step = self.stage.step().map(|_| self.until);
        let watch = (self.is_up() && watches).then_some(self.watch_at);
        [step, watch, self.retry_at, self.suspect_until]
            .into_iter()
            .flatten()
            .min()
    }
}
