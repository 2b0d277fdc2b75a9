//! A received fragment, read in place in the ring.

use carina_ring::PieceRef;

use super::FlowReceiver;

/// One fragment of an SDU, in place in the ring. Most SDUs are one fragment; an SDU larger than a
/// quarter of the ring has several. Dropping the fragment returns its space to the sender.
#[derive(Debug)]
pub struct Fragment<'a> {
    receiver: &'a mut FlowReceiver,
}

impl<'a> Fragment<'a> {
    /// Wraps the fragment at the front of the ring.
    pub(crate) fn new(receiver: &'a mut FlowReceiver) -> Fragment<'a> {
        Fragment { receiver }
    }

    /// Copies the fragment to the start of `to` and returns how many bytes fitted. The sender can
    /// still change the bytes in the ring: check the copy, not the original.
    pub fn copy_to(&mut self, to: &mut [u8]) -> usize {
        self.receiver.front_fragment().copy_to(to)
    }

    /// Returns the length of the fragment in bytes.
    #[must_use]
    pub fn length(&mut self) -> usize {
        self.receiver.front_fragment().len()
    }

    /// Whether further fragments of the same SDU follow.
    #[must_use]
    pub fn more(&mut self) -> bool {
        self.receiver.front_fragment().more()
    }

    /// Returns the address of the fragment in the ring. The sender shares this memory and may
    /// change it at any time. It stays mapped while this value lives.
    #[must_use]
    pub fn as_ptr(&mut self) -> *const u8 {
        self.receiver.front_fragment().as_ptr()
    }

    /// Returns the fragment's space to the sender, like dropping it.
    pub fn release(self) {
        drop(self);
    }

    /// Leaves the fragment in the ring; the next call that receives returns it again.
    pub fn put_back(self) {
        std::mem::forget(self);
    }
}

impl Drop for Fragment<'_> {
    fn drop(&mut self) {
        self.receiver.skip_fragment();
    }
}

impl FlowReceiver {
    /// The fragment at the front of the ring, which an earlier call has found.
    fn front_fragment(&mut self) -> PieceRef<'_> {
        let front = self.ring.peek().ok().flatten();
        front.expect("a fragment that was found stays at the front until it is stepped over")
    }

    /// Consumes the fragment at the front without copying it, and counts it.
    fn skip_fragment(&mut self) {
        let fragment = self.front_fragment();
        let (length, more) = (fragment.len(), fragment.more());
        self.stats.bytes_received += length as u64;
        self.stats.sdus_received += u64::from(!more);
        self.step();
    }
}
