//! Ends of the channel to a neighbour: it is lost, it leaves, or its N-1 flow carries nothing.

use alloc::string::ToString;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner};
use carina_time::Instant;

use super::super::Management;
use super::{RELEASED_GRACE, Stage};

impl Management {
    /// Ends the management channel over `n1`.
    pub(in super::super) fn up_ended(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let is_parting = flow.detaching.is_some();
        let Some(up) = flow.up.take() else { return };
        self.channels.remove(&up.channel);
        dt.close(now, Owner::Channel(up.channel));
        // Waiting PDUs move to other N-1 flows first; they must not leave here without protection.
        if matches!(up.stage, Stage::Neighbours) && !is_parting {
            self.neighbour_down(now, n1, &up.name, up.address, reason, dt);
        }
        dt.set_detaching(n1, false);
        dt.set_sdu_protection(n1, None);
        self.release_answered(now, n1);
    }

    /// Handles a neighbour that does not answer or closed the channel. The side that requested the
    /// N-1 flow schedules another attempt.
    pub(in super::super) fn neighbour_lost(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        if self.is_joining(n1) {
            return self.attempt_failed(now, n1, reason, true, dt);
        }
        self.up_ended(now, n1, reason, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.lost_at = Some(now);
        }
        self.retry_later(now, n1);
    }

    /// Handles M_RELEASE of the neighbour, which is about to end the N-1 flow. The neighbour may
    /// die before it does so; then this side returns the flow like that of a lost neighbour.
    pub(in super::super) fn neighbour_released(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.lost_at = Some(now);
        let Some(up) = flow.up.as_mut().filter(|_| flow.detaching.is_none()) else {
            return self.up_ended(now, n1, "the neighbour left", dt);
        };
        if !matches!(up.stage, Stage::Neighbours) {
            return self.up_ended(now, n1, "the neighbour left", dt);
        }
        let (name, address) = (up.name.clone(), up.address);
        let until = now + RELEASED_GRACE;
        up.stage = Stage::Released { until };
        dt.set_detaching(n1, true);
        self.neighbour_down(now, n1, &name, address, "the neighbour left", dt);
    }

    /// Ends the channel to a neighbour that has left; the N-1 flow stays.
    pub(super) fn released_ended(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        if up.is_some_and(|up| matches!(up.stage, Stage::Released { .. })) {
            self.up_ended(now, n1, "the neighbour left", dt);
        }
    }

    /// Returns an N-1 flow from which no PDU arrives: its other end may no longer exist.
    pub(super) fn return_n1(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        self.cancel_initiator(now, n1, dt);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        (flow.unanswered_attempts, flow.lost_at, flow.retry_at) = (0, None, None);
        self.log.count("n1-silent");
        let reason = "nothing is heard from its other end".to_string();
        self.log.push(Event::DropN1 { n1, reason });
    }

    /// Returns an N-1 flow that accepted no PDU within the time limit.
    pub(in super::super) fn n1_stuck(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let reason = "the N-1 flow took no PDU although PDUs wait".to_string();
        self.log.count("n1-stuck");
        self.up_ended(now, n1, &reason, dt);
        self.log.push(Event::DropN1 { n1, reason });
    }
}
