//! What drivers of cards share: their settings, counts, and received frames.

use crate::dma::DmaMemory;

/// The configuration of a card in the figures of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest frame with its tag, without FCS, in bytes.
    pub frame_bytes: usize,
    /// Bytes of a buffer: 2048, 4096, 8192 or 16384.
    pub buffer_bytes: usize,
    /// Descriptors of each ring.
    pub ring: u16,
    /// Pairs of rings.
    pub queues: usize,
    /// Frames for other stations are received too.
    pub is_promiscuous: bool,
}

/// How a card's link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Frames pass.
    pub is_up: bool,
    /// Mbit/s; 0: the device does not say.
    pub speed_mbps: u32,
}

/// What was counted of a card, beside the frames that were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames for which the device had no buffer.
    pub missed: u64,
    /// Frames that came damaged.
    pub receive_errors: u64,
    /// Frames that did not fit into one buffer.
    pub too_long: u64,
    /// What the device wrote into a ring and cannot be.
    pub bad_descriptors: u64,
}

/// A frame that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub(crate) memory: &'a DmaMemory,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) hash: Option<u32>,
}

impl Received<'_> {
    /// Its bytes, at most those of a buffer.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The hash over its addresses and ports, where the device made one.
    #[must_use]
    pub fn hash(&self) -> Option<u32> {
        self.hash
    }

    /// Copies as many of its bytes as `to` has.
    ///
    /// # Panics
    /// When it has fewer.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} of {} bytes", to.len(), self.len);
        self.memory.read(self.offset, to);
    }
}
