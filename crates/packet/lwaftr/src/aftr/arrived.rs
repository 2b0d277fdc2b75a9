//! An IPv4 packet that has arrived, with the facts about its arrival that are needed later.

use carina_time::Instant;
use carina_wire::inet::Ipv4Header;

/// An IPv4 packet that has arrived, by itself or through a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    /// The packet's IPv4 header.
    pub header: Ipv4Header,
    /// Facts about the arrival that decide whether the AFTR may answer with an ICMP error.
    pub how: How,
}

/// What decides, apart from the packet itself, whether the AFTR may answer it with an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Whether the packet was sent to a multicast or broadcast MAC address.
    pub is_group: bool,
    /// Time at which the packet arrived.
    pub now: Instant,
}

/// Length of an outer header, in bytes.
pub(super) const OUTER_BYTES: usize = 40;

/// The IPv6 header around an IPv4 packet that came through a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outer {
    /// The header's bytes.
    pub header: [u8; 40],
}

impl Outer {
    /// The source and the destination address.
    #[must_use]
    pub(super) fn ends(&self) -> [[u8; 16]; 2] {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&self.header[8..24]);
        destination.copy_from_slice(&self.header[24..]);
        [source, destination]
    }

    /// The traffic class.
    #[must_use]
    pub(super) fn class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }
}

/// Two outer headers are equal when their source and destination are: then they belong to one
/// tunnel.
impl PartialEq for Outer {
    fn eq(&self, other: &Outer) -> bool {
        self.ends() == other.ends()
    }
}

impl Eq for Outer {}

impl std::hash::Hash for Outer {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ends().hash(state);
    }
}
