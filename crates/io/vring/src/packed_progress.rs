//! How far the device half of a packed ring has come, in memory that outlives its process.
//!
//! A split ring says so itself: the index of its used ring is in the guest's memory. A packed ring
//! does not, and a front end whose back end died knows only where the back end began (QEMU, "vhost"
//! in `hw/virtio`). Here is what is missing, for the back end's successor:
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
//! A burst is written here before it is written into the ring, where the first of its descriptors
//! comes last: while that is available the driver has seen none of them, and all can be written
//! once more.
//!
//! The guest may have begun anew while no back end was there. So the last used descriptor must
//! still be what it was, or the driver must have come around to it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use carina_sys::Mapping;

use crate::packed_layout::{AVAILABLE, PackedMemory, PackedPosition, USED, UsedDescriptor};
use crate::setup::RingConfig;

/// The memory of one packed ring.
#[derive(Clone, Debug)]
pub struct PackedProgress {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl PackedProgress {
    /// Bytes of one ring.
    pub const BYTES: usize = BURST_AT + 8 * BURST_MAX;

    /// The memory that begins `offset` bytes into a mapping; `None` when it is not within the
    /// mapping, or not aligned to 8 bytes.
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> Option<PackedProgress> {
        let end = offset.checked_add(Self::BYTES)?;
        let is_possible = end <= mapping.len() && offset.is_multiple_of(8);
        is_possible.then_some(PackedProgress { mapping, offset })
    }

    /// The ring was stopped in order: its front end knows where it goes on.
    pub fn forget(&self) {
        self.mapping
            .atomic_u32(self.offset + STATE)
            .store(0, Ordering::Release);
    }

    /// True while a ring runs, or when its device half has died.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.word(STATE) == RUNNING
    }

    /// A ring begins at `used`, where its front end said `begin`.
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

    /// A burst is about to be written into the ring, and `to` is the place behind it.
    #[inline]
    pub(crate) fn publishing(&self, burst: &[UsedDescriptor], to: PackedPosition) {
        let Some(first) = burst.first() else { return };
        if burst.len() > BURST_MAX {
            // A successor does not know better than the front end until it is published.
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
        // What goes into the ring is not stored before: the process may end between any two stores.
        fence(Ordering::Release);
    }

    /// It is written.
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

    /// Where the predecessor of a device half stopped, if it ran this very ring, which began at
    /// `begin`, and the driver has not begun anew since.
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
        // The driver comes around to the last used descriptor only when the ring is full.
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

/// Whether a descriptor is as the device returned it. In the zeros of a new ring it has no address.
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

/// Descriptors of the longest burst.
const BURST_MAX: usize = 248;

/// A ring runs.
const RUNNING: u32 = 0x6b72_0001;
