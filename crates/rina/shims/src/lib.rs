//! The shim IPC processes: thin DIFs over media that exist already.
//!
//! Each shim is an [`IpcProcess`](carina_dataplane::IpcProcess) for the manager, and, but for the
//! loopback shim, an app that the data plane makes from an
//! [`IpcpBuilder`](carina_dataplane::IpcpBuilder):
//!
//! | shim | medium | manager's side | builder |
//! |---|---|---|---|
//! | `hv` | a VM and its host over a VMPI device | [`HvShim`] | [`HvBuilder`] |
//! | `eth` | IEEE 802.1Q, one VLAN | [`NetworkShim`] | [`EthConfig::open`] |
//! | `udp` | UDP over IPv4 and IPv6 | [`NetworkShim`] | [`UdpConfig::open`] |
//! | `tcp` | TCP over IPv4 and IPv6 | [`NetworkShim`] | [`TcpConfig::open`] |
//! | `loopback` | one system | [`Loopback`] | none: it moves no SDU |
//!
//! A new kind of shim is a module here with a builder; the data plane does not know the kinds.
#![forbid(unsafe_code)]

mod address_resolver;
mod connectable;
mod error;
mod eth;
mod flow_table;
pub mod fuzz;
mod hv;
mod hv_shim;
mod loopback;
mod network_shim;
mod retries;
mod tcp;
mod udp;

pub use error::ShimError;
pub use eth::{EthConfig, PortConfig};
pub use hv::HvBuilder;
pub use hv_shim::HvShim;
pub use loopback::Loopback;
pub use network_shim::NetworkShim;
pub use tcp::TcpConfig;
pub use udp::{UdpConfig, UdpFraming};
