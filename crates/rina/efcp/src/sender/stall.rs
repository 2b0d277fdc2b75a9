//! A window that stays closed while nothing is outstanding.
//!
//! The rendezvous PDU is that of the Pouzin Society's *Error and Flow Control Protocol
//! Specification*.

use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::Payload;

use super::Sender;

impl<P: Payload> Sender<P> {
    /// Watches the window: when it is closed and nothing is outstanding whose acknowledgement
    /// could open it, rendezvous PDUs are due, with growing pauses.
    pub(crate) fn watch_window(&mut self, now: Instant) {
        let is_stuck =
            self.is_running && !self.queue.is_empty() && self.sent.is_empty() && !self.is_open();
        if !is_stuck {
            self.rendezvous_at = Instant::MAX;
            self.is_rendezvous_due = false;
        } else if self.rendezvous_at == Instant::MAX {
            let round_trip = self.rtt.estimate() * 2;
            self.rendezvous_pause = self.a.max(round_trip).max(RENDEZVOUS_LEAST);
            self.rendezvous_at = now + self.rendezvous_pause;
            self.answered_at = now;
        }
    }

    /// True while rendezvous PDUs are sent, or repetitions that stand for them.
    pub(crate) fn is_stalled(&self) -> bool {
        self.rendezvous_at != Instant::MAX
    }

    /// True when a rendezvous PDU is due now; the next one then is due later.
    pub(crate) fn takes_rendezvous(&mut self, now: Instant) -> bool {
        self.check_rendezvous(now);
        core::mem::take(&mut self.is_rendezvous_due)
    }

    pub(super) fn check_rendezvous(&mut self, now: Instant) {
        if now < self.rendezvous_at {
            return;
        }
        // Both sides keep their state as long as these go back and forth.
        let most = (self.delta_t / 2).clamp(RENDEZVOUS_LEAST, RENDEZVOUS_MOST);
        self.rendezvous_pause = (self.rendezvous_pause * 2).min(most);
        self.rendezvous_at = now + self.rendezvous_pause;
        self.active_at = now;
        self.is_rendezvous_due = true;
    }

    /// The PDU that replaces a rendezvous PDU in profiles without them: the last data PDU again, so
    /// that the other side answers a duplicate. It has no user data once it is acknowledged.
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
    pub(super) fn unanswered_at(&self) -> Instant {
        if self.rendezvous_at == Instant::MAX {
            return Instant::MAX;
        }
        self.answered_at + self.r
    }
}

/// Shortest and longest pause between rendezvous PDUs, in ns.
const RENDEZVOUS_LEAST: Duration = Duration::from_millis(5);
const RENDEZVOUS_MOST: Duration = Duration::from_secs(1);
