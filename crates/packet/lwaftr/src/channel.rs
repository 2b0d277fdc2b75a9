//! The channel by which other processes see and change an AFTR that runs: a Unix socket that takes
//! lines of JSON and answers each with one, in order.
//!
//! ```text
//!   {"id": ANY, "verb": "get", "path": "/softwire-config/name", "value": TEXT}
//!   {"id": ANY, "status": "ok", "value": TEXT}        or "error", with the reason as value
//! ```
//!
//! A thread for each connection reads lines; the process itself takes the requests one by one, so
//! that no two changes meet.

mod client;
mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::client::{Client, ClientError};
pub use self::server::{Asked, Server};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// What the path names of the configuration.
    Get,
    /// What the path names of the counters.
    GetState,
    /// What the path names gets the value.
    Set,
    /// The list that the path names gets the value as an entry.
    Add,
    /// What the path names goes.
    Remove,
    /// The configuration of the file whose path is the value takes the place of all.
    Load,
    /// Packets of the address that is the value are copied to the mirror; `all`, `none`.
    Monitor,
    /// The alarms, as JSON.
    Alarms,
    /// The alarms that the value, a [`Purge`](crate::alarms::Purge) in JSON, chooses go.
    PurgeAlarms,
    /// The alarms of the type that is the value forget all but their last change.
    CompressAlarms,
    /// The operator says the value of the alarms whose type is the path.
    SetAlarms,
    /// The process ends.
    Shutdown,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Comes back with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub id: Value,
    /// What is wanted.
    pub verb: Verb,
    /// Of which part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// With what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no request.
    pub fn read(line: &[u8]) -> serde_json::Result<Request> {
        serde_json::from_slice(line)
    }
}

/// Whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was.
    Ok,
    /// It was not.
    Error,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// That of the request.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub id: Value,
    /// Whether it was done.
    pub status: Status,
    /// What was asked for, or the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Bytes of a request at most: a configuration with many softwires is loaded from a file.
pub const LINE_MAX: u64 = 1 << 20;

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 16;

#[cfg(test)]
mod tests;
