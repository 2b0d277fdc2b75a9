//! The data plane of SDUs: packets, links, apps, and the breath.
//!
//! One [`Engine`] runs on one thread. It holds [`App`]s (devices, ends of flows) that are connected
//! by links, and it *breathes*: sources pull a burst from outside and put it on links, and sinks
//! push it outside. Then what was read is released and what was written is published, each once per
//! burst. A payload is copied once, from the ring it came from to the ring it goes to.
//!
//! SDUs of flows are [`Packet`]s on links with credit. Frames of network cards, guests and tunnels
//! have a graph of their own, in the crate `carina-frame-engine`. [`NetworkApp`] runs one in the
//! same breath.
//!
//! There are no locks and no allocation per packet, and no app is visited without a reason. An app
//! without work asks for a doorbell and costs nothing until it rings.
#![forbid(unsafe_code)]

pub mod app;
pub mod breath;
pub mod counters;
pub mod credit;
pub mod ids;
pub mod link;
pub mod network_app;
pub mod packet;
pub mod pool;

pub use app::{App, BURST, BURST_BYTES};
pub use breath::Engine;
pub use credit::{Close, Credit};
pub use ids::{AppId, LinkId};
pub use link::{BundleLimits, Links};
pub use network_app::NetworkApp;
pub use packet::{Packet, record_cost};
pub use pool::{Buffer, Pool, Shared};
