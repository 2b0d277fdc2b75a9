//! The clock that tokens and grants end by.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, by the clock of this system.
pub(super) fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
