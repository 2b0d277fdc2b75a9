//! N-1 flows with their CDAP connections, keep-alive, and neighbours.
//!
//! The stages of an N-1 flow. The transitions are in `enrollee` (initiator) and `enroller`
//! (responder):
//!
//! ```text
//!                +------+   this side connects    +------------+
//!            +-> | IDLE | ----------------------> | CONNECTING |
//!            |   +------+   M_CONNECT             +------------+
//!            |      | M_CONNECT received                | M_CONNECT_R
//!            |      v                                   v
//!            |   +-----------+    lower flow only  +----------+     +--------+
//!            |   | ACCEPTING | ----------+      +- | STARTING | or  | ADDING |
//!            |   +-----------+           |      |  +----------+     +--------+
//!            |      | M_START            |      | M_START_R             | M_START_R
//!            |      v                    |      v                       |
//!            |   +-----------+           |   +---------+                |
//!            |   | ASSIGNING |           |   | JOINING |                |
//!            |   +-----------+           |   +---------+                |
//!            |      | M_START_R, M_STOP  |      | M_STOP, M_STOP_R      |
//!            |      v                    v      v                       |
//!            |   +----------+ M_STOP_R +----+                           |
//!   time is  |   | STOPPING | -------> | UP | <-------------------------+
//!   up, lost +-- +----------+          +----+   keep-alive each way
//!            |                           |
//!            +---------------------------+ M_RELEASE, three keep-alives unanswered
//! ```
//!
//! In any stage of the responder, M_CONNECT starts the exchange again.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port, N1Properties};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::Rlite;
use super::n1::{INITIATOR_WAIT, N1, RETRY_FIRST, RETRY_MAX, Stage, connection, contact};
use super::objects::{class, name};

/// Number of keep-alives that may stay unanswered.
const MISSED_MAX: u32 = 3;

impl Rlite {
    pub(super) fn n1_up(
        &mut self,
        now: Instant,
        n1: N1Port,
        props: N1Properties,
        dt: &mut dyn DataTransfer,
    ) {
        if self.n1s.contains_key(&n1) {
            self.n1_down(now, n1, "another N-1 flow has its number", dt);
        }
        if self.member.is_none() {
            dt.set_address(Address(self.first_address()));
        }
        dt.add_n1(n1, &props);
        self.wanted_n1s.remove(&contact(&props));
        let is_initiator = props.is_initiator;
        self.n1s.insert(n1, N1::new(props));
        if is_initiator {
            self.connect(now, n1, dt);
        } else if self.member.is_none() && !self.has_left {
            self.wait(n1, now + INITIATOR_WAIT);
        }
    }

    pub(super) fn n1_down(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let reason = format!("the N-1 flow ended: {reason}");
        let is_attempt = !matches!(flow.stage, Stage::Idle | Stage::Up | Stage::Leaving);
        let is_wanted = !matches!(flow.stage, Stage::Leaving);
        if is_attempt && self.member.is_none() {
            let reason = reason.clone();
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        let was_neighbour = self.neighbour_down(now, n1, &reason, dt);
        if let Some(gone) = self.n1s.remove(&n1)
            && is_wanted
        {
            self.want_n1(now, &gone.props);
        }
        dt.remove_n1(now, n1);
        if was_neighbour {
            self.announce_self(now, dt);
        }
    }

    /// Handles [`Command::Enroll`](carina_ipcp::Command::Enroll) through this N-1 flow.
    pub(super) fn enroll_through(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        self.has_left = false;
        let Some(flow) = self.n1s.get_mut(&n1) else {
            let reason = "there is no such N-1 flow".to_string();
            self.log.push(Event::EnrollFailed { n1, reason });
            return;
        };
        flow.failure_reported = false;
        flow.retry_after = RETRY_FIRST;
        // An attempt that is under way continues.
        if matches!(flow.stage, Stage::Idle) {
            self.connect(now, n1, dt);
        }
    }

    /// Starts attempts over the idle N-1 flows that this side requested, after it has become a
    /// member.
    pub(super) fn connect_idle_flows(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let idle = |flow: &N1| matches!(flow.stage, Stage::Idle) && flow.props.is_initiator;
        let waiting = self.n1s.iter().filter(|(_, flow)| idle(flow));
        let waiting: Vec<N1Port> = waiting.map(|(n1, _)| *n1).collect();
        for n1 in waiting {
            self.connect(now, n1, dt);
        }
    }

    pub(super) fn wait(&mut self, n1: N1Port, at: Instant) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.at = Some(at);
        }
    }

    /// Ends a failed attempt, or the enrollment that followed it.
    pub(super) fn attempt_failed(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.failed(now, n1, reason, false, dt);
    }

    /// Like `attempt_failed`, for a lasting reason. This side always determines the reason itself,
    /// because a refusal has the same result code for all reasons.
    pub(super) fn attempt_failed_for_good(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.failed(now, n1, reason, true, dt);
    }

    pub(super) fn failed(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        is_final: bool,
        dt: &mut dyn DataTransfer,
    ) {
        self.neighbour_down(now, n1, reason, dt);
        self.log.count("enrollments-failed");
        let is_member = self.member.is_some();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let was_accepting = matches!(
            flow.stage,
            Stage::Accepting | Stage::Assigning(_) | Stage::Stopping
        );
        flow.stage = Stage::Idle;
        flow.cdap = connection();
        flow.at = None;
        flow.why = reason.to_string();
        let answered =
            (!is_member && !was_accepting && flow.unanswered == 0).then(|| contact(&flow.props));
        if was_accepting {
            let text = format!("{} was not enrolled: {reason}", flow.peer);
            self.log.notice("enroll", &text);
            if !flow.props.is_initiator {
                // The side that requested the N-1 flow makes the next attempt.
                return;
            }
        } else if is_member {
            let remote = flow.props.remote.clone();
            let text = format!("no neighbour at {remote:?}: {reason}");
            self.log.notice(&remote, &text);
        } else if is_final {
            flow.failure_reported = true;
            let reason = reason.to_string();
            self.log.push(Event::EnrollRefused { n1, reason });
        } else if !core::mem::replace(&mut flow.failure_reported, true) {
            let reason = reason.to_string();
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        let pause = self.random.about(flow.retry_after);
        flow.retry_after = (flow.retry_after * 2).min(RETRY_MAX);
        flow.at = Some(now + pause);
        if let Some(contact) = answered {
            self.note_refusal(contact, reason, is_final);
        }
    }

    /// Makes the member behind an N-1 flow a neighbour.
    pub(super) fn neighbour_up(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let interval = self.keepalive_interval();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.stage = Stage::Up;
        (flow.since, flow.at) = (now, Some(now + interval));
        (flow.missed, flow.has_released) = (0, false);
        flow.retry_after = RETRY_FIRST;
        flow.failure_reported = false;
        flow.why.clear();
        let (peer, cost) = (flow.peer.clone(), flow.props.cost);
        self.note_source_address(now, n1);
        let address = Address(self.address_of(&peer).unwrap_or_default());
        self.log.push(Event::NeighbourUp {
            name: peer.clone(),
            address,
            n1,
        });
        // Data transfer must know the neighbour before anything is sent to its address.
        self.update_neighbours(now, dt);
        self.report_link(now, &peer, Some(cost), dt);
        let flows = self.n1s.values();
        if flows.filter(|flow| flow.neighbour() == Some(&peer)).count() == 1 {
            self.send_full_rib(now, n1, dt);
        }
    }

    /// Ends the connection to the neighbour behind an N-1 flow. Returns false if there was no
    /// neighbour.
    pub(super) fn neighbour_down(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        if !matches!(flow.stage, Stage::Up) {
            return false;
        }
        flow.stage = Stage::Idle;
        flow.cdap = connection();
        flow.at = None;
        flow.why = reason.to_string();
        let peer = flow.peer.clone();
        self.log.push(Event::NeighbourDown {
            name: peer.clone(),
            n1,
            reason: reason.to_string(),
        });
        let others = self
            .n1s
            .values()
            .filter(|flow| flow.neighbour() == Some(&peer));
        let cost = others.map(|flow| flow.props.cost).min();
        self.report_link(now, &peer, cost, dt);
        true
    }

    fn keepalive_interval(&self) -> Duration {
        let config = self.member.as_ref().map(|member| &member.config);
        let ms = config.map_or(20_000, |config| config.keepalive_ms.max(1));
        Duration::from_millis(u64::from(ms))
    }

    pub(super) fn neighbours_due(&self) -> Option<Instant> {
        self.n1s.values().filter_map(|flow| flow.at).min()
    }

    /// Forgets requests without an answer. Requests that need an answer have deadlines of their
    /// own.
    pub(super) fn forget_requests(&mut self, now: Instant) {
        for flow in self.n1s.values_mut() {
            flow.cdap.handle_timeout(now.as_nanos());
            while flow.cdap.poll_lost().is_some() {}
        }
    }

    /// Handles the deadlines of N-1 flows that have passed.
    pub(super) fn neighbours_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let is_due = |flow: &N1| flow.at.is_some_and(|at| at <= now);
        let due = self.n1s.iter().filter(|(_, flow)| is_due(flow));
        let due: Vec<N1Port> = due.map(|(n1, _)| *n1).collect();
        for n1 in due {
            self.n1_timeout(now, n1, dt);
        }
    }

    fn n1_timeout(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let interval = self.keepalive_interval();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.at = None;
        match &flow.stage {
            Stage::Idle => self.connect(now, n1, dt),
            Stage::Up if flow.missed >= MISSED_MAX => {
                let reason = "the neighbour answered none of the last three keep-alives";
                self.drop_neighbour(now, n1, reason, dt);
            }
            Stage::Up => {
                flow.missed += 1;
                flow.at = Some(now + interval);
                let message = Message::object(Opcode::Read, class::KEEPALIVE, name::KEEPALIVE);
                self.send_request(now, n1, message, dt);
            }
            Stage::Leaving => {
                let reason = "the two at its ends have parted".to_string();
                self.log.push(Event::DropN1 { n1, reason });
            }
            Stage::Assigning(_) => self.assignment_timeout(now, n1, dt),
            Stage::Connecting => self.connect_timeout(now, n1, dt),
            Stage::Starting { .. } | Stage::Adding => {
                self.attempt_failed(now, n1, "no answer to M_START", dt);
            }
            Stage::Joining(_) => self.attempt_failed(now, n1, "no M_STOP came", dt),
            Stage::Accepting => self.attempt_failed(now, n1, "no M_START came", dt),
            Stage::Stopping => self.attempt_failed(now, n1, "no answer to M_STOP", dt),
        }
    }
}
