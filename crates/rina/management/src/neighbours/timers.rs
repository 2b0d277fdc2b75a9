//! Timers of N-1 flows: repetition of messages, end and repetition of attempts.

use alloc::format;
use alloc::vec::Vec;

use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::super::Management;
use super::{Initiator, N1, Stage};

impl Management {
    /// Schedules another attempt after a pause. Each pause is longer than the one before.
    pub(super) fn retry_later(&mut self, now: Instant, n1: N1Port) {
        let pause = self
            .n1s
            .get(&n1)
            .map_or(Duration::ZERO, |flow| flow.retry_after);
        let at = now + self.random.about(pause);
        let (is_member, pause_max) = (self.member.is_some(), self.policies.enrollment.retry_max);
        let reconnects = self.policies.enrollment.reconnects;
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if flow.props.is_initiator && reconnects || !is_member {
            flow.retry_at = Some(at);
            flow.retry_after = (pause * 2).min(pause_max);
        }
    }

    /// Like `retry_later`, with the longest pause, after a refusal for a lasting reason. The other
    /// member's configuration may change while this one runs.
    pub(super) fn retry_after_longest_pause(&mut self, now: Instant, n1: N1Port) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.retry_after = self.policies.enrollment.retry_max;
        }
        self.retry_later(now, n1);
    }

    pub(in super::super) fn neighbours_due(&self) -> Option<Instant> {
        let due = |flow: &N1| {
            if let Some(detaching) = &flow.detaching {
                return detaching.due();
            }
            let initiator = flow.initiator.as_ref().map(Initiator::due);
            let responder = flow.responder.as_ref().map(|responder| responder.until);
            let up = flow.up.as_ref().and_then(|up| match &up.stage {
                Stage::Joining(joining) => Some(joining.until),
                Stage::Admitting { until, .. } => Some(*until),
                Stage::Neighbours => up.cdap.poll_timeout().map(Instant::from_nanos),
                Stage::Released { until } => Some(*until),
            });
            let abandoned = flow.lost_at.map(|at| at + ABANDONED_AFTER);
            [flow.retry_at, initiator, responder, up, abandoned]
                .into_iter()
                .flatten()
                .min()
        };
        self.n1s.values().filter_map(due).min()
    }

    pub(in super::super) fn neighbours_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        for n1 in self.attempt_order() {
            if self.detach_timeout(now, n1, dt) {
                continue;
            }
            self.initiator_timeout(now, n1, dt);
            self.up_timeout(now, n1, dt);
            let Some(flow) = self.n1s.get_mut(&n1) else {
                continue;
            };
            if flow
                .responder
                .as_ref()
                .is_some_and(|responder| responder.until <= now)
            {
                flow.responder = None;
                let is_idle = flow.up.is_none() && flow.initiator.is_none();
                self.log.count("connect-abandoned");
                // This side may have given up its own attempt for the other side's.
                if is_idle {
                    self.retry_later(now, n1);
                }
            }
            let Some(flow) = self.n1s.get_mut(&n1) else {
                continue;
            };
            let is_abandoned = flow.lost_at.is_some_and(|at| at + ABANDONED_AFTER <= now);
            if is_abandoned || flow.unanswered_attempts >= UNANSWERED_ATTEMPTS_MAX {
                self.return_n1(now, n1, dt);
            } else if flow.retry_at.is_some_and(|at| at <= now) {
                self.initiate(now, n1, dt);
            }
        }
    }

    /// The N-1 flows in the order of their attempts. A joining IPCP makes one attempt at a time:
    /// first over flows to known members, then over the flow whose last attempt is longest ago.
    fn attempt_order(&self) -> Vec<N1Port> {
        let mut n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        if self.member.is_none() {
            n1s.sort_by_key(|n1| {
                let flow = &self.n1s[n1];
                (!flow.peer_is_member, flow.last_attempt_at)
            });
        }
        n1s
    }

    fn up_timeout(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
            return;
        };
        up.cdap.handle_timeout(now.as_nanos());
        while up.cdap.poll_lost().is_some() {}
        match &up.stage {
            Stage::Joining(joining) if joining.until <= now => {
                let reason = format!("no answer to {}", joining.step());
                self.attempt_failed(now, n1, &reason, true, dt);
            }
            Stage::Admitting { until, .. } if *until <= now => {
                // The other side may have died without the N-1 DIF noticing.
                self.neighbour_lost(now, n1, "the neighbour did not finish its enrollment", dt);
            }
            Stage::Released { until } if *until <= now => self.released_ended(now, n1, dt),
            _ => {}
        }
    }
}

/// Number of consecutive unanswered attempts after which an N-1 flow is returned. Its other end may
/// have restarted without the N-1 DIF noticing.
const UNANSWERED_ATTEMPTS_MAX: u32 = 2;

/// How long the side that requested an N-1 flow has to connect again after it was lost.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
