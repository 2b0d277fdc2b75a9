//! Detaching: this member stays in the DIF but gives up an N-1 flow, after M_RELEASE has told the
//! neighbour.
//!
//! ```text
//!   neighbours  --[Command::GiveUpN1]-->  DETACHING  --[500 ms]-->  returned (DropN1)
//!                 link down, M_RELEASE              channel ends
//! ```
//!
//! From the command on, no data is sent through the N-1 flow; PDUs that waited for it take another
//! path. PDUs that the other side sent before it knew are accepted until the N-1 flow is returned.

use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::super::Management;

/// Time for M_RELEASE to be sent and for its answer to arrive.
const DETACH_GRACE: Duration = Duration::from_millis(500);

/// State of an N-1 flow that is being given up.
#[derive(Debug)]
pub(super) struct Detaching {
    /// When the N-1 flow is returned; `None` once it has been returned and only its end is awaited.
    at: Option<Instant>,
    reason: String,
}

impl Detaching {
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }
}

impl Management {
    /// Stops using an N-1 flow and releases the neighbour at its other end.
    pub(in super::super) fn detach_n1(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.cancel_initiator(now, n1, dt);
        let neighbour = self.neighbour(n1);
        let neighbour = neighbour.map(|up| (up.name.clone(), up.address));
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if flow.detaching.is_some() {
            return;
        }
        (flow.responder, flow.retry_at, flow.is_deferred) = (None, None, false);
        let at = match flow.up {
            Some(_) => now + DETACH_GRACE,
            None => now,
        };
        let reason = reason.to_string();
        flow.detaching = Some(Detaching {
            at: Some(at),
            reason,
        });
        let reason = "this member gives the N-1 flow up";
        // Changes the routes first, so that no data is sent after M_RELEASE.
        if let Some((name, address)) = neighbour {
            dt.set_detaching(n1, true);
            self.neighbour_down(now, n1, &name, address, reason, dt);
        }
        self.tell(now, n1, Message::new(Opcode::Release), true, dt);
        self.log.count("n1-detached");
    }

    /// Returns an N-1 flow to the owner when its grace period has ended. True when the flow is
    /// detaching.
    pub(super) fn detach_timeout(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        let Some(detaching) = &mut flow.detaching else {
            return false;
        };
        if detaching.at.take_if(|at| *at <= now).is_some() {
            let reason = detaching.reason.clone();
            self.up_ended(now, n1, &reason, dt);
            self.log.push(Event::DropN1 { n1, reason });
        }
        true
    }
}
