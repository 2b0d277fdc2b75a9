//! Apps of frames through which a graph meets the system: interfaces of the kernel, cards of
//! guests.
//!
//! Each opens with the same block as the [stock apps](carina_apps). All have an `input`, for frames
//! that leave the graph there, and an `output`, for frames that come in.
//!
//! | app | is |
//! |---|---|
//! | [`af_packet`] | an Ethernet interface beside the kernel's own stack |
//! | [`af_xdp`] | one queue of an Ethernet interface, past the kernel's stack |
//! | [`pci`] | a network card that this process drives itself, past the kernel |
//! | [`tap`], [`tun`] | an interface that the kernel's stack uses, and this graph is its wire |
//! | [`vhost_user`] | the network card of a guest |
//!
//! Frames are as on a wire, with tags and checksums in their bytes, unless `offload = true`: then
//! [metadata](carina_frame::Metadata) says what is left to be done. What a port cannot leave to the
//! other side it does itself when a frame goes out.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod offload;
pub mod pci;
pub mod state;
pub mod tap;
pub mod tun;
pub mod vhost_user;

use carina_apps::graph_file::Kind;

/// The kinds of apps of this crate, for files of graphs.
pub const KINDS: [Kind; 6] = [
    Kind::of::<af_packet::AfPacketConfig>(),
    Kind::of::<af_xdp::AfXdpConfig>(),
    Kind::of::<pci::PciConfig>(),
    Kind::of::<tap::TapConfig>(),
    Kind::of::<tun::TunConfig>(),
    Kind::of::<vhost_user::VhostUserConfig>(),
];
