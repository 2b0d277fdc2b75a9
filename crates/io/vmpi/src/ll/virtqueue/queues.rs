//! The operations that the device half and the driver half of the virtqueues have in common.

use std::os::fd::BorrowedFd;

use carina_wire::vmpi::{BlockError, BlockHeader};

use super::pipe::Pipe;

/// One half of a pair of virtqueues. It moves bytes between pipes and buffers.
pub(super) trait Queues: Send {
    /// Starts the queues if this half can, and returns their state.
    fn poll_state(&mut self, now_ns: u64) -> QueueState;

    /// Moves received records into the pipe. The half calls `check` with the header of every block,
    /// in order; `check` returns whether the block's records are accepted.
    ///
    /// # Errors
    /// The other half broke the queues or the format of a block.
    fn receive(&mut self, pipe: &mut Pipe, check: &mut BlockCheck<'_>) -> Result<(), Broken>;

    /// Whether the other half cannot send anything, because this half's pipe has no room.
    fn is_blocked(&mut self, pipe: &mut Pipe) -> bool;

    /// Moves records from the pipe into blocks with this header, as long as there are buffers.
    ///
    /// # Errors
    /// The other half broke the queues.
    fn send(&mut self, pipe: &mut Pipe, header: BlockHeader) -> Result<(), Broken>;

    /// Sends a block without records. Returns false if no buffer is free now.
    ///
    /// # Errors
    /// The other half broke the queues.
    fn send_bare(&mut self, header: BlockHeader) -> Result<bool, Broken>;

    /// Gives free room of the pipe to the other half, as buffers.
    fn recycle(&mut self, pipe: &mut Pipe);

    /// Asks the other half to wake this one when something arrives and, with `wants_room`, when
    /// buffers become free. Returns false if that is already the case.
    fn arm(&mut self, wants_room: bool) -> bool;

    /// Cancels [`Queues::arm`].
    fn disarm(&mut self);

    /// The descriptor that becomes readable when the other half wakes this one. `None` if it
    /// cannot.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Restarts the queues after the other half broke them, but not before `until_ns`.
    fn reset(&mut self, until_ns: u64);

    /// Number of times that this half has notified the other half.
    fn kicks(&self) -> u64;

    /// The process id of the VM at the other end, if this half is its host's and the process is
    /// known.
    fn vm(&self) -> Option<i32> {
        None
    }
}

/// Function that receives the header of each block, and returns whether the block's records are
/// accepted.
pub(super) type BlockCheck<'a> = dyn FnMut(Result<BlockHeader, BlockError>) -> bool + 'a;

/// The state of a pair of virtqueues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueState {
    /// No system is connected at the other end.
    Detached,
    /// A system is connected, but has not set up the queues.
    Stopped,
    /// The queues carry blocks.
    Running,
}

/// Why this half gives up the queues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("virtqueue: {0}")]
    Ring(#[from] carina_vring::Fault),
    #[error("block of {bytes} bytes in a buffer of {room}: records take a multiple of 8")]
    Block { bytes: usize, room: usize },
}
