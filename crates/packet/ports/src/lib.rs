//! Apps that connect a graph of frames to the system: interfaces of the kernel, network cards, and
//! the cards of guests.
//!
//! Each app's module begins with the same block as those of the [stock apps](carina_apps). Every
//! app has an `input`, for frames that leave the graph, and an `output`, for frames that enter it.
//!
//! | app | connects the graph to |
//! |---|---|
//! | [`af_packet`] | an Ethernet interface that the kernel's stack also uses |
//! | [`af_xdp`] | one queue of an Ethernet interface, bypassing the kernel's stack |
//! | [`pci`] | a network card that this process drives itself, without the kernel |
//! | [`tap`], [`tun`] | the kernel's stack, through an interface whose other end is the graph |
//! | [`vhost_user`] | the network card of a guest |
//!
//! Frames have their tags and checksums in their bytes, as on a wire, unless `offload = true`. Then
//! [metadata](carina_frame::Metadata) can note a missing checksum or pending segmentation. When
//! such a frame leaves through a port whose other side cannot do this work, the port does it.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod offload;
pub mod pci;
pub mod state;
pub mod tap;
pub mod tun;
pub mod vhost_user;

use carina_graph::graph_file::Kind;

/// The kinds of apps in this crate, to be used in graph files.
pub const KINDS: [Kind; 6] = [
    Kind::of::<af_packet::AfPacketConfig>(),
    Kind::of::<af_xdp::AfXdpConfig>(),
    Kind::of::<pci::PciConfig>(),
    Kind::of::<tap::TapConfig>(),
    Kind::of::<tun::TunConfig>(),
    Kind::of::<vhost_user::VhostUserConfig>(),
];
