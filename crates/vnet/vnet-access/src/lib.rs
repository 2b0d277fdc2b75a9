//! Access points of virtual networks: where end users join who have only IP connectivity to the
//! provider.
//!
//! ```text
//!   user's system                              access host
//!  +----------------------+   UDP over IP    +--------------------------------------------+
//!  | tun == wireguard_user|==================|wireguard_access == port of the node's link  |
//!  +----------------------+   (substrate)    |    |   rates, counters                      |
//!     `carina vnet join`                     |  mailbox -- requests, replies, peers        |
//!                                            |    |                                        |
//!                                            |  register -- tokens, sessions: a file       |
//!                                            +--------------------------------------------+
//! ```
//!
//! - A [`token`] names a network, an access point, a user and the time until which it is valid. It
//!   is signed, and can be used by one system of the user.
//! - The tunnel is WireGuard: Noise IK with the access point's public key, which the token
//!   contains. A user's system makes a new key for each token. The access point accepts a handshake
//!   from everyone who knows its public key, but before a token was accepted, the only permitted
//!   message is the request with the token. The token is the user's only secret.
//! - [`register`] decides about tokens and stores the decisions. [`access_point`] is the state
//!   machine that packets pass through, [`user_end`] its counterpart; [`access_app`] and
//!   [`user_app`] are the two as apps of the engine. The engine's thread and the register's thread
//!   exchange requests and replies through a [`mailbox`].
//!
//! The state machines do no I/O. The timers of WireGuard use `boringtun`'s own clock.
#![forbid(unsafe_code)]

pub mod access_app;
pub mod access_point;
pub mod control;
pub mod discard;
pub mod join;
pub mod key;
pub mod mailbox;
pub mod passage;
pub mod refusal;
pub mod register;
mod routes;
pub mod token;
mod tunnel;
pub mod user_app;
pub mod user_end;
mod waiting;

pub use refusal::{Refusal, Refused};
