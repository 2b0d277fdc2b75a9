//! The end of a neighbourhood: it is lost, or released by either side.

use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::Rlite;
use super::n1::{Stage, connection};

impl Rlite {
    /// A neighbour says nothing, or its N-1 flow does not work: the binder is to make another.
    pub(super) fn drop_neighbour(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let was_neighbour = self.neighbour_down(now, n1, reason, dt);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.stage = Stage::Leaving;
        flow.at = None;
        let props = flow.props.clone();
        let reason = reason.to_string();
        self.log.push(Event::DropN1 { n1, reason });
        self.want_n1(now, &props);
        if was_neighbour {
            self.announce_self(now, dt);
        }
    }

    /// M_RELEASE: the other side does not want this member as neighbour. rlite has no answer to it.
    pub(super) fn on_release(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let was_neighbour = self.neighbour_down(now, n1, "it released this member", dt);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.cdap = connection();
        if matches!(flow.stage, Stage::Accepting) && !flow.props.is_initiator {
            // It had no answer to its M_CONNECT, and will ask again.
            (flow.stage, flow.at) = (Stage::Idle, None);
            return;
        }
        flow.stage = Stage::Leaving;
        // What it sent last has time to arrive.
        flow.at = Some(now + RELEASE_GRACE);
        if was_neighbour {
            self.announce_self(now, dt);
        }
    }

    /// Every N-1 flow of a member that leaves: the neighbour is released, then the flow given back.
    pub(super) fn release_all(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        for n1 in n1s {
            self.detach_n1(now, n1, reason, dt);
        }
    }

    /// The neighbour behind an N-1 flow is released, then the flow given back.
    pub(super) fn detach_n1(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        if flow.neighbour().is_some() {
            self.send_request(now, n1, Message::new(Opcode::Release), dt);
        }
        let was_neighbour = self.neighbour_down(now, n1, reason, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.stage = Stage::Leaving;
            flow.at = Some(now + RELEASE_GRACE);
        }
        if was_neighbour {
            self.announce_self(now, dt);
        }
    }
}

/// How long the last message has to leave the N-1 flow.
pub(super) const RELEASE_GRACE: Duration = Duration::from_millis(500);
