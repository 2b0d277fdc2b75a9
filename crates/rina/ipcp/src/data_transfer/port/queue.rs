//! PDUs that wait for an N-1 flow.

use alloc::collections::VecDeque;

use carina_wire::Payload;

/// A PDU that waits.
pub(super) struct Waiting<P> {
    /// Of a PDU of a class: its arrival number. Of a management PDU: 1 if it is sent without
    /// protection, else 0.
    pub(super) mark: u64,
    /// Length in bytes, stored because it is read more often than the PDU.
    pub(super) len: u32,
    pub(super) pdu: P,
}

/// PDUs of one class, or of management.
pub(super) struct Queue<P> {
    pub(super) pdus: VecDeque<Waiting<P>>,
    /// How many PDUs at the front are known to be outside of the burst's memory.
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
        // `kept` counts only a prefix. For PDUs behind it that are kept already, a second `keep`
        // costs nothing.
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

    /// Copies all PDUs out of the burst's memory. Returns how many were dropped for lack of
    /// buffers.
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
