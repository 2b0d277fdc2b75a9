//! Keep-alive between neighbours: sending, receiving, and the handling of silence.

use alloc::string::ToString;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::Irati;
use super::objects::{self, class};

/// How many times at most the number of allowed missed keep-alives is doubled, for a neighbour that
/// enrolls again and again but never answers one. With an interval of 30 s that is some eight
/// hours.
const DOUBLED_MAX: u32 = 8;

/// Largest number of neighbours remembered that enroll but do not answer keep-alives.
const UNRESPONSIVE_MAX: usize = 256;

impl Irati {
    /// Handles a neighbour that has been silent for too long. It may have died before it answered
    /// the first keep-alive. Or it lives but never answers; then it will enroll again, and gets
    /// twice the time.
    pub(super) fn on_missed_keepalive(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let (name, has_answered) = (flow.peer.name.clone(), flow.has_answered);
        if !has_answered
            && (self.unresponsive.len() < UNRESPONSIVE_MAX || self.unresponsive.contains_key(&name))
        {
            let doubled = self.unresponsive.entry(name).or_default();
            *doubled = (*doubled + 1).min(DOUBLED_MAX);
        }
        let reason = "the neighbour gives no sign of life";
        self.disconnect(now, n1, reason, true, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.retry_in(now);
        }
        // The other end of the flow may have ended without notice.
        let reason = reason.to_string();
        self.log.push(Event::DropN1 { n1, reason });
    }

    /// Sends M_READ of an object that every member answers, as a keep-alive.
    pub(super) fn send_keepalive(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let message = Message::object(Opcode::Read, class::WATCHDOG, objects::WATCHDOG);
        self.send(now, n1, &objects::with_invoke_id(message), dt);
    }

    /// Records that a message arrived from the other end.
    pub(super) fn heard(&mut self, now: Instant, n1: N1Port, is_watchdog: bool) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.heard = now;
            flow.missed = 0;
            if is_watchdog {
                flow.has_answered = true;
                flow.suspect_until = None;
                self.unresponsive.remove(&flow.peer.name);
            }
        }
    }
}
