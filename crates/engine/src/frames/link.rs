//! A link: a bounded queue of frames from one app to another, and what went over it.

use carina_frame::{Frame, FrameQueue, Moved};

use crate::counter_file::{Counter, CounterFile};

/// Frames that wait on a link at most.
pub const LINK_FRAMES: usize = 1024;

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
    counts: LinkCounts,
    shown: Option<[Counter; 3]>,
}

impl FrameLink {
    /// A link whose counts are shown under `name`; one without a name is internal.
    pub(super) fn new(name: Option<&str>, counters: &CounterFile) -> FrameLink {
        let counter = |name: &str, what| counters.counter(&format!("{name}/{what}"));
        FrameLink {
            queue: FrameQueue::new(LINK_FRAMES),
            counts: LinkCounts::default(),
            shown: name.map(|name| ["packets", "bytes", "drops"].map(|what| counter(name, what))),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, frame: Frame) {
        let bytes = frame.len();
        match self.queue.push(frame) {
            Ok(()) => {
                self.counts.packets += 1;
                self.counts.bytes += bytes as u64;
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
