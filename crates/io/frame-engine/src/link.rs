//! Links: bounded queues of frames from one app to another, with counters.

use carina_frame::{Frame, FrameQueue, Moved};
use carina_wire::pcapng::Direction;

use crate::counter_file::{Counter, CounterFile};
use crate::tap::{Tap, TapList};

/// Largest number of frames that an app pulls in one visit: enough to share the cost of a breath,
/// few enough that the frames and the links of a chain stay in the nearest cache.
pub const FRAME_BURST: usize = 128;

/// Number of frames that fit on a link; a further frame waits or is dropped.
pub const LINK_FRAMES: usize = 1024;

/// Largest number of frames that wait on a link with back-pressure: two bursts. More frames would
/// only be older on arrival, and there may be links to many slow guests.
const WAITING_MAX: usize = 2 * FRAME_BURST;

/// Number of free places that a writer waits for.
const WAITED_FOR: usize = FRAME_BURST / 2;

/// Frames that passed a link, and frames that it dropped, since the link was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Number of frames that were put on the link.
    pub packets: u64,
    /// Total bytes of the frames that were put on the link.
    pub bytes: u64,
    /// Number of frames that were dropped because the link was full.
    pub drops: u64,
}

pub(super) struct FrameLink {
    pub(super) queue: FrameQueue,
    /// Whether the app that puts frames on this link waits while the link has no room.
    pub(super) has_back_pressure: bool,
    counts: LinkCounts,
    shown: Option<[Counter; 3]>,
    /// The captures of this link.
    taps: TapList,
}

impl FrameLink {
    /// Creates a link. Its counts are shown under `name`; without a name, the link is internal.
    pub(super) fn new(name: Option<&str>, counters: &CounterFile) -> FrameLink {
        let counter = |name: &str, what| counters.counter(&format!("{name}/{what}"));
        FrameLink {
            queue: FrameQueue::new(LINK_FRAMES),
            has_back_pressure: false,
            counts: LinkCounts::default(),
            shown: name.map(|name| ["packets", "bytes", "drops"].map(|what| counter(name, what))),
            taps: TapList::default(),
        }
    }

    /// Number of frames that may now be put on the link. With back-pressure it is 0 until a good
    /// part of a burst has room, so that a slow reader is not served frame by frame.
    #[inline]
    pub(super) fn room(&self) -> usize {
        match self.free() {
            0..WAITED_FOR if self.has_back_pressure => 0,
            free => free,
        }
    }

    #[inline]
    fn free(&self) -> usize {
        if self.has_back_pressure {
            WAITING_MAX.saturating_sub(self.queue.len())
        } else {
            self.queue.room()
        }
    }

    /// Puts frames on the link until `make` returns `None`, `max` frames were put, or the link is
    /// full.
    #[inline]
    pub(super) fn fill(&mut self, max: usize, make: impl FnMut() -> Option<Frame>) -> usize {
        let moved = self.queue.fill(max.min(self.free()), make);
        self.count(moved);
        moved.packets
    }

    #[inline]
    pub(super) fn push(&mut self, frame: Frame) {
        let bytes = frame.len();
        match self.queue.push(frame) {
            Ok(()) => {
                self.counts.packets += 1;
                self.counts.bytes += bytes as u64;
                if self.taps.is_on() {
                    self.copy(1);
                }
            }
            Err(frame) => {
                self.counts.drops += 1;
                drop(frame);
            }
        }
    }

    #[inline]
    pub(super) fn count(&mut self, moved: Moved) {
        self.counts.packets += moved.packets as u64;
        self.counts.bytes += moved.bytes as u64;
        self.counts.drops += moved.overflowed as u64;
        if self.taps.is_on() {
            self.copy(moved.packets);
        }
    }

    /// Copies the last `packets` frames of the link to its taps.
    #[cold]
    fn copy(&mut self, packets: usize) {
        let before = self.queue.len() - packets;
        for frame in self.queue.iter().skip(before) {
            self.taps.copy_bytes(Direction::Unknown, frame.bytes());
        }
    }

    /// Copies every frame that is put on the link from now on to a tap.
    pub(super) fn trace(&mut self, tap: Tap) {
        self.taps.add(tap);
    }

    /// Whether this network counts the link: false for an internal link, or one that another
    /// network counts.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    pub(super) fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Writes the counts to the counter file.
    pub(super) fn publish(&self) {
        let Some([packets, bytes, drops]) = &self.shown else {
            return;
        };
        packets.set(self.counts.packets);
        bytes.set(self.counts.bytes);
        drops.set(self.counts.drops);
    }
}
