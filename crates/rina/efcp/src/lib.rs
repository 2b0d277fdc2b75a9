//! One EFCP connection: data transfer (DTP) and data transfer control (DTCP) by delta-t, and
//! delimiting.
//!
//! After the Pouzin Society's *Error and Flow Control Protocol Specification* and *Delimiting
//! Specification*. Its timers are those of R. Watson, *The Delta-t Transport Protocol: Features and
//! Experience* (1989).
//!
//! [`Connection`] is one end of a connection as a machine without I/O: time, UDFs and the PCI of
//! received PDUs go in; UDFs, and what the PCI of PDUs must say, come out. [`delimiting`] turns
//! SDUs into UDFs and back.
//!
//! ```text
//!        SDU  | ^ SDU                      write | ^ poll_deliver
//!             v |                                v |
//!       +--------------+               +----------------------+
//!       |  delimiting  |<--- UDFs ---->|      Connection      |
//!       +--------------+               |  sender | receiver   |  DTP: numbers, order
//!                                      |  loss   | control    |  DTCP: windows, acks, timers
//!                                      +----------------------+
//!                                 poll_transmit  | ^ receive
//!                                                v |
//!                                               PDUs
//! ```
//!
//! The states, timers and rules are described in `docs/explanation/efcp.md`.
//!
//! # The drain contract
//!
//! After [`Connection::receive`], [`Connection::write`] or [`Connection::handle_timeout`], take
//! what [`Connection::poll_transmit`], [`Connection::poll_deliver`] and [`Connection::poll_event`]
//! give, then call [`Connection::end_of_burst`] once for the whole burst, drain once more, and ask
//! [`Connection::poll_timeout`] when to come back.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod catalogue;
mod config;
pub mod congestion;
mod connection;
mod control_numbers;
mod counters;
pub mod delimiting;
mod error;
mod event;
pub mod fuzz;
mod pacing;
mod profile;
mod receiver;
pub mod rtt;
mod sender;
mod seq;

pub use catalogue::{ParamInfo, PolicyInfo};
pub use config::{AckPolicy, ConnectionConfig, QueueLimits, RateControl, WindowControl};
pub use congestion::CongestionControl;
pub use connection::{Connection, Received, Status, Transmit};
pub use counters::{Counters, Discard};
pub use error::{ConfigError, PolicyError};
pub use event::{ConnEvent, FailReason};
pub use profile::{EfcpProfile, FirstNumber, Stall, Wrap};
pub use receiver::Delivered;
pub use rtt::RttEstimator;
