//! The rings of a packet socket: how large they are, and which places are out.

/// What the rings of a socket are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Longest frame that is received or sent, MAC header and VLAN tag included, in bytes.
    pub frame_bytes_max: usize,
    /// Memory of the receive ring, in bytes: a power of two, at least 64 KiB.
    pub rx_bytes: usize,
    /// Memory of the send ring, in bytes: a power of two, at least 64 KiB.
    pub tx_bytes: usize,
    /// Frames carry what the kernel has left to the hardware ([`VNET_HEADER_BYTES`] in front of
    /// each, see `virtio_net_hdr`): segmentation and checksums.
    pub has_vnet_header: bool,
    /// Frames longer than `frame_bytes_max`, up to 64 KiB, are received whole, at the cost of a
    /// system call for each.
    pub takes_long: bool,
}

impl Layout {
    /// Rings for frames of an interface.
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

    /// Bytes of one place in a ring: a power of two, so that places fill blocks without rest.
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
    /// Where it begins in the mapping.
    pub(super) start: usize,
    pub(super) slot_bytes: usize,
    pub(super) slots: usize,
    /// The place to be used next.
    pub(super) next: usize,
    /// Places before `next` that are out: taken and not released, or filled and not sent.
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

/// Bytes of a MAC header: two addresses and an Ethertype.
pub const MAC_HEADER_BYTES: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;
/// Bytes of a `virtio_net_hdr`.
pub const VNET_HEADER_BYTES: usize = 10;

/// What the kernel may put before a frame in a place of the receive ring: the header of the place
/// and the address of the frame, aligned, with room for an aligned MAC header.
pub(super) const RX_HEADER_BYTES_MAX: usize = 96;
