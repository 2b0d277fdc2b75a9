//! What carries SDUs in a measurement: a flow, or one of the systems it is compared with.
//!
//! Every transport moves whole messages and is driven by the same loops, so that the systems of a
//! bench differ in nothing else.

pub mod bare;
pub(crate) mod error;
pub mod flow;
pub mod tcp;
pub mod udp;
pub mod unix;

use std::time::{Duration, Instant};

pub use self::error::TransportError;

/// A limit that stands for no limit. A reliable transport reports by itself when it breaks, and
/// need not look at the clock for each SDU.
pub const FOR_EVER: Duration = Duration::from_secs(3600);

/// What [`Transport::recv`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// An SDU of this many bytes is in the buffer.
    Sdu(usize),
    /// Nothing came in the time given.
    Idle,
    /// The other side has finished; nothing more will come.
    End,
}

/// How long the kernel holds a sender that finds no room before the sender looks at its deadline.
const SEND_LOOK: Duration = Duration::from_millis(100);

/// Two directions of whole messages between two processes.
pub trait Transport {
    /// Sends one SDU; waits for room no longer than `until`, and says whether the SDU was sent. One
    /// that was not may have gone in part, so that only the same may follow.
    ///
    /// # Errors
    /// The other side has gone, or the SDU is too large.
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError>;

    /// Receives one SDU; waits up to `limit` for it.
    ///
    /// # Errors
    /// The transport broke, or the SDU is larger than the buffer.
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError>;

    /// Says that no more SDUs come from this side; the other side sees [`Arrival::End`].
    ///
    /// # Errors
    /// The other side has gone.
    fn finish(&mut self) -> Result<(), TransportError>;

    /// Whether SDUs may be lost on the way, so that a missing answer is no fault.
    fn is_lossy(&self) -> bool {
        false
    }
}
