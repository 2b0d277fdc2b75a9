//! One end of an EFCP connection: data transfer (DTP) and data transfer control (DTCP) by delta-t,
//! and delimiting.
//!
//! Specified in the Pouzin Society's *Error and Flow Control Protocol Specification* and
//! *Delimiting Specification*. The timers are those of R. Watson, *The Delta-t Transport Protocol:
//! Features and Experience* (1989).
//!
//! [`Connection`] is one end of a connection, as a machine without I/O. Its inputs are the time,
//! UDFs to send, and the PCI and UDFs of received PDUs. Its outputs are UDFs for the reader, and
//! the contents of PDUs to send. [`delimiting`] turns SDUs into UDFs and back.
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
//! `docs/explanation/efcp.md` describes the states, timers and rules.
//!
//! # Order of calls
//!
//! After [`Connection::receive`], [`Connection::write`] or [`Connection::handle_timeout`], fetch
//! everything that [`Connection::poll_transmit`], [`Connection::poll_deliver`] and
//! [`Connection::poll_event`] return. At the end of a burst call [`Connection::end_of_burst`] once,
//! fetch everything again, and then ask [`Connection::poll_timeout`] for the time of the next call.

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
#[cfg(any(test, feature = "fuzzing"))]
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
