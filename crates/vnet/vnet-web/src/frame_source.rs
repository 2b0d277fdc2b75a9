//! Sources of a capture's frames: the engine of this host, or another host.

use std::io;
use std::time::Duration;

/// A source of a capture's frames: a pcapng file that is read in portions while frames pass.
pub trait FrameSource: Send + 'static {
    /// Reads the next bytes, and returns their number: 0 if none came for a while (`within`, if the
    /// source supports it), `None` at the end.
    ///
    /// # Errors
    /// What captures the frames has ended.
    fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>>;

    /// Stops the capture. What was captured so far, and the end of the file, can still be read.
    ///
    /// # Errors
    /// What captures the frames has ended.
    fn finish(&mut self) -> io::Result<()>;
}
