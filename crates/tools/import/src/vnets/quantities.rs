//! Times and shares, from numbers in the files of other tools.

use carina_time::Duration;
use carina_vnet::document::{Share, Span};

/// A time of so many milliseconds; `None` if it is negative, or more than 64 bits of nanoseconds.
pub(super) fn milliseconds(ms: f64) -> Option<Span> {
    let ns = ms * 1e6;
    // 2⁶³ ns are 292 years.
    let is_time = (0.0..9.2e18).contains(&ns);
    is_time.then(|| Duration::from_nanos(ns.round() as u64).into())
}

/// A share, from a number between 0 and 1; `None` if it is not between them.
pub(super) fn share(part: f64) -> Option<Share> {
    let is_share = (0.0..=1.0).contains(&part);
    is_share.then(|| Share::from_millionths((part * 1e6).round() as u32))?
}
