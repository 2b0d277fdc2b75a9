//! Destination addresses of either IP version.

use std::fmt;
use std::str::FromStr;

use carina_apps::prefix::{Prefix4, Prefix6, PrefixError};

/// The addresses of a prefix: `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// IPv4 addresses.
    V4(Prefix4),
    /// IPv6 addresses.
    V6(Prefix6),
}

impl FromStr for Destination {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Destination, PrefixError> {
        if text.contains(':') {
            text.parse().map(Destination::V6)
        } else {
            text.parse().map(Destination::V4)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::V4(prefix) => prefix.fmt(f),
            Destination::V6(prefix) => prefix.fmt(f),
        }
    }
}
