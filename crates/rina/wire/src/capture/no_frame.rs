//! Why a packet of a capture file is no Ethernet frame.

use core::fmt;

use crate::pcapng::LinkType;

/// Why a captured packet cannot be converted to an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoFrame {
    /// The capture kept only the beginning of the packet.
    Cut,
    /// The packet is shorter than its header.
    Short,
    /// Ethernet does not carry the protocol of the packet.
    Protocol,
    /// The link type is unknown, or Ethernet does not carry its packets.
    LinkType(LinkType),
}

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoFrame::Cut => f.write_str("cut short by the capture (snap length)"),
            NoFrame::Short => f.write_str("shorter than a header"),
            NoFrame::Protocol => f.write_str("of a protocol that Ethernet does not carry"),
            NoFrame::LinkType(link) => write!(f, "of link type {link}, not Ethernet"),
        }
    }
}
