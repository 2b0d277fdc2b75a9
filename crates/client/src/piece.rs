//! A received piece, looked at where it lies.

use crate::recv::FlowReceiver;

/// One piece of an SDU, in the ring. Most SDUs are one piece; those larger than a quarter of the
/// ring are several. Dropping it gives its space back to the sender.
#[derive(Debug)]
pub struct Piece<'a> {
    receiver: &'a mut FlowReceiver,
}

impl<'a> Piece<'a> {
    /// Shows the piece that is at the front of the ring.
    pub(crate) fn new(receiver: &'a mut FlowReceiver) -> Piece<'a> {
        Piece { receiver }
    }

    /// Copies the piece to the start of `to` and says how many bytes fitted. The sender can still
    /// change the bytes: whoever checks them must check the copy.
    pub fn copy_to(&mut self, to: &mut [u8]) -> usize {
        self.receiver.found().copy_to(to)
    }

    /// Length of the piece in bytes.
    #[must_use]
    pub fn length(&mut self) -> usize {
        self.receiver.found().len()
    }

    /// Says whether further pieces of the same SDU follow.
    #[must_use]
    pub fn more(&mut self) -> bool {
        self.receiver.found().more()
    }

    /// Where the piece lies. The memory is shared with the sender, who may change it at any time,
    /// and stays mapped for as long as this value lives.
    #[must_use]
    pub fn as_ptr(&mut self) -> *const u8 {
        self.receiver.found().as_ptr()
    }

    /// Receives the piece, as dropping it does.
    pub fn release(self) {
        drop(self);
    }

    /// Leaves the piece to be received by the next call.
    pub fn put_back(self) {
        std::mem::forget(self);
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.receiver.pass_over();
    }
}
