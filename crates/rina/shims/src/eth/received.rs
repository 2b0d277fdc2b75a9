//! What a medium has received.

use carina_engine::Packet;
use carina_wire::ether::Header;

/// A received frame of the shim's VLAN with a known Ethertype.
pub(super) struct Received {
    pub header: Header,
    /// The payload of the frame, including the padding of a short frame.
    pub payload: Packet,
    /// Whether the frame was truncated, because it was longer than a slot of the ring.
    pub is_cut: bool,
}
