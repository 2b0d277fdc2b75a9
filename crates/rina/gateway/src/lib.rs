//! Sockets of the kernel reachable by names of DIFs, and names of DIFs reachable by sockets.
//!
//! ```text
//!  client == TCP == [connect]--node----DIF----node--[expose] == TCP == server
//! ```
//!
//! An exposed service registers a name; for each flow that is asked for, it connects to its server
//! and attaches the connection to the flow. A connector listens; for each connection that it
//! accepts, it asks for a flow and attaches the connection. From then on the nodes move the bytes,
//! or the kernel where both ends are on one system, and this process holds no descriptor of the
//! connection. Datagrams (UDP) are moved here, one flow for each address of a peer. A [`proxy`]
//! moves the bytes of its clients too.
//!
//! One thread and one epoll set serve all services of a [`Gateway`].
#![forbid(unsafe_code)]

mod connection;
mod connector;
mod datagrams;
mod dial;
mod endpoint;
mod error;
mod exposed;
mod gateway;
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
pub use name_server::NameServer;
pub use proxy::{Protocol, Proxy};
pub use proxy_protocol::{DIF_TLV, LOCAL_NAME_TLV, REMOTE_NAME_TLV};
pub use services::Services;
pub use settings::{CONNECTIONS_MAX, Connect, Expose, IDLE_MS, Setting};
