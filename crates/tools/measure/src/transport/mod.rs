//! Carries SDUs in a measurement: over a flow, or over one of the systems it is compared with.
//!
//! Every transport moves whole messages and is driven by the same loops, so that the systems of a
//! benchmark differ in nothing else.

pub mod bare;
pub(crate) mod error;
pub mod flow;
pub mod grants;
pub mod tcp;
pub mod udp;
pub mod unix;
pub mod vsock;

use std::time::{Duration, Instant};

pub use self::error::TransportError;

/// A time limit that is long enough to mean "no limit". A reliable transport reports by itself when
/// it breaks, so it need not read the clock for each SDU.
pub const FOR_EVER: Duration = Duration::from_secs(3600);

/// What [`Transport::recv`] has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// An SDU of this many bytes is in the buffer.
    Sdu(usize),
    /// Nothing arrived within the time limit.
    Idle,
    /// The other side has finished: no further SDU will arrive.
    End,
}

/// Longest time for which the kernel blocks a sender without room, before the sender checks its
/// deadline.
const SEND_LOOK: Duration = Duration::from_millis(100);

/// A connection of two processes that carries whole messages in both directions.
pub trait Transport {
    /// Sends one SDU. Waits for room until `until` at most, and returns whether the SDU was sent.
    /// If it returns false, a part of the SDU may have been sent: the caller may only send the same
    /// SDU again.
    ///
    /// # Errors
    /// The other side has closed, or the SDU is too large.
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError>;

    /// Receives one SDU into `buffer`. Waits for it up to `limit`.
    ///
    /// # Errors
    /// The transport broke, or the SDU is larger than the buffer.
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError>;

    /// Ends this side's direction. The other side then gets [`Arrival::End`].
    ///
    /// # Errors
    /// The other side has closed.
    fn finish(&mut self) -> Result<(), TransportError>;

    /// Whether the transport may lose SDUs, so that a missing answer is not an error.
    fn is_lossy(&self) -> bool {
        false
    }
}
