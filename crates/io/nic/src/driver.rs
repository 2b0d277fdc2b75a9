//! Types that all drivers of cards use: settings, counts, and received frames.

use crate::dma::DmaMemory;

/// The settings of a card that its driver uses: frame and buffer sizes, rings and queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest frame that the card receives or sends, in bytes, with a VLAN tag and without FCS.
    pub frame_bytes: usize,
    /// Size of a receive or send buffer in bytes: 2048, 4096, 8192 or 16384.
    pub buffer_bytes: usize,
    /// Number of descriptors of each ring, for sending and for receiving.
    pub ring: u16,
    /// Number of queues: pairs of a receive ring and a send ring.
    pub queues: usize,
    /// Whether the card also receives frames for other stations.
    pub is_promiscuous: bool,
}

/// State of a card's link to the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether the card has a carrier.
    pub is_up: bool,
    /// Speed of the link in Mbit/s; 0 if the device does not report it.
    pub speed_mbps: u32,
}

/// Error counters of a card: frames that it received and did not deliver, and faults of
/// descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of frames that were lost because the device had no free buffer.
    pub missed: u64,
    /// Frames that the card received damaged.
    pub receive_errors: u64,
    /// Frames that were discarded because they did not fit into one buffer.
    pub too_long: u64,
    /// Number of descriptors in which the device wrote impossible values.
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
    /// Returns the length of the frame in bytes, at most the size of a buffer.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the hash that the device computed over addresses and ports; `None` if it computed
    /// none.
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
