//! A gateway between sockets of the kernel and applications in DIFs: it makes servers reachable by
//! application names, and application names reachable by sockets.
//!
//! ```text
//!  client == TCP == [connect]--node----DIF----node--[expose] == TCP == server
//! ```
//!
//! An exposed service (`expose`) registers a name. For each requested flow it connects to its
//! server and attaches the connection to the flow. A connector (`connect`) listens. For each
//! connection that it accepts it requests a flow and attaches the connection. From then on the
//! nodes move the bytes, or the kernel if both ends are on one system. The gateway then has no
//! descriptor of the connection. UDP datagrams are moved by the gateway itself, with one flow for
//! each peer address.
//! A [`proxy`] moves the bytes of its clients too.
//!
//! One thread with one epoll set runs all services of a [`Gateway`].
#![forbid(unsafe_code)]

mod connection;
mod connector;
mod datagrams;
mod dial;
mod endpoint;
mod error;
mod exposed;
mod gateway;
mod internet;
mod listener;
mod live;
mod name_server;
pub mod proxy;
mod proxy_protocol;
mod refusals;
mod service;
mod services;
mod settings;
mod udp_connector;
mod udp_exposed;

pub use endpoint::{Endpoint, EndpointError};
pub use error::GatewayError;
pub use gateway::Gateway;
pub use internet::{Internet, InternetCounters};
pub use name_server::NameServer;
pub use proxy::{Protocol, Proxy};
pub use proxy_protocol::{DIF_TLV, LOCAL_NAME_TLV, REMOTE_NAME_TLV};
pub use services::Services;
pub use settings::{CONNECTIONS_MAX, Connect, Expose, IDLE_MS, Setting};
