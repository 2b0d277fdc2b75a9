//! The device half of a ring, of either layout.

use crate::dirty::DirtyLog;
use crate::fault::Fault;
use crate::taken::Taken;

/// The end of a ring that uses buffers.
///
/// A visit is: [`take`](DeviceRing::take) a burst, read and write its chains through
/// [`taken`](DeviceRing::taken), [`complete`](DeviceRing::complete) each of them in order,
/// [`put_back`](DeviceRing::put_back) those that are left, [`publish`](DeviceRing::publish), and
/// signal the driver if it [`wants`](DeviceRing::wants_signal) that.
pub trait DeviceRing {
    /// Takes up to `max` chains that the driver has made available, in place of those taken before;
    /// returns how many. Chains of the call before that are not completed are put back first.
    ///
    /// # Errors
    /// What the driver did wrong. The ring must not be used again.
    fn take(&mut self, max: usize) -> Result<usize, Fault>;

    /// The chains that were taken last.
    fn taken(&self) -> &Taken;

    /// Returns the oldest chain that is neither completed nor put back; the device has written
    /// `written` bytes into it. The driver sees it after [`DeviceRing::publish`].
    ///
    /// # Panics
    /// When there is no such chain.
    fn complete(&mut self, written: u32);

    /// Leaves the chains that were taken last and are not completed to a later
    /// [`DeviceRing::take`].
    fn put_back(&mut self);

    /// Shows the driver what was completed.
    fn publish(&mut self);

    /// Whether the driver is to be signalled for what was published since the last call.
    fn wants_signal(&mut self) -> bool;

    /// Asks the driver to kick when it makes a buffer available. False when one is there already.
    fn arm(&mut self) -> bool;

    /// Asks the driver not to kick.
    fn disarm(&mut self);

    /// True when the driver has made a buffer available that was not taken.
    fn has_available(&self) -> bool;

    /// From where a later device half goes on, when all that was taken is completed or put back:
    /// see [`RingConfig::position`](crate::RingConfig).
    fn position(&self) -> u32;

    /// From now on marks what the device writes: the buffers, and the ring itself if `with_ring`.
    fn set_dirty_log(&mut self, log: Option<DirtyLog>, with_ring: bool);
}
