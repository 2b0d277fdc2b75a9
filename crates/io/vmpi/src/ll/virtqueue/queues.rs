//! What both halves do with their pair of virtqueues.

use std::os::fd::BorrowedFd;

use carina_wire::vmpi::{BlockError, BlockHeader};

use super::pipe::Pipe;

/// One half of a pair of virtqueues: it moves bytes between pipes and buffers.
pub(super) trait Queues: Send {
    /// Brings about, as far as this half can, that the queues run, and says how they are.
    fn look(&mut self, now_ns: u64) -> QueueState;

    /// Moves what has arrived into the pipe. `judge` learns of every block in its order and says
    /// whether the records of it are taken.
    ///
    /// # Errors
    /// The other half broke the queues or what they carry.
    fn receive(&mut self, pipe: &mut Pipe, judge: &mut Judge<'_>) -> Result<(), Broken>;

    /// Whether the other half cannot say anything, because the pipe has no room for it.
    fn is_blocked(&mut self, pipe: &mut Pipe) -> bool;

    /// Moves what the pipe has into blocks with this header, as far as there are buffers.
    ///
    /// # Errors
    /// The other half broke the queues.
    fn send(&mut self, pipe: &mut Pipe, header: BlockHeader) -> Result<(), Broken>;

    /// Sends a block without records. False when there is no buffer for it now.
    ///
    /// # Errors
    /// The other half broke the queues.
    fn send_bare(&mut self, header: BlockHeader) -> Result<bool, Broken>;

    /// Gives room of the pipe that is free again to the other half.
    fn recycle(&mut self, pipe: &mut Pipe);

    /// Asks to be woken when something arrives and, with `wants_room`, when there are buffers to
    /// send in. False when that is so already.
    fn arm(&mut self, wants_room: bool) -> bool;

    /// Takes [`Queues::arm`] back.
    fn disarm(&mut self);

    /// What becomes readable then. `None`: this half cannot be woken.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Begins anew after the other half broke something, not before `until_ns`.
    fn reset(&mut self, until_ns: u64);

    /// Times that the other half was woken.
    fn kicks(&self) -> u64;
}

/// Learns of a block, and says whether its records are taken.
pub(super) type Judge<'a> = dyn FnMut(Result<BlockHeader, BlockError>) -> bool + 'a;

/// How the queues are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueState {
    /// There is no system at the other side.
    Detached,
    /// There is one, without the queues set up.
    Stopped,
    /// Blocks pass.
    Running,
}

/// Why the queues are given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("virtqueue: {0}")]
    Ring(#[from] carina_vring::Fault),
    #[error("block of {bytes} bytes in a buffer of {room}: records take a multiple of 8")]
    Block { bytes: usize, room: usize },
}
