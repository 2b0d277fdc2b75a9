//! One measurement between two processes: the job, the loops that carry it out, and the messages
//! that coordinate them.
//!
//! ```text
//! client                         server
//!   Job ------------------------->        what to do and over what
//!   <----------------------- Opened        where the server waits for the transport
//!   (opens its end of the transport)
//!   Connected ------------------->
//!   <--------------------------- Go
//!   ==== SDUs over the transport ====
//!   <----------------------- Report        what the server saw
//! ```
//!
//! The messages cross a control channel without loss, which is a reliable flow. The SDUs cross
//! another transport. So one server can measure every system of a benchmark.

pub mod client;
mod control;
mod error;
pub mod job;
pub mod payload;
mod run;
pub mod server;
pub mod target;

pub use self::error::TrialError;
