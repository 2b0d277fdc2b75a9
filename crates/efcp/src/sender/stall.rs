//! A window that stays closed while nothing is outstanding.

use alloc::vec::Vec;

use carina_wire::Payload;

use super::Sender;
use crate::receiver::NEVER;

impl<P: Payload> Sender<P> {
    /// Watches the window: when it is closed and nothing is outstanding whose acknowledgement
    /// could open it, rendezvous PDUs are due, with growing pauses.
    pub(crate) fn watch_window(&mut self, now: u64) {
        let is_stuck =
            self.is_running && !self.queue.is_empty() && self.sent.is_empty() && !self.is_open();
        if !is_stuck {
            self.rendezvous_at = NEVER;
            self.is_rendezvous_due = false;
        } else if self.rendezvous_at == NEVER {
            let round_trip = self.rtt.estimate_ns().saturating_mul(2);
            self.rendezvous_ns = self.a_ns.max(round_trip).max(RENDEZVOUS_LEAST_NS);
            self.rendezvous_at = now.saturating_add(self.rendezvous_ns);
            self.answered_at = now;
        }
    }

    /// True when a rendezvous PDU is due now; the next one then is due later.
    pub(crate) fn takes_rendezvous(&mut self, now: u64) -> bool {
        self.check_rendezvous(now);
        core::mem::take(&mut self.is_rendezvous_due)
    }

    pub(super) fn check_rendezvous(&mut self, now: u64) {
        if now < self.rendezvous_at {
            return;
        }
        // Both sides keep their state as long as these go back and forth.
        let most = (self.delta_t / 2).clamp(RENDEZVOUS_LEAST_NS, RENDEZVOUS_MOST_NS);
        self.rendezvous_ns = self.rendezvous_ns.saturating_mul(2).min(most);
        self.rendezvous_at = now.saturating_add(self.rendezvous_ns);
        self.active_at = now;
        self.is_rendezvous_due = true;
    }

    /// The PDU that stands for a rendezvous PDU where there is none: the last one again, so that
    /// the other side answers a duplicate. What is known to have arrived has no user data any more.
    pub(crate) fn repeat(&mut self) -> Option<(u64, P)> {
        if self.next == self.start {
            return None;
        }
        let udf = match &mut self.last {
            _ if self.is_reliable => P::from_vec(Vec::new()),
            Some(last) => last.share(),
            None => None,
        };
        Some((self.next - 1, udf?))
    }

    /// When the connection fails because no rendezvous PDU is answered.
    pub(super) fn unanswered_at(&self) -> u64 {
        if self.rendezvous_at == NEVER {
            return NEVER;
        }
        self.answered_at.saturating_add(self.r_ns)
    }
}

/// Shortest and longest pause between rendezvous PDUs, in ns.
const RENDEZVOUS_LEAST_NS: u64 = 5_000_000;
const RENDEZVOUS_MOST_NS: u64 = 1_000_000_000;
