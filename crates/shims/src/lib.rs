//! IPC processes, shims and normal ones, and the data plane they run on.
//!
//! The manager sees shims through [`Shim`]: names are registered, flows are asked for, and a
//! request that cannot be met is refused with a reason. What moves SDUs is the [`DataPlane`], a
//! thread that takes [`Command`]s and gives [`Event`]s:
//!
//! - an hv shim is an app over a VMPI device; each of its flows is an app over the ring or socket
//!   that the application holds the other end of;
//! - a normal IPCP is an app around [`carina_ipcp`]; its N-1 flows end in it without a ring, so
//!   that DIFs stack to any depth within one breath;
//! - a shim over a network (`eth`, `udp`, `tcp`) is an app over its sockets, with flow apps as
//!   above;
//! - the loopback shim joins two applications of one system and moves nothing; only two ends of
//!   different kinds are relayed by the data plane.
#![forbid(unsafe_code)]

mod board;
mod book;
mod command;
mod eth;
mod flow;
pub mod fuzz;
mod hub;
mod hv;
mod hv_shim;
mod loopback;
mod mailbox;
mod medium;
mod normal;
mod normal_shim;
mod offered;
mod plane;
mod retries;
mod ring_flow;
mod shim;
mod socket_flow;
mod tap;
mod tcp;
mod udp;

pub use command::{Command, Event, FlowEnd, NewNormal};
pub use eth::EthConfig;
pub use hv_shim::HvShim;
pub use loopback::Loopback;
pub use mailbox::Mailbox;
pub use medium::{Medium, MediumShim};
pub use normal_shim::NormalShim;
pub use offered::Offered;
pub use plane::DataPlane;
pub use shim::{Call, Refusal, Shim};
pub use socket_flow::SOCKET_SDU_MAX;
pub use tap::{Batch, Tap, TapReader, Tapped};
pub use tcp::TcpConfig;
pub use udp::{UdpConfig, UdpFraming};
