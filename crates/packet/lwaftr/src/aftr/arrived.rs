//! A packet that has arrived, and what of it is needed later.

use carina_time::Instant;
use carina_wire::inet::Ipv4Header;

/// A packet of IPv4 that came, by itself or through a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its header.
    pub header: Ipv4Header,
    /// How it came.
    pub how: How,
}

/// What decides, beside the packet, whether its sender gets errors.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// It was sent to a group of stations.
    pub is_group: bool,
    /// When it came.
    pub now: Instant,
}

/// Bytes of an outer header.
pub const OUTER_BYTES: usize = 40;

/// The header around a packet of IPv4 that came through a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// The header.
    pub header: [u8; 40],
}

impl Outer {
    /// Where it comes from, and where it goes.
    #[must_use]
    pub fn ends(&self) -> [[u8; 16]; 2] {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&self.header[8..24]);
        destination.copy_from_slice(&self.header[24..]);
        [source, destination]
    }

    /// Its traffic class.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }
}

/// Two headers are the same when they are of the same tunnel.
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
