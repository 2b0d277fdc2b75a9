//! Two M_CONNECTs that cross on one N-1 flow.
//!
//! | this IPCP | the other's M_CONNECT |
//! |---|---|
//! | is a member, and has the higher name | is answered: its own attempt ends |
//! | is a member, and has the lower name | is held, for a second or until its own is refused |
//! | is not a member, and has asked | is refused, and its own sent again |
//!
//! Nothing but the names is known to both alike: neither the initiator of the N-1 flow nor which of
//! them is a member. rlite has no such rule: it discards what comes while it waits for an answer,
//! and asks again after 10 s. What is held is for that.

use alloc::boxed::Box;
use alloc::format;

use carina_cdap::{Message, Party};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_time::{Duration, Instant};

use super::n1::{Crossed, INITIATOR_WAIT, Stage};
use super::{RULES, Rlite};
use crate::interop::names::Name;

/// How long the other side has for the answer to this side's M_CONNECT, after its own has come.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

impl Rlite {
    /// Resolves the crossing of two attempts, if the M_CONNECT of `name` is one. True when this
    /// side's goes on and the other's needs nothing further now.
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

    /// Refuses the M_CONNECT of the other side; the connection that this side asks for stays.
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

    /// This side's M_CONNECT has had no answer since the other side's crossed it: answers that one
    /// instead, or asks again. False when none has crossed it.
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

    /// Answers the M_CONNECT that is held, instead of this side's own attempt. False when there is
    /// none.
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
