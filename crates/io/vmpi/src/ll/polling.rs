//! The polling interval of a side that cannot be woken.

/// Shortest interval between two looks, used while there is traffic, in nanoseconds.
const INTERVAL_NS_MIN: u64 = 20_000;

/// Longest interval between two looks, used on an idle link, in nanoseconds.
const INTERVAL_NS_MAX: u64 = 10_000_000;

/// Computes when to look next. The interval is an eighth of the time since the last activity: after
/// a quiet millisecond a record waits at most 125 µs, and an idle link costs 100 looks a second.
#[derive(Debug, Default)]
pub(super) struct Polling {
    active_ns: u64,
    is_active: bool,
}

impl Polling {
    /// Records that something was sent or received since the last call of
    /// [`Polling::next_look_ns`].
    pub(super) fn note_activity(&mut self) {
        self.is_active = true;
    }

    pub(super) fn next_look_ns(&mut self, now_ns: u64) -> u64 {
        if std::mem::take(&mut self.is_active) {
            self.active_ns = now_ns;
        }
        let quiet_ns = now_ns.saturating_sub(self.active_ns);
        now_ns + (quiet_ns / 8).clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_grows_with_quiet_time_and_shrinks_at_once() {
        let mut polling = Polling::default();
        polling.note_activity();
        let start = 1_000_000_000;
        assert_eq!(polling.next_look_ns(start), start + INTERVAL_NS_MIN);
        let later = start + 8_000_000;
        assert_eq!(polling.next_look_ns(later), later + 1_000_000);
        let idle = start + 1_000_000_000;
        assert_eq!(polling.next_look_ns(idle), idle + INTERVAL_NS_MAX);
        polling.note_activity();
        assert_eq!(polling.next_look_ns(idle), idle + INTERVAL_NS_MIN);
    }
}
