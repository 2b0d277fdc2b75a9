//! A proxy: its clients name their destinations, and rules decide which become flows. An
//! [`Internet`](crate::Internet) is a proxy too: its clients request flows.
//!
//! ```text
//!  client -- SOCKS5 or HTTP --> Proxy -- destination --> Routes -- flow ---> node
//!                                 |                        |  +-- TCP -----> server
//!                                 |                        +-- refusal, with its cause
//!                                 +== bytes, in both directions ==> Relay
//! ```
//!
//! - `socks` and `http` decode what clients send; they do no I/O.
//! - `clients` has where clients come from: a listening socket, or a registration.
//! - `routes` applies the rules of `carina wrap` to a destination; `door_rules` applies the rules
//!   of an [`Internet`](crate::Internet).
//! - `session` is one connection of a client, from its first byte to its last.
//!
//! The proxy must answer its client before the first byte of the server. A node would move bytes
//! of an attached socket at once, so the bytes of both directions pass through this process.

mod body;
mod clients;
mod destination;
mod door_rules;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod handshake;
mod http;
mod look_ups;
mod refusal;
mod relay;
mod routes;
mod service;
mod session;
mod settings;
mod socks;

pub(crate) use service::ProxyService;
pub use settings::{Protocol, Proxy};
