//! VMPI-LL: devices that carry records between two systems ("Reducing Complexity of Virtual Machine
//! Networking", S. Vrijders and others, 2016, section IV and figure 2).
//!
//! [`VmpiImpl`] is the interface between VMPI-HL and a device (VMPI-IMPL in that figure). Four
//! devices implement it: [`ivshmem`], a PCI device of stock QEMU; [`memfd`], shared memory within
//! one system; [`xen`], pages that a domain of Xen grants to another; and [`virtqueue`], a virtio
//! device of stock QEMU. The first three consist of a region with a [`Layout`], an attach handshake
//! and two rings; they differ in how one side wakes the other. The last carries the same handshake
//! and the same records in the buffers of virtqueues.

mod attach;
mod device;
mod host_port;
mod interrupts;
pub mod ivshmem;
mod layout;
pub mod memfd;
mod polling;
mod processor_wait;
mod qemu;
mod station;
#[cfg(test)]
mod tests;
pub mod virtqueue;
pub mod vsock;
mod watch;
pub mod xen;

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

/// A VMPI device: carries records in both directions between two systems, either of which may
/// restart.
///
/// The owner calls [`VmpiImpl::link`] whenever it runs, and at [`VmpiImpl::next_deadline_ns`].
/// Records pass only while [`VmpiImpl::link`] returns [`LinkState::Up`].
pub trait VmpiImpl: Send {
    /// Returns which side this device is: host or guest.
    fn side(&self) -> Side;

    /// Returns the length of the longest record in bytes, VMPI header included.
    fn record_bytes_max(&self) -> usize;

    /// Advances the attach handshake and the heartbeat, and returns the state of the link. When a
    /// link restarts, at least one call returns [`LinkState::Down`] before the next
    /// [`LinkState::Up`]. All records in the rings are then lost, and leases of the old link must
    /// not be released into the new one.
    #[must_use]
    fn link(&mut self, now_ns: u64) -> LinkState;

    /// Gives up the link, because the ring is corrupt or the peer broke the protocol above. The
    /// link comes up again after a hold-off, which grows with each failure. Returns the actual
    /// reason: if the peer has restarted meanwhile, the restart explains the state of its rings.
    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason;

    /// Reserves room for a record of `len` bytes. [`Slot::commit`] completes it, with `more` false.
    ///
    /// # Errors
    /// [`Refused::Full`], also while the link is down. [`Refused::Corrupt`]: call
    /// [`VmpiImpl::fail`].
    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused>;

    /// Returns the free ring space in bytes; each record takes [`crate::hl::record_cost`] of it. 0
    /// while the link is down.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn free_bytes(&mut self) -> Result<usize, Corrupt>;

    /// Part of the free room that the owner keeps for channels that send little, in bytes. It is 0
    /// for a device whose rings are long.
    fn reserve_bytes(&self) -> usize {
        0
    }

    /// Makes the committed records visible to the peer, and wakes the peer if it sleeps.
    fn publish(&mut self);

    /// Returns the next record that the peer sent, or `None` if none waits.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn next(&mut self) -> Result<Option<Lease>, Corrupt>;

    /// Returns the space of all records that were read to the peer, and wakes the peer if it waits
    /// for space.
    fn release(&mut self);

    /// Like [`VmpiImpl::release`], but only up to the end of one lease ([`Lease::end`]).
    fn release_to(&mut self, index: u64);

    /// Asks the peer to wake this side for the next record. Returns whether the owner may sleep
    /// until [`VmpiImpl::wait_fd`] is readable or [`VmpiImpl::next_deadline_ns`] has come.
    #[must_use]
    fn arm(&mut self, now_ns: u64) -> bool;

    /// Cancels [`VmpiImpl::arm`] and [`VmpiImpl::arm_space`] and clears the doorbell, when the
    /// owner is awake again.
    fn disarm(&mut self);

    /// Asks the peer to wake this side when `bytes` of ring space are free. Returns whether the
    /// owner may sleep; it may not if the space is free already.
    ///
    /// # Errors
    /// The peer broke the ring: call [`VmpiImpl::fail`].
    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt>;

    /// Returns the latest time at which the owner must call [`VmpiImpl::link`] again, in ns. It may
    /// change with any call that takes `&mut self`.
    #[must_use]
    fn next_deadline_ns(&self) -> u64;

    /// The descriptor that becomes readable when the peer wakes this side. `None` if this side
    /// polls. The answer never changes.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the device's counters since it was opened.
    fn stats(&self) -> Stats;
}

/// Whether records can pass over a VMPI device now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// The link is up: records pass.
    Up,
    /// The link is down, for this reason: no records pass.
    Down(DownReason),
}

/// Why a VMPI link is down.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// The other side's node has not appeared yet.
    NoPeer,
    /// The VM does not run, so no QEMU is attached.
    Detached,
    /// The peer's node has ended.
    PeerLeft,
    /// The peer's node has restarted.
    PeerRestarted,
    /// The heartbeat of the peer has not changed in time: its node or its system does not run. A VM
    /// that only waits for a processor of the host has 5 s.
    PeerSilent {
        /// Milliseconds since the last change of its heartbeat, by this side's clock. It exceeds
        /// [`SILENCE_NS_MAX`] if this side itself did not run all the time.
        silent_ms: u64,
    },
    /// The peer uses another version of the region's layout or of the handshake.
    WrongVersion {
        /// The version that the peer uses.
        peer: u32,
    },
    /// The peer broke the ring, or a page of the region is lost ([`Corrupt::MemoryLost`]). After a
    /// lost page the link does not recover: the device must be opened again.
    Corrupt(Corrupt),
    /// The peer broke the virtqueues.
    BrokenQueue {
        /// The peer's breach of the protocol, as text.
        what: String,
    },
    /// The peer broke the protocol above the device.
    Violation {
        /// A constant for counters.
        code: &'static str,
        /// The reason in full, as text for people.
        reason: String,
    },
}

impl DownReason {
    /// Returns a short constant by which counters name the reason.
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

/// Counters of a VMPI device since it was opened: link changes, wake-ups and records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Times that the link came up since the device was opened.
    pub ups: u64,
    /// Times that the link went down without a fault: restart, silence, detachment.
    pub downs: u64,
    /// Times that this side gave up the link because the ring was corrupt or its memory lost.
    pub corrupt: u64,
    /// Times that this side gave up the link because the peer broke the protocol above the device.
    pub violations: u64,
    /// Times that this side woke the peer.
    pub kicks: u64,
    /// Records that this side read.
    pub records_in: u64,
    /// Buffers of a virtqueue that did not contain a block, such as frames of a network driver.
    pub foreign_blocks: u64,
}
