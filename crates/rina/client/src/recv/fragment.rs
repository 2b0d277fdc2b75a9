//! A received fragment, looked at where it lies.

use carina_ring::PieceRef;

use super::FlowReceiver;

/// One fragment of an SDU, in the ring. Most SDUs are one fragment; those larger than a quarter of
/// the ring are several. Dropping it gives its space back to the sender.
#[derive(Debug)]
pub struct Fragment<'a> {
    receiver: &'a mut FlowReceiver,
}

impl<'a> Fragment<'a> {
    /// Shows the fragment that is at the front of the ring.
    pub(crate) fn new(receiver: &'a mut FlowReceiver) -> Fragment<'a> {
        Fragment { receiver }
    }

    /// Copies the fragment to the start of `to` and says how many bytes fitted. The sender can
    /// still change the bytes: check the copy, not the original.
    pub fn copy_to(&mut self, to: &mut [u8]) -> usize {
        self.receiver.front_fragment().copy_to(to)
    }

    /// Length of the fragment in bytes.
    #[must_use]
    pub fn length(&mut self) -> usize {
        self.receiver.front_fragment().len()
    }

    /// Says whether further fragments of the same SDU follow.
    #[must_use]
    pub fn more(&mut self) -> bool {
        self.receiver.front_fragment().more()
    }

    /// Where the fragment lies. The memory is shared with the sender, which may change it at any
    /// time, and stays mapped for as long as this value lives.
    #[must_use]
    pub fn as_ptr(&mut self) -> *const u8 {
        self.receiver.front_fragment().as_ptr()
    }

    /// Receives the fragment, as dropping it does.
    pub fn release(self) {
        drop(self);
    }

    /// Leaves the fragment to be received by the next call.
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
    /// The fragment that was found at the front by an earlier look.
    fn front_fragment(&mut self) -> PieceRef<'_> {
        let front = self.ring.peek().ok().flatten();
        front.expect("a fragment that was found stays at the front until it is stepped over")
    }

    /// Receives the fragment that was found, without copying it.
    fn skip_fragment(&mut self) {
        let fragment = self.front_fragment();
        let (length, more) = (fragment.len(), fragment.more());
        self.stats.bytes_received += length as u64;
        self.stats.sdus_received += u64::from(!more);
        self.step();
    }
}
