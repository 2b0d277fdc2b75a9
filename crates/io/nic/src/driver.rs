//! Types that all drivers of cards use: settings, counts, and received frames.

use crate::dma::DmaMemory;

/// The configuration of a card, in the units of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest frame in bytes, with a VLAN tag and without FCS.
    pub frame_bytes: usize,
    /// Size of a buffer in bytes: 2048, 4096, 8192 or 16384.
    pub buffer_bytes: usize,
    /// Number of descriptors of each ring.
    pub ring: u16,
    /// Number of pairs of rings.
    pub queues: usize,
    /// Whether the card also receives frames for other stations.
    pub is_promiscuous: bool,
}

/// State of a card's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether the link is up.
    pub is_up: bool,
    /// Speed in Mbit/s; 0 if the device does not report it.
    pub speed_mbps: u32,
}

/// Counts of a card's errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were lost because the device had no free buffer.
    pub missed: u64,
    /// Frames that arrived damaged.
    pub receive_errors: u64,
    /// Frames that did not fit into one buffer.
    pub too_long: u64,
    /// Descriptors in which the device wrote impossible values.
    pub bad_descriptors: u64,
}

/// A received frame, still in the card's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub(crate) memory: &'a DmaMemory,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) hash: Option<u32>,
}

impl Received<'_> {
    /// Length of the frame in bytes, at most that of a buffer.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The hash over addresses and ports; `None` if the device did not compute one.
    #[must_use]
    pub fn hash(&self) -> Option<u32> {
        self.hash
    }

    /// Copies the first `to.len()` bytes of the frame.
    ///
    /// # Panics
    /// The frame is shorter than `to`.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} of {} bytes", to.len(), self.len);
        self.memory.read(self.offset, to);
    }
}
