//! The control socket of a running AFTR, by which other processes read and change it: a Unix socket
//! that takes requests as lines of JSON and answers each with one line, in order.
//!
//! ```text
//!   {"id": ANY, "verb": "get", "path": "/softwire-config/name", "value": TEXT}
//!   {"id": ANY, "status": "ok", "value": TEXT}        or "error", with the reason as value
//! ```
//!
//! A thread per connection reads the lines. The main thread of the process handles the requests one
//! at a time, so that two changes never overlap.

mod client;
mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::client::{Client, ClientError};
pub use self::server::{Asked, Server};

/// The operation that a client requests of a running AFTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Return the part of the configuration at the path.
    Get,
    /// Return the counters at the path.
    GetState,
    /// Set the part of the configuration at the path to the value.
    Set,
    /// Add the value as an entry to the list at the path.
    Add,
    /// Remove the part of the configuration at the path.
    Remove,
    /// Replace the whole configuration by the contents of the file whose path is the value.
    Load,
    /// Copy the packets of an address to the mirror; the value is the address, `all` or `none`.
    Monitor,
    /// Return the alarms, as JSON.
    Alarms,
    /// Purge the alarms that the value selects, a [`Purge`](crate::alarms::Purge) in JSON.
    PurgeAlarms,
    /// Compress the alarms whose type is the value: remove all but the last change of each.
    CompressAlarms,
    /// Set the operator's state of the alarms whose type is the path to the value.
    SetAlarms,
    /// End the process of the AFTR.
    Shutdown,
}

/// A request to a running AFTR.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Copied into the answer, to match it with the request.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub id: Value,
    /// The operation that the AFTR carries out.
    pub verb: Verb,
    /// The part of the configuration, or the type of the alarms, that the verb applies to; `None`
    /// means the whole configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The argument of the verb; `None` for verbs without argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Request {
    /// Parses one line.
    ///
    /// # Errors
    /// The line is not a valid request.
    pub fn read(line: &[u8]) -> serde_json::Result<Request> {
        serde_json::from_slice(line)
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The request was carried out.
    Ok,
    /// The request was refused.
    Error,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The `id` of the request that this answers; null if the request could not be read.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub id: Value,
    /// The outcome of the request.
    pub status: Status,
    /// The requested value, or the reason why the request was refused; `None` if a successful
    /// request returns nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Length of the longest request, in bytes. A configuration with many softwires is loaded from a
/// file instead.
pub const LINE_MAX: u64 = 1 << 20;

/// Number of connections that the AFTR serves at a time.
pub const CONNECTIONS_MAX: usize = 16;

#[cfg(test)]
mod tests;
