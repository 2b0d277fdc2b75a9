//! One measurement between two processes: the job, the loops that carry it out, and the messages
//! that coordinate them.

pub mod client;
mod control;
mod error;
pub mod job;
pub mod payload;
mod run;
pub mod server;
pub mod target;

pub use self::error::TrialError;
