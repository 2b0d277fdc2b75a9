//! Metadata of a frame: information beside its bytes.

use carina_time::Instant;

/// A transport checksum that a device is to fill in: the sum over the bytes from `start` to the
/// end, folded and complemented, goes to `start + offset`. (VIRTIO 1.2 §5.1.6.2,
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// Offset of the first byte that the checksum covers, in bytes from the start of the frame.
    pub start: u16,
    /// Where the sum is stored, in bytes from `start`.
    pub offset: u16,
}

/// How a device or an app must cut a frame that is longer than the MTU into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Protocol of the frame, which decides how headers change from segment to segment.
    pub kind: SegmentationKind,
    /// Number of payload bytes of each segment.
    pub size: u16,
    /// Length in bytes of the frame's headers. Each segment begins with a copy of these headers.
    pub headers: u16,
}

/// Protocol of a frame that is cut into segments. (VIRTIO 1.2 §5.1.6, `gso_type`)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentationKind {
    /// TCP over IPv4.
    #[default]
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, each segment a datagram of its own.
    Udp,
}

/// All metadata of a frame. `None` and `false` mean that the value is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Tag control information of a VLAN tag that a device has removed, or must insert; `None` if
    /// there is no such tag. (IEEE 802.1Q §9.6)
    pub vlan: Option<u16>,
    /// A transport checksum that a device must still fill in; `None` if none is missing.
    pub checksum: Option<Checksum>,
    /// Whether all checksums of the frame were checked and are correct.
    pub is_checksum_valid: bool,
    /// How the frame must still be cut into segments; `None` if it need not be cut.
    pub segmentation: Option<Segmentation>,
    /// Hash over the addresses and ports of the frame's flow, as a device computed it; `None` if no
    /// device did.
    pub hash: Option<u32>,
    /// Time at which the frame arrived at the host, by the clock of the engine. `None`: unknown;
    /// the app `pcap_write` then uses the time at which it receives the frame.
    pub time: Option<Instant>,
}

/// Bits for the metadata values that are valid. In a new frame none is set, at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known(pub(crate) u8);

impl Known {
    pub(crate) const NOTHING: Known = Known(0);
    pub(crate) const VLAN: Known = Known(1);
    pub(crate) const CHECKSUM: Known = Known(2);
    pub(crate) const CHECKSUM_VALID: Known = Known(4);
    pub(crate) const SEGMENTATION: Known = Known(8);
    pub(crate) const HASH: Known = Known(16);
    pub(crate) const TIME: Known = Known(32);

    #[inline]
    pub(crate) fn has(self, what: Known) -> bool {
        self.0 & what.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, what: Known, is_known: bool) {
        self.0 = if is_known {
            self.0 | what.0
        } else {
            self.0 & !what.0
        };
    }
}
