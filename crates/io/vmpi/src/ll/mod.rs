//! VMPI-LL: devices that carry records between two systems ("Reducing Complexity of Virtual Machine
//! Networking", S. Vrijders and others, 2016, section IV and figure 2).
//!
//! [`VmpiImpl`] is the interface between VMPI-HL and a device (VMPI-IMPL in that figure). Three
//! devices implement it: [`ivshmem`], a PCI device of stock QEMU, [`memfd`], shared memory within
//! one system, and [`virtqueue`], a virtio device of stock QEMU. The first two are a region of
//! [`Layout`], an attach handshake and two rings, and differ in how one side wakes the other; over
//! virtqueues the same handshake and the same records travel in buffers.

mod attach;
mod device;
mod host_port;
mod interrupts;
pub mod ivshmem;
mod layout;
pub mod memfd;
mod polling;
mod qemu;
mod station;
#[cfg(test)]
mod tests;
pub mod virtqueue;

use std::fmt;
use std::os::fd::BorrowedFd;

use carina_ring::{Corrupt, Lease, Refused, Slot};

use crate::hl::Side;

pub use attach::{HEARTBEAT_NS, SILENCE_NS_MAX};
pub use carina_nic::pci::PciAddress;
pub use host_port::HostPort;
pub use interrupts::{Interrupts, Opened};
pub use layout::{
    Layout, REGION_BYTES_DEFAULT, REGION_BYTES_MAX, REGION_BYTES_MIN, RegionSizeError,
};

/// A VMPI device: records in both directions between two systems of which either may restart.
///
/// The owner calls [`VmpiImpl::link`] whenever it runs and at [`VmpiImpl::next_deadline_ns`]; only
/// while that says [`LinkState::Up`] do records pass.
pub trait VmpiImpl: Send {
    /// Which side this is.
    fn side(&self) -> Side;

    /// Longest record in bytes, VMPI header included.
    fn record_bytes_max(&self) -> usize;

    /// Drives attach and heartbeat and says how the link is. A link that restarts is
    /// [`LinkState::Down`] in at least one answer between two times of being up; everything in the
    /// rings is then lost, and leases of the old link must not be released into the new one.
    #[must_use]
    fn link(&mut self, now_ns: u64) -> LinkState;

    /// Gives up the link, because the ring is corrupt or the peer broke the protocol above. The
    /// link comes up again after a hold-off that grows with each failure. Returns the reason that
    /// holds: a peer that restarted in this moment is not to blame for what its rings looked like.
    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason;

    /// Room for a record of `len` bytes; [`Slot::commit`] completes it, with `more` false.
    ///
    /// # Errors
    /// [`Refused::Full`] also while the link is down; [`Refused::Corrupt`] calls for
    /// [`VmpiImpl::fail`].
    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused>;

    /// Bytes of ring space free for records, each of which takes [`crate::hl::record_cost`]; 0
    /// while the link is down.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn free_bytes(&mut self) -> Result<usize, Corrupt>;

    /// Shows committed records to the peer and wakes it when it sleeps.
    fn publish(&mut self);

    /// The next record, if there is one.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn next(&mut self) -> Result<Option<Lease>, Corrupt>;

    /// Gives the space of all records read back to the peer and wakes it when it waits for that.
    fn release(&mut self);

    /// As [`VmpiImpl::release`], up to the end of one lease ([`Lease::end`]) and all before it.
    fn release_to(&mut self, index: u64);

    /// Asks to be woken for the next record. Returns whether the owner may sleep: until
    /// [`VmpiImpl::wait_fd`] is readable or [`VmpiImpl::next_deadline_ns`].
    #[must_use]
    fn arm(&mut self, now_ns: u64) -> bool;

    /// Takes [`VmpiImpl::arm`] and [`VmpiImpl::arm_space`] back and silences the doorbell: the
    /// owner is awake.
    fn disarm(&mut self);

    /// Asks to be woken when `bytes` of ring space are free. Returns whether the owner may sleep.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt>;

    /// When to call [`VmpiImpl::link`] again at the latest. May change after any call that takes
    /// `&mut self`.
    #[must_use]
    fn next_deadline_ns(&self) -> u64;

    /// What becomes readable when the peer wakes this side. `None`: this side polls. Never changes.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// What was counted since the device was opened.
    fn stats(&self) -> Stats;
}

/// How a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Records pass.
    Up,
    /// They do not.
    Down(DownReason),
}

/// Why a link is down.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// No node at the other side yet.
    NoPeer,
    /// The VM is not running.
    Detached,
    /// The peer's node ended.
    PeerLeft,
    /// The peer's node started anew.
    PeerRestarted,
    /// The peer's node or system stands still.
    PeerSilent {
        /// Milliseconds since its last sign of life, by this side's clock. More than
        /// [`SILENCE_NS_MAX`] where this side was itself not running all the time.
        silent_ms: u64,
    },
    /// The region was laid out by another version.
    WrongVersion {
        /// Its version.
        peer: u32,
    },
    /// The peer broke the ring, or a page of the region is gone ([`Corrupt::MemoryLost`]). Of the
    /// latter the link does not recover: the device has to be opened again.
    Corrupt(Corrupt),
    /// The peer broke the virtqueues.
    BrokenQueue {
        /// What it did.
        what: String,
    },
    /// The peer broke the protocol above.
    Violation {
        /// A constant for counters.
        code: &'static str,
        /// The story for people.
        reason: String,
    },
}

impl DownReason {
    /// A constant for counters.
    pub fn code(&self) -> &'static str {
        match self {
            DownReason::NoPeer => "no-peer",
            DownReason::Detached => "detached",
            DownReason::PeerLeft => "peer-left",
            DownReason::PeerRestarted => "peer-restarted",
            DownReason::PeerSilent { .. } => "peer-silent",
            DownReason::WrongVersion { .. } => "wrong-region-version",
            DownReason::Corrupt(Corrupt::MemoryLost) => "memory-lost",
            DownReason::Corrupt(_) => "corrupt-ring",
            DownReason::BrokenQueue { .. } => "broken-queue",
            DownReason::Violation { code, .. } => code,
        }
    }
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownReason::NoPeer => write!(f, "no node at the other side"),
            DownReason::Detached => write!(f, "the virtual machine is not running"),
            DownReason::PeerLeft => write!(f, "the peer's node ended"),
            DownReason::PeerRestarted => write!(f, "the peer's node restarted"),
            DownReason::PeerSilent { silent_ms } => {
                write!(f, "the peer gave no sign of life for {silent_ms} ms")
            }
            DownReason::WrongVersion { peer } => write!(
                f,
                "the region has layout version {peer}, this node speaks {}",
                station::VERSION
            ),
            DownReason::Corrupt(e @ Corrupt::MemoryLost) => {
                write!(f, "the region cannot be used: {e}")
            }
            DownReason::Corrupt(e) => write!(f, "the peer broke the ring: {e}"),
            DownReason::BrokenQueue { what } => write!(f, "the peer broke the virtqueues: {what}"),
            DownReason::Violation { reason, .. } => write!(f, "{reason}"),
        }
    }
}

/// What a device counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Times that the link came up.
    pub ups: u64,
    /// Times that it went down by itself: restart, silence, detachment.
    pub downs: u64,
    /// Times that it was given up because the ring was corrupt, or its memory gone.
    pub corrupt: u64,
    /// Times that it was given up because the protocol above was broken.
    pub violations: u64,
    /// Times that this side woke the peer.
    pub kicks: u64,
    /// Records read.
    pub records_in: u64,
    /// Buffers of a virtqueue that had no block, such as frames of a network driver.
    pub foreign_blocks: u64,
}
