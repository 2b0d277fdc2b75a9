//! The trait of device halves, for rings of either layout.

use crate::dirty::DirtyLog;
use crate::fault::Fault;
use crate::taken::Taken;

/// The device half of a ring: it uses the buffers that the driver makes available.
///
/// A visit to a ring has these steps:
/// 1. [`take`](DeviceRing::take) a burst of chains.
/// 2. Read and write them through [`taken`](DeviceRing::taken).
/// 3. [`complete`](DeviceRing::complete) each of them in order.
/// 4. [`put_back`](DeviceRing::put_back) those that are left.
/// 5. [`publish`](DeviceRing::publish).
/// 6. Signal the driver if [`wants_signal`](DeviceRing::wants_signal) returns true.
pub trait DeviceRing {
    /// Takes up to `max` available chains, which replace those taken before. Returns how many.
    /// Chains of the previous call that are not completed are put back first.
    ///
    /// # Errors
    /// The driver broke the rules. The ring must not be used again.
    fn take(&mut self, max: usize) -> Result<usize, Fault>;

    /// Returns the chains of the last [`DeviceRing::take`].
    fn taken(&self) -> &Taken;

    /// Completes the oldest chain that is neither completed nor put back. `written` is the number
    /// of bytes that the device has written into it. The driver sees it after
    /// [`DeviceRing::publish`].
    ///
    /// # Panics
    /// There is no such chain.
    fn complete(&mut self, written: u32);

    /// Puts back the chains that were taken last and are not completed. A later
    /// [`DeviceRing::take`] returns them again.
    fn put_back(&mut self);

    /// Makes the completed chains visible to the driver.
    fn publish(&mut self);

    /// Whether the driver asked for a signal (interrupt) about the chains that were published since
    /// the last call.
    fn wants_signal(&mut self) -> bool;

    /// Asks the driver to kick when it makes a buffer available. Returns false if one is available
    /// already.
    fn arm(&mut self) -> bool;

    /// Asks the driver not to kick when it makes buffers available.
    fn disarm(&mut self);

    /// Whether the driver has made a buffer available that was not taken.
    fn has_available(&self) -> bool;

    /// Returns the position at which a later device half must continue. Valid when all taken chains
    /// are completed or put back: see [`RingConfig::position`](crate::RingConfig).
    fn position(&self) -> u32;

    /// Sets a log in which the device half marks the pages that it writes: those of buffers, and
    /// those of the ring if `with_ring`. `None` stops the logging.
    fn set_dirty_log(&mut self, log: Option<DirtyLog>, with_ring: bool);
}
