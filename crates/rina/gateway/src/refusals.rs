//! Logs refused connections: at most one line per second, with the number of refusals.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Refused connections of a service that have not been logged yet.
#[derive(Debug)]
pub(crate) struct Refusals {
    service: String,
    logged_at: Option<Instant>,
    unlogged: u64,
    last: String,
}

impl Refusals {
    pub(crate) fn new(service: impl Display) -> Refusals {
        Refusals {
            service: service.to_string(),
            logged_at: None,
            unlogged: 0,
            last: String::new(),
        }
    }

    /// Counts a refused connection with its reason, and logs it if the last line is old enough.
    pub(crate) fn note(&mut self, why: impl Display, now: Instant) {
        self.unlogged += 1;
        self.last = why.to_string();
        self.log(now);
    }

    /// Logs the refusals since the last line, if that line is at least [`INTERVAL`] old.
    pub(crate) fn log(&mut self, now: Instant) {
        if let Some((count, why)) = self.take_due(now) {
            let service = &self.service;
            tracing::warn!(target: "carina::gateway", service, count, reason = why, "refused");
        }
    }

    /// Returns when [`Refusals::log`] has something to log; `None` if nothing waits.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let logged_at = self.logged_at?;
        (self.unlogged > 0).then(|| logged_at + INTERVAL)
    }

    fn take_due(&mut self, now: Instant) -> Option<(u64, String)> {
        if self.unlogged == 0 || self.logged_at.is_some_and(|at| now < at + INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some((
            std::mem::take(&mut self.unlogged),
            std::mem::take(&mut self.last),
        ))
    }
}

/// Shortest time between two lines in the log.
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_line_a_second() {
        let mut refusals = Refusals::new("ssh");
        let start = Instant::now();
        let (mut lines, mut counted) = (0, 0);
        for ms in 0..3_000 {
            let now = start + Duration::from_millis(ms);
            refusals.unlogged += 1;
            refusals.last = "no".to_owned();
            if let Some((count, why)) = refusals.take_due(now) {
                assert_eq!(why, "no");
                (lines, counted) = (lines + 1, counted + count);
            }
        }
        assert_eq!((lines, counted), (3, 2001));
        assert_eq!(refusals.deadline(), Some(start + Duration::from_secs(3)));
        let last = refusals.take_due(start + Duration::from_secs(3));
        assert_eq!(last, Some((999, "no".to_owned())));
        assert_eq!(refusals.deadline(), None);
    }
}
