//! One measurement between two processes: what to do, the loops that do it, and how both agree.
//!
//! ```text
//! client                         server
//!   Job ------------------------->        what to do and over what
//!   <----------------------- Opened        where the server waits for the carriage
//!   (opens its end of the carriage)
//!   Connected ------------------->
//!   <--------------------------- Go
//!   ==== SDUs over the carriage ====
//!   <----------------------- Report        what the server saw
//! ```
//!
//! The messages cross a control channel that loses nothing (a flow, or the pipes of a child
//! process), the SDUs another carriage. So one server measures every system of a bench.

pub mod client;
pub mod control;
pub mod job;
pub mod payload;
pub mod run;
pub mod server;
