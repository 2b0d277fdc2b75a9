//! Access points of virtual networks: places where end users join who have no more than IP
//! connectivity to the provider.
//!
//! ```text
//!   user's system                              access host
//!  +----------------------+   UDP over IP    +--------------------------------------------+
//!  | tun == wireguard_user|==================|wireguard_access == port of the node's link  |
//!  +----------------------+   (substrate)    |    |   rates, counters                      |
//!     `carina vnet join`                     |  desk   -- requests, replies, peers         |
//!                                            |    |                                        |
//!                                            |  register -- tokens, sessions: a file       |
//!                                            +--------------------------------------------+
//! ```
//!
//! - A [`token`] says to which network, access point and user it belongs and until when; it is
//!   signed, and good for one user's system.
//! - The tunnel is WireGuard: Noise IK with the access point's key, which stands in the token. A
//!   user's system makes a key of its own for each token. Its handshake is taken from anyone who
//!   knows the access point's key, but such a guest can do one thing only: show a token. There is
//!   no other handshake, and no secret but the token that the user would have to keep.
//! - [`register`] decides about tokens and keeps what was decided; [`access_point`] is the machine
//!   that frames go through, [`user_end`] its counterpart; [`access_app`] and [`user_app`] are both
//!   as apps of the engine. What the two threads say to one another goes over a [`desk`].
//!
//! The machines do no I/O; the clock of WireGuard's own timers is that of `boringtun`.
#![forbid(unsafe_code)]

pub mod access_app;
pub mod access_point;
mod bucket;
pub mod control;
pub mod desk;
pub mod discard;
pub mod join;
pub mod key;
pub mod passage;
pub mod refusal;
pub mod register;
mod routes;
pub mod token;
mod tunnel;
pub mod user_app;
pub mod user_end;

pub use refusal::{Refusal, Refused};
