//! The end of the connection to a neighbour: the neighbour is lost, or either side releases it.

use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::Rlite;
use super::n1::{Stage, connection};

impl Rlite {
    /// Handles a neighbour that is silent, or whose N-1 flow does not work: the owner must allocate
    /// another flow.
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

    /// Handles M_RELEASE: the other side ends the connection to this member. rlite does not answer
    /// it.
    pub(super) fn on_release(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let was_neighbour = self.neighbour_down(now, n1, "the neighbour released this member", dt);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.cdap = connection();
        if matches!(flow.stage, Stage::Accepting) && !flow.props.is_initiator {
            // The other side received no answer to its M_CONNECT, and will connect again.
            (flow.stage, flow.at) = (Stage::Idle, None);
            return;
        }
        flow.stage = Stage::Leaving;
        // Leaves time for the other side's last messages to arrive.
        flow.at = Some(now + RELEASE_GRACE);
        if was_neighbour {
            self.announce_self(now, dt);
        }
    }

    /// Releases the neighbours on all N-1 flows of a leaving member, and then returns the flows.
    pub(super) fn release_all(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        for n1 in n1s {
            self.detach_n1(now, n1, reason, dt);
        }
    }

    /// Releases the neighbour behind an N-1 flow, and then returns the flow.
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

/// Time for the last message to be sent before an N-1 flow is returned.
pub(super) const RELEASE_GRACE: Duration = Duration::from_millis(500);
