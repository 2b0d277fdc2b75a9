//! What the sender does while its window stays closed and no PDU is outstanding.
//!
//! The rendezvous PDU is specified in the Pouzin Society's *Error and Flow Control Protocol
//! Specification*.

use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::Payload;

use super::Sender;

impl<P: Payload> Sender<P> {
    /// Checks the window. If it is closed and no PDU is outstanding whose acknowledgement could
    /// open it, schedules rendezvous PDUs with growing pauses.
    pub(crate) fn watch_window(&mut self, now: Instant) {
        let is_stuck =
            self.is_running && !self.queue.is_empty() && self.sent.is_empty() && !self.is_open();
        if !is_stuck {
            self.rendezvous_at = Instant::MAX;
            self.is_rendezvous_due = false;
        } else if self.rendezvous_at == Instant::MAX {
            let round_trip = self.rtt.estimate() * 2;
            self.rendezvous_pause = self.a.max(round_trip).max(RENDEZVOUS_PAUSE_MIN);
            self.rendezvous_at = now + self.rendezvous_pause;
            self.answered_at = now;
        }
    }

    /// Whether the sender sends rendezvous PDUs now, or repeated data PDUs in their place.
    pub(crate) fn is_stalled(&self) -> bool {
        self.rendezvous_at != Instant::MAX
    }

    /// Whether a rendezvous PDU is due now. If so, schedules the next one.
    pub(crate) fn takes_rendezvous(&mut self, now: Instant) -> bool {
        self.check_rendezvous(now);
        core::mem::take(&mut self.is_rendezvous_due)
    }

    pub(super) fn check_rendezvous(&mut self, now: Instant) {
        if now < self.rendezvous_at {
            return;
        }
        // The pauses are short enough that both sides keep the state of the run.
        let pause_max = (self.delta_t / 2).clamp(RENDEZVOUS_PAUSE_MIN, RENDEZVOUS_PAUSE_MAX);
        self.rendezvous_pause = (self.rendezvous_pause * 2).min(pause_max);
        self.rendezvous_at = now + self.rendezvous_pause;
        self.active_at = now;
        self.is_rendezvous_due = true;
    }

    /// The PDU that replaces a rendezvous PDU in profiles without them: the last data PDU again, so
    /// that the peer answers the duplicate. With retransmission control it has no user data,
    /// because it was acknowledged.
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

    /// When the connection fails because the peer answers no rendezvous PDU.
    pub(super) fn unanswered_at(&self) -> Instant {
        if self.rendezvous_at == Instant::MAX {
            return Instant::MAX;
        }
        self.answered_at + self.r
    }
}

/// Shortest and longest pause between rendezvous PDUs.
const RENDEZVOUS_PAUSE_MIN: Duration = Duration::from_millis(5);
const RENDEZVOUS_PAUSE_MAX: Duration = Duration::from_secs(1);
