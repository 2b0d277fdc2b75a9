//! The station block: page 0 of a region, where each node shows its state to the other.
//!
//! ```text
//! 0x000  magic "CARINAVM"     0x100  host:  epoch, seen, heartbeat, doorbell, flags, vector
//! 0x008  version u32          0x180  guest: the same, each u32
//! 0x010  region bytes u64
//! 0x018  ring capacity u64
//! 0x020  offset of the ring from host to guest u64, 0x028 from guest to host u64
//! ```
//!
//! Each side writes its own half, and the host writes the head. All integers are little endian. The
//! peer may change any field at any time, so the code reads each field once, into a local variable.

use std::sync::atomic::{AtomicU32, Ordering};

use carina_sys::Mapping;

use super::layout::Layout;
use crate::hl::Side;

/// The version of the region's layout and of the attach handshake.
pub(super) const VERSION: u32 = 1;

/// Flag of a side: the peer is to ring this side's doorbell when its consumer or producer is armed.
/// Without the flag, this side polls.
pub(super) const FLAG_TAKES_DOORBELL: u32 = 1;

/// Flag of a side: it can ring the peer's doorbell. Without the flag, the peer polls.
pub(super) const FLAG_RINGS: u32 = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"CARINAVM");
const HALF: [usize; 2] = [0x100, 0x180];
const EPOCH: usize = 0;
const SEEN: usize = 4;
const HEARTBEAT: usize = 8;
const DOORBELL: usize = 12;
const FLAGS: usize = 16;
const VECTOR: usize = 20;

/// Page 0 of a mapped region, seen from one side.
#[derive(Debug)]
pub(super) struct Station {
    map: Mapping,
    side: Side,
}

/// The half of the station block that one side writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Half {
    pub(super) epoch: u32,
    pub(super) seen: u32,
    pub(super) heartbeat: u32,
    pub(super) doorbell: u32,
    pub(super) flags: u32,
    /// On the host: the device's vector at which it rings. In the guest: the vector at which it has
    /// received a ring.
    pub(super) vector: u32,
}

/// The place where each side shows its half and reads the peer's.
pub(super) trait Board {
    /// Shows this side's half. The peer sees it only after everything that this side wrote before.
    fn show(&self, half: &Half);

    /// The peer's half.
    fn read_peer(&self) -> Half;

    /// The version that the peer, or the region, uses. `None` if the peer has shown nothing yet.
    fn version(&self) -> Option<u32>;
}

impl Station {
    pub(super) fn new(map: Mapping, side: Side) -> Station {
        Station { map, side }
    }

    /// Whether the page is lost, so that this side's mapping is not the memory that the peer sees.
    pub(super) fn is_lost(&self) -> bool {
        self.map.is_lost()
    }

    /// Writes the head, by which the guest recognizes the region and its version.
    pub(super) fn write_head(&self, layout: &Layout) {
        let word = |offset: usize, value: usize| {
            self.map
                .atomic_u64(offset)
                .store((value as u64).to_le(), Ordering::Relaxed);
        };
        self.map
            .atomic_u32(8)
            .store(VERSION.to_le(), Ordering::Relaxed);
        word(0x10, layout.region_bytes());
        word(0x18, layout.capacity());
        word(0x20, layout.ring_from(Side::Host));
        word(0x28, layout.ring_from(Side::Guest));
        self.map
            .atomic_u64(0)
            .store(MAGIC.to_le(), Ordering::Release);
    }

    fn field(&self, side: Side, field: usize) -> &AtomicU32 {
        self.map.atomic_u32(HALF[side as usize] + field)
    }
}

impl Board for Station {
    /// Shows this side's half. `seen` becomes visible after everything that was written before, and
    /// `epoch` after `seen`.
    fn show(&self, half: &Half) {
        let store =
            |field, value: u32, order| self.field(self.side, field).store(value.to_le(), order);
        store(HEARTBEAT, half.heartbeat, Ordering::Relaxed);
        store(DOORBELL, half.doorbell, Ordering::Relaxed);
        store(FLAGS, half.flags, Ordering::Relaxed);
        store(VECTOR, half.vector, Ordering::Relaxed);
        store(SEEN, half.seen, Ordering::Release);
        store(EPOCH, half.epoch, Ordering::Release);
    }

    /// Reads each field of the peer's half once. `epoch` is read before `seen`: if `seen` names
    /// this side's epoch, it was then written by the peer of this epoch or a later one.
    fn read_peer(&self) -> Half {
        let peer = self.side.peer();
        let load = |field, order| u32::from_le(self.field(peer, field).load(order));
        Half {
            epoch: load(EPOCH, Ordering::Acquire),
            seen: load(SEEN, Ordering::Acquire),
            heartbeat: load(HEARTBEAT, Ordering::Relaxed),
            doorbell: load(DOORBELL, Ordering::Relaxed),
            flags: load(FLAGS, Ordering::Relaxed),
            vector: load(VECTOR, Ordering::Relaxed),
        }
    }

    /// The version in the head; `None` if there is no head. On the host this is what the host
    /// wrote.
    fn version(&self) -> Option<u32> {
        if self.side == Side::Host {
            return Some(VERSION);
        }
        let magic = u64::from_le(self.map.atomic_u64(0).load(Ordering::Acquire));
        (magic == MAGIC).then(|| u32::from_le(self.map.atomic_u32(8).load(Ordering::Relaxed)))
    }
}
