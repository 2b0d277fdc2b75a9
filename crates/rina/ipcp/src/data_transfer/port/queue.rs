//! PDUs that wait for an N-1 flow.

use alloc::collections::VecDeque;

use carina_wire::Payload;

/// A PDU that waits.
pub(super) struct Waiting<P> {
    /// When it came, counted in PDUs; of a management PDU, 1 when it is to stay without protection.
    pub(super) mark: u64,
    /// Its length in bytes, which is asked for more often than the PDU is touched.
    pub(super) len: u32,
    pub(super) pdu: P,
}

/// PDUs of one class.
pub(super) struct Queue<P> {
    pub(super) pdus: VecDeque<Waiting<P>>,
    /// How many at the front are known to last beyond the burst.
    pub(super) kept: usize,
}

impl<P: Payload> Queue<P> {
    pub(super) fn new() -> Queue<P> {
        Queue {
            pdus: VecDeque::new(),
            kept: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, waiting: Waiting<P>, is_kept: bool) {
        // Only a prefix is known to be kept; what was kept behind it is asked again, for nothing.
        if is_kept && self.kept == self.pdus.len() {
            self.kept += 1;
        }
        self.pdus.push_back(waiting);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Waiting<P>> {
        let first = self.pdus.pop_front()?;
        self.kept = self.kept.saturating_sub(1);
        Some(first)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pdus.iter().map(|waiting| u64::from(waiting.len)).sum()
    }

    /// Keeps all; returns how many had to be dropped.
    pub(super) fn keep(&mut self) -> usize {
        let before = self.pdus.len();
        let mut index = 0;
        let kept = self.kept;
        self.pdus.retain_mut(|waiting| {
            index += 1;
            index <= kept || waiting.pdu.keep()
        });
        self.kept = self.pdus.len();
        before - self.pdus.len()
    }
}
