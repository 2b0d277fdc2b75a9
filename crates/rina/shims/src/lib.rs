//! The shim IPC processes: thin DIFs over existing media.
//!
//! Each shim has an [`IpcProcess`](carina_dataplane::IpcProcess) for the manager. Each except the
//! loopback shim also has an app, which the data plane creates from an
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
//! To add a kind of shim, add a module with a builder here. The data plane does not depend on the
//! kinds.
#![forbid(unsafe_code)]

mod address_resolver;
mod connectable;
mod error;
mod eth;
mod flow_table;
#[cfg(any(test, feature = "fuzzing"))]
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
