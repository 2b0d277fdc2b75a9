//! What carries SDUs in a measurement: a flow, or one of the systems it is compared with.
//!
//! Every carriage moves whole messages and is driven by the same loops, so that the systems of a
//! bench differ in nothing else.

pub mod bare;
pub mod flow;
pub mod tcp;
pub mod udp;
pub mod unix;

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// A limit that is none. A carriage that loses nothing says by itself when it breaks, and need not
/// look at the clock for each SDU.
pub const FOR_EVER: Duration = Duration::from_secs(3600);

/// What [`Carriage::recv`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// An SDU of this many bytes is in the buffer.
    Sdu(usize),
    /// Nothing came in the time given.
    Idle,
    /// The other side has finished; nothing more will come.
    End,
}

/// Two directions of whole messages between two processes.
pub trait Carriage {
    /// Sends one SDU; waits while there is no room.
    ///
    /// # Errors
    /// The other side has gone, or the SDU is too large.
    fn send(&mut self, sdu: &[u8]) -> Result<(), Failure>;

    /// Sends as [`Carriage::send`] does, but waits no longer than `until` where the carriage can
    /// stall; says whether the SDU was sent.
    ///
    /// # Errors
    /// As for [`Carriage::send`].
    #[inline]
    fn send_until(&mut self, sdu: &[u8], _until: Instant) -> Result<bool, Failure> {
        self.send(sdu).map(|()| true)
    }

    /// Receives one SDU; waits up to `limit` for it.
    ///
    /// # Errors
    /// The carriage broke, or the SDU is larger than the buffer.
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, Failure>;

    /// Says that no more SDUs come from this side; the other side sees [`Arrival::End`].
    ///
    /// # Errors
    /// The other side has gone.
    fn finish(&mut self) -> Result<(), Failure>;

    /// Whether SDUs may be lost on the way, so that a missing answer is no fault.
    fn is_lossy(&self) -> bool {
        false
    }
}
