//! Network devices for shims and for ports of app graphs: AF_PACKET rings, AF_XDP, TAP and TUN,
//! bursts of UDP, framed TCP, and the fault layer that impairs any of them.
//!
//! This crate does not interpret SDUs. Everything is non-blocking: a device refuses what it cannot
//! take now, and its descriptor becomes ready when the caller should try again.
#![deny(unsafe_code)]

mod address;
mod bpf;
mod bridge;
mod error;
mod fault;
mod framing;
mod interface;
mod masquerade;
pub mod netlink;
mod offload;
mod packet;
mod resolve;
mod steering;
mod submission;
mod tap;
mod tcp;
mod udp;
pub mod vlan_translate;
mod vnet_header;
mod xdp;

pub use address::InterfaceAddresses;
pub use bpf::{Filter, VlanMatch};
pub use bridge::{Bridge, BridgeCounts, Change};
pub use error::{FaultPlanError, NetdevError};
pub use fault::{Fault, FaultCounts, FaultPlan};
pub use framing::{Deframer, FrameTooLong, PIECE_BYTES_MAX, StreamFraming};
pub use interface::{
    Interface, InterfaceWatch, bring_up, check_interface_name, interface_exists, interface_is_up,
    interface_mtu,
};
pub use masquerade::Masquerade;
pub use offload::{Unsupported, complete_checksum, plain_frames, word_sum};
pub use packet::{
    Layout, MAC_HEADER_BYTES, PacketSocket, Received, TAG_BYTES, Tag, VNET_HEADER_BYTES,
};
pub use resolve::{address_of_host, host_of_address};
pub use tap::{TAP_BURST, Tap, TapLayer, TapOffload, TapResult};
pub use tcp::{accept_stream, connect_stream, listen_stream};
pub use udp::{DATAGRAM_BYTES_MAX, DatagramSocket};
pub use vnet_header::{VnetHeader, VnetSegments};
pub use xdp::{XDP_FRAME_BYTES_MAX, XdpMode, XdpSocket};
