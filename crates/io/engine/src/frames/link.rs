//! A link: a bounded queue of frames from one app to another, and what went over it.

use carina_frame::{Frame, FrameQueue, Moved};
use carina_wire::pcapng::Direction;

use crate::counter_file::{Counter, CounterFile};
use crate::tap::{Tap, TapList};

/// Frames that an app pulls in one visit at most: enough to share the cost of a breath, few enough
/// that they and the links of a chain stay in the nearest cache.
pub const FRAME_BURST: usize = 128;

/// Frames that wait on a link at most.
pub const LINK_FRAMES: usize = 1024;

/// Frames that wait on a link with back-pressure at most: two bursts. More would only be older when
/// they arrive, and there are links to many slow guests.
const WAITING_MAX: usize = 2 * FRAME_BURST;

/// Frames for which a writer waits.
const WAITED_FOR: usize = FRAME_BURST / 2;

/// What went over a link since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Frames that were put on it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that were dropped because it was full.
    pub drops: u64,
}

pub(super) struct FrameLink {
    pub(super) queue: FrameQueue,
    /// The app that puts frames here waits while there is no room.
    pub(super) has_back_pressure: bool,
    counts: LinkCounts,
    shown: Option<[Counter; 3]>,
    /// Who wants copies of what goes over it.
    taps: TapList,
}

impl FrameLink {
    /// A link whose counts are shown under `name`; one without a name is internal.
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

    /// Frames that may be put on the link at present. With back-pressure this is 0 until there is
    /// room for a good part of a burst, so that a slow reader is not served frame by frame.
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

    /// Puts frames on the link until `make` gives no more, `max` were put, or the link is full.
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

    /// Shows the frames that were put on the link last to those who trace it.
    #[cold]
    fn copy(&mut self, packets: usize) {
        let before = self.queue.len() - packets;
        for frame in self.queue.iter().skip(before) {
            self.taps.copy_bytes(Direction::Unknown, frame.bytes());
        }
    }

    /// Copies what goes over the link from here on to a tap.
    pub(super) fn trace(&mut self, tap: Tap) {
        self.taps.add(tap);
    }

    /// False for a link that is internal, or counted by another network.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    pub(super) fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Shows the counts to other processes.
    pub(super) fn publish(&self) {
        let Some([packets, bytes, drops]) = &self.shown else {
            return;
        };
        packets.set(self.counts.packets);
        bytes.set(self.counts.bytes);
        drops.set(self.counts.drops);
    }
}
