//! One measurement between two processes: the job, the loops that do it, and the messages that
//! coordinate them.
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
//! The messages cross a control channel that loses nothing, a reliable flow; the SDUs cross another
//! transport. So one server measures every system of a bench.

pub mod client;
mod control;
mod error;
pub mod job;
pub mod payload;
mod run;
pub mod server;
pub mod target;

pub use self::error::TrialError;
