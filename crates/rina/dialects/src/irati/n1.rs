//! An N-1 flow, and how far the IPCPs at its ends are.

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

/// How long a step of an enrollment may take.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next attempt.
pub(super) const RETRY_SOON: Duration = Duration::from_millis(500);

/// An N-1 flow.
pub(super) struct N1 {
    pub(super) props: N1Properties,
    pub(super) stage: Stage,
    /// When the present step of an enrollment has taken too long.
    pub(super) until: Instant,
    pub(super) peer: Peer,
    pub(super) attempts: u32,
    /// When this side asks (again).
    pub(super) retry_at: Option<Instant>,
    /// The failure has been reported, and no attempt since has got further.
    pub(super) failure_reported: bool,
    /// Since when it waits for an attempt through another N-1 flow.
    pub(super) deferred_since: Option<Instant>,
    /// M_CONNECT of the other side that came while this one was asking.
    pub(super) pending_connect: Option<Message>,
    /// A neighbour that asks to enroll again must show until then that it is alive as such.
    pub(super) suspect_until: Option<Instant>,
    /// Entries of the link-state database to be sent to the neighbour.
    pub(super) pending_links: BTreeSet<Key>,
    /// When anything came.
    pub(super) heard: Instant,
    pub(super) watch_at: Instant,
    pub(super) missed: u32,
    /// It has answered a question for a sign of life.
    pub(super) has_answered: bool,
    /// It is used no more: when it is given back (`None` when that has happened, and only its end
    /// is waited for), and why.
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
    /// Something did not come or cannot be read: another attempt may fare better at once.
    Broken,
    /// It was refused, and there is no use in another attempt soon. Whether the reason passes is
    /// not known.
    Refused,
    /// It was refused for a reason that time does not change.
    ForGood,
}

impl Failure {
    /// What the result of an answer means. Only one refusal is final: the others also stand for
    /// what passes, such as an IPCP that is not a member yet.
    pub(super) fn of_result(code: i32) -> Failure {
        match code {
            result::ACCESS => Failure::ForGood,
            _ => Failure::Refused,
        }
    }
}

/// How far two IPCPs are; see [`enrollee`](super::enrollee) for the order.
pub(super) enum Stage {
    Idle,
    /// Joining: M_CONNECT was sent.
    Connecting {
        auth: Option<Box<dyn Authenticator>>,
    },
    /// Joining: M_START was sent.
    Starting,
    /// Joining: objects come, then M_STOP. They count when all is over.
    Learning {
        learned: Vec<Message>,
    },
    /// Joining: something was missing and has been asked for; M_STOP is answered afterwards.
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
    /// Admitting: M_START of the operation was sent.
    Confirming {
        token: String,
    },
    /// Neighbours.
    Up,
}

impl Stage {
    /// What is waited for; none when nothing is.
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

    /// This side joins.
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

/// N-1 flows that were lost and are asked for again.
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

    /// The other side is the initiator: cancels this side's next attempt.
    pub(super) fn cancel_retry(&mut self) {
        (self.retry_at, self.deferred_since) = (None, None);
    }

    /// Asks again soon; the side that did not ask for the N-1 flow gives the other a chance first.
    pub(super) fn retry_in(&mut self, now: Instant) {
        let pause = if self.props.is_initiator {
            RETRY_SOON
        } else {
            STEP_TIMEOUT
        };
        self.retry_at = Some(now + pause);
    }

    /// A name for the other end, for messages to people.
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
