//! The rings of a packet socket: their sizes, and which slots are in use.

/// Sizes and options of the two rings of a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Longest frame to receive or send, MAC header and VLAN tag included, in bytes.
    pub frame_bytes_max: usize,
    /// Memory of the receive ring, in bytes: a power of two, at least 64 KiB.
    pub rx_bytes: usize,
    /// Memory of the send ring, in bytes: a power of two, at least 64 KiB.
    pub tx_bytes: usize,
    /// Each frame has a `virtio_net_hdr` of [`VNET_HEADER_BYTES`] in front of it. It states the
    /// work that the kernel left to the hardware: segmentation and checksums.
    pub has_vnet_header: bool,
    /// Frames longer than `frame_bytes_max`, up to 64 KiB, are received completely, with one system
    /// call for each.
    pub takes_long: bool,
}

impl Layout {
    /// Returns the layout for frames of an interface with this MTU, in bytes.
    #[must_use]
    pub fn for_mtu(mtu: usize) -> Layout {
        Layout {
            frame_bytes_max: mtu + MAC_HEADER_BYTES + TAG_BYTES,
            rx_bytes: 4 << 20,
            tx_bytes: 2 << 20,
            has_vnet_header: false,
            takes_long: false,
        }
    }

    /// This layout, but with rings of other sizes: the receive ring has `rx_bytes`, a power of two,
    /// and the send ring half of it. If fewer than 32 frames fit into that, the rings are larger.
    #[must_use]
    pub fn with_rings(self, rx_bytes: usize) -> Layout {
        let rx_bytes = rx_bytes
            .max(SLOTS_MIN * self.slot_bytes())
            .max(RING_MIN * 2);
        Layout {
            rx_bytes,
            tx_bytes: rx_bytes / 2,
            ..self
        }
    }

    /// Size of one slot of a ring in bytes: a power of two, so that slots fill the kernel's blocks
    /// exactly.
    pub(super) fn slot_bytes(&self) -> usize {
        let vnet = if self.has_vnet_header {
            VNET_HEADER_BYTES
        } else {
            0
        };
        (RX_HEADER_BYTES_MAX + vnet + self.frame_bytes_max).next_power_of_two()
    }

    pub(super) fn vnet_bytes(&self) -> usize {
        if self.has_vnet_header {
            VNET_HEADER_BYTES
        } else {
            0
        }
    }
}

/// One of the two rings of a socket.
#[derive(Debug)]
pub(super) struct Ring {
    /// Offset of the ring in the mapping.
    pub(super) start: usize,
    pub(super) slot_bytes: usize,
    pub(super) slots: usize,
    /// The slot that is used next.
    pub(super) next: usize,
    /// Number of slots before `next` that are in use: received and not released, or filled and not
    /// sent.
    pub(super) out: usize,
}

impl Ring {
    pub(super) fn at(&self, slot: usize) -> usize {
        self.start + slot * self.slot_bytes
    }

    pub(super) fn oldest(&self) -> usize {
        (self.next + self.slots - self.out) % self.slots
    }

    pub(super) fn advance(&mut self) {
        self.next = (self.next + 1) % self.slots;
        self.out += 1;
    }
}

/// Fewest frames that the receive ring of [`Layout::with_rings`] holds.
const SLOTS_MIN: usize = 32;
/// Memory of the smallest ring, in bytes.
const RING_MIN: usize = 64 << 10;

/// Size of a MAC header in bytes: two addresses and an Ethertype.
pub const MAC_HEADER_BYTES: usize = 14;
/// Size of a VLAN tag in bytes.
pub const TAG_BYTES: usize = 4;
/// Size of a `virtio_net_hdr` in bytes.
pub const VNET_HEADER_BYTES: usize = 10;

/// Largest number of bytes that the kernel puts in front of a frame in a receive slot: the slot's
/// header and the sender's address, aligned, with room for an aligned MAC header.
pub(super) const RX_HEADER_BYTES_MAX: usize = 96;
