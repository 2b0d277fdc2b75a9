//! The progress of the device half of a packed ring, in memory that outlives its process.
//!
//! A split ring holds its own progress: the index of its used ring is in the guest's memory. A
//! packed ring does not. A front end whose back end died knows only the position at which that back
//! end began (QEMU, "vhost" in `hw/virtio`). This memory holds what the back end's successor needs:
//!
//! ```text
//!  0 committed u16, pending u16    next place to be used; another one while a burst is published
//!  4 state u32                     RUNNING, or anything else
//!  8 last u64                      the last used descriptor: place u16, id u16, length u32
//! 16 descriptors u64               where the ring lies, as the front end says
//! 24 size u32, begin u32           and where it was to begin
//! 32 count u32                     descriptors of the burst that is published
//! 64 count of u64                  those descriptors, each as `last`
//! ```
//!
//! A burst is written here before it is written into the ring. In the ring its first descriptor is
//! written last. While that descriptor is still available, the driver has seen none of the burst,
//! and a successor can write the whole burst again.
//!
//! The guest may have restarted the ring while there was no back end. A successor therefore uses
//! the progress only if the last used descriptor is unchanged, or if the driver has made it
//! available again in the next lap.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use carina_sys::Mapping;

use crate::packed_layout::{AVAILABLE, PackedMemory, PackedPosition, USED, UsedDescriptor};
use crate::setup::RingConfig;

/// The memory in which the device half of one packed ring records its progress.
#[derive(Clone, Debug)]
pub struct PackedProgress {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl PackedProgress {
    /// Size in bytes of the memory for the progress of one ring.
    pub const BYTES: usize = BURST_AT + 8 * BURST_MAX;

    /// Opens the memory at `offset` of a mapping; `None` if it is not within the mapping, or not
    /// aligned to 8 bytes.
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> Option<PackedProgress> {
        let end = offset.checked_add(Self::BYTES)?;
        let is_possible = end <= mapping.len() && offset.is_multiple_of(8);
        is_possible.then_some(PackedProgress { mapping, offset })
    }

    /// Marks the progress as invalid, because the ring was stopped in order and its front end knows
    /// the position.
    pub fn forget(&self) {
        self.mapping
            .atomic_u32(self.offset + STATE)
            .store(0, Ordering::Release);
    }

    /// Whether the ring is running, or its device half died while it ran.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.word(STATE) == RUNNING
    }

    /// Records that the ring starts with its next used descriptor at `used`. `begin` is the
    /// position that the front end gave.
    pub(crate) fn start(&self, config: &RingConfig, begin: u32, used: PackedPosition) {
        self.forget();
        let set = |at: usize, value: u32| {
            let word = self.mapping.atomic_u32(self.offset + at);
            word.store(value, Ordering::Relaxed);
        };
        set(POSITIONS, twice(used));
        set(SIZE, config.size.into());
        set(BEGIN, begin);
        let address = self.mapping.atomic_u64(self.offset + DESCRIPTORS);
        address.store(config.descriptors, Ordering::Relaxed);
        let state = self.mapping.atomic_u32(self.offset + STATE);
        state.store(RUNNING, Ordering::Release);
    }

    /// Records a burst before it is written into the ring. `to` is the position behind the burst.
    #[inline]
    pub(crate) fn publishing(&self, burst: &[UsedDescriptor], to: PackedPosition) {
        let Some(first) = burst.first() else { return };
        if burst.len() > BURST_MAX {
            // The burst is too long for this memory. Until it is published, a successor knows only
            // what the front end knows.
            return self.forget();
        }
        for (number, used) in burst.iter().enumerate() {
            let place = self.offset + BURST_AT + 8 * number;
            let place = self.mapping.atomic_u64(place);
            place.store(used.word(), Ordering::Relaxed);
        }
        let count = self.mapping.atomic_u32(self.offset + COUNT);
        count.store(burst.len() as u32, Ordering::Relaxed);
        let both = u32::from(first.at.0) | u32::from(to.0) << 16;
        let positions = self.mapping.atomic_u32(self.offset + POSITIONS);
        positions.store(both, Ordering::Release);
        // The burst must be stored here before it is stored in the ring: the process may end
        // between any two stores.
        fence(Ordering::Release);
    }

    /// Records that the burst is written into the ring.
    #[inline]
    pub(crate) fn published(&self, burst: &[UsedDescriptor], to: PackedPosition) {
        let Some(last) = burst.last() else { return };
        let place = self.mapping.atomic_u64(self.offset + LAST);
        place.store(last.word(), Ordering::Release);
        let positions = self.mapping.atomic_u32(self.offset + POSITIONS);
        positions.store(twice(to), Ordering::Release);
        if burst.len() > BURST_MAX {
            let state = self.mapping.atomic_u32(self.offset + STATE);
            state.store(RUNNING, Ordering::Release);
        }
    }

    /// The position at which the predecessor of a device half stopped. `None` unless the
    /// predecessor ran the same ring, which began at `begin`, and the driver has not restarted the
    /// ring since. If the predecessor died while it published a burst, this call completes the
    /// burst.
    pub(crate) fn of_predecessor(
        &self,
        config: &RingConfig,
        begin: u32,
        ring: &PackedMemory,
    ) -> Option<PackedPosition> {
        let descriptors = self.mapping.atomic_u64(self.offset + DESCRIPTORS);
        let is_same = self.is_running()
            && self.word(SIZE) == u32::from(config.size)
            && self.word(BEGIN) == begin
            && descriptors.load(Ordering::Relaxed) == config.descriptors;
        if !is_same {
            return None;
        }
        let positions = self.word(POSITIONS);
        let committed = PackedPosition(positions as u16);
        let pending = PackedPosition((positions >> 16) as u16);
        let last = self.used(LAST);
        let places = [committed, pending, last.at];
        if places.iter().any(|place| place.index() >= ring.size) {
            return None;
        }
        let is_unseen = is_available(ring, committed);
        let at = if is_unseen { committed } else { pending };
        let has_wrapped = flags(ring, last.at) == last.at.other_lap().available();
        // The driver makes the last used descriptor available again only when the ring is full.
        let is_genuine = is_returned(ring, last) || has_wrapped && is_available(ring, at);
        if !is_genuine {
            return None;
        }
        if is_unseen && pending != committed {
            let count = (self.word(COUNT) as usize).min(BURST_MAX);
            let burst = (0..count).map(|number| self.used(BURST_AT + 8 * number));
            let burst: Vec<UsedDescriptor> = burst.collect();
            let is_right = |used: &UsedDescriptor| used.at.index() < ring.size;
            if burst.first().map(|used| used.at) != Some(committed) || !burst.iter().all(is_right) {
                return None;
            }
            ring.store_used(&burst);
        }
        Some(pending)
    }

    fn used(&self, at: usize) -> UsedDescriptor {
        let word = self.mapping.atomic_u64(self.offset + at);
        let word = word.load(Ordering::Acquire);
        UsedDescriptor {
            at: PackedPosition(word as u16),
            id: (word >> 16) as u16,
            len: (word >> 32) as u32,
        }
    }

    fn word(&self, at: usize) -> u32 {
        let word = self.mapping.atomic_u32(self.offset + at);
        word.load(Ordering::Acquire)
    }
}

fn twice(at: PackedPosition) -> u32 {
    u32::from(at.0) | u32::from(at.0) << 16
}

fn flags(ring: &PackedMemory, at: PackedPosition) -> u16 {
    ring.flags(at).load(Ordering::Acquire) & (AVAILABLE | USED)
}

fn is_available(ring: &PackedMemory, at: PackedPosition) -> bool {
    flags(ring, at) == at.available()
}

/// Whether a descriptor is still as the device returned it. In a new ring of zeros it has no
/// address.
fn is_returned(ring: &PackedMemory, used: UsedDescriptor) -> bool {
    let (address, len, id) = ring.load(used.at);
    flags(ring, used.at) == used.at.used() && (len, id) == (used.len, used.id) && address != 0
}

const POSITIONS: usize = 0;
const STATE: usize = 4;
const LAST: usize = 8;
const DESCRIPTORS: usize = 16;
const SIZE: usize = 24;
const BEGIN: usize = 28;
const COUNT: usize = 32;
const BURST_AT: usize = 64;

/// Number of descriptors of the longest burst that can be recorded.
const BURST_MAX: usize = 248;

/// Value of the state of a running ring.
const RUNNING: u32 = 0x6b72_0001;
