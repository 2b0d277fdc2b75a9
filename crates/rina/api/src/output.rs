//! Output of a command, which is handed over piece by piece as it comes.

use std::ops::ControlFlow;

/// One of the two outputs of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes the output of a command.
pub trait Sink {
    /// Takes a piece of at most [`PIECE_BYTES`] bytes. Waits while the reader is slow, but not
    /// after `is_over` says that the command is to end. [`ControlFlow::Break`]: the reader has
    /// gone.
    fn take(&mut self, stream: Stream, piece: &[u8], is_over: &dyn Fn() -> bool)
    -> ControlFlow<()>;
}

impl<F: FnMut(Stream, &[u8]) -> ControlFlow<()>> Sink for F {
    fn take(&mut self, stream: Stream, piece: &[u8], _: &dyn Fn() -> bool) -> ControlFlow<()> {
        self(stream, piece)
    }
}

/// Keeps what a command writes, up to a limit for each output, and counts the rest.
#[derive(Debug)]
pub struct Collector {
    most: [usize; 2],
    outputs: [Vec<u8>; 2],
    dropped: u64,
}

impl Collector {
    /// Keeps so many bytes of standard output, and of standard error.
    pub fn new(most: [usize; 2]) -> Collector {
        Collector {
            most,
            outputs: Default::default(),
            dropped: 0,
        }
    }

    /// What was kept of the two outputs, and how many bytes were dropped.
    pub fn into_outputs(self) -> ([Vec<u8>; 2], u64) {
        (self.outputs, self.dropped)
    }
}

impl Sink for Collector {
    fn take(&mut self, stream: Stream, piece: &[u8], _: &dyn Fn() -> bool) -> ControlFlow<()> {
        let at = stream as usize;
        let kept = piece.len().min(self.most[at] - self.outputs[at].len());
        self.outputs[at].extend_from_slice(&piece[..kept]);
        self.dropped += (piece.len() - kept) as u64;
        ControlFlow::Continue(())
    }
}

/// Bytes of a piece of output at most.
pub const PIECE_BYTES: usize = 64 << 10;
