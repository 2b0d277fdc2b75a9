//! What one side of a link accepts.

use carina_wire::vmpi::HEADER_BYTES;

use super::{Limits, Side};

/// Configuration of one side: its name, and the limits of what it accepts from the peer.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which side this system is: host or guest.
    pub side: Side,
    /// Name of this system, which HELLO carries to the peer.
    pub name: String,
    /// Longest SDU that this side sends or accepts, in bytes.
    pub sdu_bytes_max: u64,
    /// Longest piece of an SDU that this side sends or accepts, in bytes without header. At most a
    /// quarter of the ring, so that pieces of several channels interleave.
    pub piece_bytes_max: u32,
    /// Largest number of channels that the peer may have open at its request.
    pub channels_max: u16,
    /// Longest bundle that this side sends or accepts, in bytes without header; 0 for none.
    pub bundle_bytes_max: u32,
}

impl Config {
    /// Default of [`Config::channels_max`].
    pub const CHANNELS_MAX: u16 = 1024;

    /// Default of `bundle_bytes_max`, in bytes; a small device has less. At this length the fixed
    /// cost of a bundle is small compared with the cost of its bytes, and an app moves as much in
    /// one call.
    pub const BUNDLE_BYTES_MAX: u32 = 64 << 10;

    /// Makes the default configuration for a device whose records carry up to `record_bytes_max`
    /// bytes.
    pub fn new(side: Side, name: impl Into<String>, record_bytes_max: usize) -> Config {
        let piece = (record_bytes_max / 4).saturating_sub(HEADER_BYTES).max(64);
        Config {
            side,
            name: name.into(),
            sdu_bytes_max: 1 << 30,
            piece_bytes_max: u32::try_from(piece).unwrap_or(u32::MAX),
            channels_max: Config::CHANNELS_MAX,
            bundle_bytes_max: u32::try_from(piece & !7)
                .unwrap_or(u32::MAX)
                .min(Config::BUNDLE_BYTES_MAX),
        }
    }

    /// This side's own limits.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            sdu_bytes_max: self.sdu_bytes_max,
            piece_bytes_max: self.piece_bytes_max,
            channels_max: self.channels_max,
            bundle_bytes_max: self.bundle_bytes_max,
        }
    }
}
