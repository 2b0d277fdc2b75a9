//! Signs of life of neighbours: what is sent, heard, and done when it is missing.

use alloc::string::ToString;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::Irati;
use super::objects::{self, class};

/// How many times the keep-alives that may be missed are doubled at most, for a neighbour that
/// enrolls again and again and never answers one: some eight hours with questions every 30 s.
const DOUBLED_MAX: u32 = 8;

/// Neighbours that enroll and do not answer keep-alives: most that are remembered.
const UNRESPONSIVE_MAX: usize = 256;

impl Irati {
    /// A neighbour has been silent for too long. It may have died before it answered the first
    /// question, or be one that lives and answers none: then it will enroll again, and is given
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
        let reason = "it gives no sign of life";
        self.disconnect(now, n1, reason, true, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.retry_in(now);
        }
        // The other end of the flow may be gone without a word.
        let reason = reason.to_string();
        self.log.push(Event::DropN1 { n1, reason });
    }

    /// M_READ of what every member answers.
    pub(super) fn send_keepalive(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let message = Message::object(Opcode::Read, class::WATCHDOG, objects::WATCHDOG);
        self.send(now, n1, &objects::with_invoke_id(message), dt);
    }

    /// Something came from the other end.
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
