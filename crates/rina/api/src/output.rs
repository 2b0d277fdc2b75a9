//! Output of a command, which a [`Sink`] receives in pieces while the command runs.

use std::ops::ControlFlow;

/// One of the two outputs of a command: standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives the output of a command, piece by piece.
pub trait Sink {
    /// Receives a piece of at most [`PIECE_BYTES`] bytes. May block while its reader is slow, until
    /// `is_over` returns true, which means that the command should end. Returns
    /// [`ControlFlow::Break`] when the reader of the output has gone away.
    fn take(&mut self, stream: Stream, piece: &[u8], is_over: &dyn Fn() -> bool)
    -> ControlFlow<()>;
}

impl<F: FnMut(Stream, &[u8]) -> ControlFlow<()>> Sink for F {
    fn take(&mut self, stream: Stream, piece: &[u8], _: &dyn Fn() -> bool) -> ControlFlow<()> {
        self(stream, piece)
    }
}

/// A [`Sink`] that stores a command's output up to a limit for each stream, and counts the bytes
/// beyond the limits.
#[derive(Debug)]
pub struct Collector {
    limits: [usize; 2],
    outputs: [Vec<u8>; 2],
    dropped: u64,
}

impl Collector {
    /// Makes a collector that stores at most `limits[0]` bytes of standard output and `limits[1]`
    /// bytes of standard error.
    pub fn new(limits: [usize; 2]) -> Collector {
        Collector {
            limits,
            outputs: Default::default(),
            dropped: 0,
        }
    }

    /// Returns the stored bytes of standard output and of standard error, and the number of bytes
    /// that exceeded the limits and were dropped.
    pub fn into_outputs(self) -> ([Vec<u8>; 2], u64) {
        (self.outputs, self.dropped)
    }
}

impl Sink for Collector {
    fn take(&mut self, stream: Stream, piece: &[u8], _: &dyn Fn() -> bool) -> ControlFlow<()> {
        let at = stream as usize;
        let kept = piece.len().min(self.limits[at] - self.outputs[at].len());
        self.outputs[at].extend_from_slice(&piece[..kept]);
        self.dropped += (piece.len() - kept) as u64;
        ControlFlow::Continue(())
    }
}

/// Largest number of bytes in a piece of output.
pub const PIECE_BYTES: usize = 64 << 10;
