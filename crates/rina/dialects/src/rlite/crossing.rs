//! Two attempts to connect on one N-1 flow, whose M_CONNECTs cross.
//!
//! | this IPCP | what it does with the other's M_CONNECT |
//! |---|---|
//! | is a member, and has the higher name | answers it, and ends its own attempt |
//! | is a member, and has the lower name | holds it, for a second or until its own is refused |
//! | is not a member, and has sent its own | refuses it, and sends its own again |
//!
//! The rule uses the names only, because both sides know nothing else alike: neither which of them
//! requested the N-1 flow nor which is a member. rlite has no such rule: while it waits for an
//! answer it discards an M_CONNECT, and it connects again after 10 s. The M_CONNECT is held for
//! such a peer.

use alloc::boxed::Box;
use alloc::format;

use carina_cdap::{Message, Party};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_time::{Duration, Instant};

use super::n1::{Crossed, INITIATOR_WAIT, Stage};
use super::{RULES, Rlite};
use crate::interop::names::Name;

/// How long this side waits for the answer to its M_CONNECT after the other side's M_CONNECT
/// arrived.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

impl Rlite {
    /// Resolves crossing attempts, if the M_CONNECT of `name` crosses one of this side. Returns
    /// true when this side's attempt continues and the other's M_CONNECT needs no further handling
    /// now.
    pub(super) fn resolve_crossing(
        &mut self,
        now: Instant,
        n1: N1Port,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let is_first = self.own.as_str() <= name;
        let is_member = self.member.is_some();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        match flow.stage {
            Stage::Connecting if !is_member => {
                flow.at = flow.at.map(|at| at.min(now + INITIATOR_WAIT));
                flow.crossed = Some(Crossed::Refused);
                self.refuse_crossed(now, n1, message, dt);
            }
            Stage::Connecting if is_first => {
                flow.at = flow.at.map(|at| at.min(now + ANSWER_WAIT));
                flow.crossed = Some(Crossed::Held(Box::new(message.clone())));
            }
            Stage::Starting { .. } | Stage::Joining(_) | Stage::Adding if is_first => {}
            _ => return false,
        }
        self.log.count("connects-crossed");
        true
    }

    /// Refuses the M_CONNECT of the other side. This side's own attempt continues.
    fn refuse_crossed(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let reason = format!("{} is no member of DIF {:?}", self.own, self.dif);
        let mut answer = message.answer().with_error(-1, &reason);
        answer.src = Party::from(Name::of(&self.own));
        answer.version = RULES.version;
        dt.send_management(now, Target::N1(n1), &RULES.encode(&answer));
    }

    /// Handles a crossing in which this side's M_CONNECT had no answer in time: answers the other
    /// side's M_CONNECT, or sends its own again. Returns false when no M_CONNECT crossed it.
    pub(super) fn crossing_timeout(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        if self.answer_held(now, n1, dt) {
            return true;
        }
        let flow = self.n1s.get(&n1);
        let is_refused = flow.is_some_and(|flow| matches!(flow.crossed, Some(Crossed::Refused)));
        if is_refused {
            self.connect(now, n1, dt);
        }
        is_refused
    }

    /// Answers the held M_CONNECT and ends this side's own attempt. Returns false when none is
    /// held.
    pub(super) fn answer_held(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        match flow.crossed.take() {
            Some(Crossed::Held(message)) => {
                flow.stage = Stage::Idle;
                self.on_connect(now, n1, &message, dt);
                true
            }
            other => {
                flow.crossed = other;
                false
            }
        }
    }
}
