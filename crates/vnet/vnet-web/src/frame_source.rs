//! Where the frames of a capture come from: the engine of this host, or another host.

use std::io;
use std::time::Duration;

/// Where the frames of a capture come from: a file (pcapng) in portions, as frames pass.
pub trait FrameSource: Send + 'static {
    /// The next bytes; 0 where none came for a while, `within` if that can be chosen; nothing at
    /// the end.
    ///
    /// # Errors
    /// What copies the frames is gone.
    fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>>;

    /// Says that it is enough: what has passed so far comes, and the end.
    ///
    /// # Errors
    /// What copies the frames is gone.
    fn finish(&mut self) -> io::Result<()>;
}
