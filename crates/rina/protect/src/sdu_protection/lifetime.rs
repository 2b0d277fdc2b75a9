//! Limits how long a PDU may spend in an N-1 flow.
//!
//! Delta-t relies on a limit for the lifetime of a PDU. Each PDU carries the millisecond of its
//! sending. The two clocks need not agree: the receiver compares the PDU's time in transit with
//! that of the fastest recent PDU. An N-1 flow or an attacker that delays PDUs can delay them by
//! the lifetime at most.

use carina_time::Instant;

/// Checks how long PDUs spend in an N-1 flow, for both directions of one end.
#[derive(Clone, Debug)]
pub struct Lifetime {
    max_ms: u32,
    now_ms: u32,
    /// Difference of the two clocks at the first PDU. All other differences are relative to it.
    anchor: Option<u32>,
    /// Smallest difference in the current minute, and in the minute before.
    least: [Option<i32>; 2],
    minute_began_ms: u32,
}

impl Lifetime {
    /// Makes the check: a PDU may take up to `max_ms` milliseconds longer than the fastest PDU of
    /// the last one to two minutes.
    pub fn new(max_ms: u32) -> Lifetime {
        Lifetime {
            max_ms,
            now_ms: 0,
            anchor: None,
            least: [None, None],
            minute_began_ms: 0,
        }
    }

    /// Sets the current time, for the PDUs that are sent or received next.
    pub fn set_now(&mut self, now: Instant) {
        // Wraps after 49 days, which is harmless because only differences are used.
        self.now_ms = now.as_millis() as u32;
    }

    /// Returns the time stamp for a PDU that is sent now.
    pub fn stamp(&self) -> u32 {
        self.now_ms
    }

    /// Whether a PDU that arrives now may be accepted. `sent` is its time stamp, by the clock of
    /// the other side.
    pub fn is_alive(&mut self, sent: u32) -> bool {
        let difference = self.now_ms.wrapping_sub(sent);
        let anchor = *self.anchor.get_or_insert(difference);
        let delay = difference.wrapping_sub(anchor) as i32;
        self.turn();
        // Expired PDUs count too, so that the new time is accepted some time after a clock has
        // jumped.
        let least = &mut self.least[0];
        *least = Some(least.map_or(delay, |least| least.min(delay)));
        let fastest = self.least.into_iter().flatten().min().unwrap_or(delay);
        delay.saturating_sub(fastest) as u32 <= self.max_ms
    }

    fn turn(&mut self) {
        let passed = self.now_ms.wrapping_sub(self.minute_began_ms);
        if passed >= MINUTE_MS {
            let [present, _] = self.least;
            // After a long silence, the earlier minimum is out of date.
            let before = present.filter(|_| passed < 2 * MINUTE_MS);
            self.least = [None, before];
            self.minute_began_ms = self.now_ms;
        }
    }
}

const MINUTE_MS: u32 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lifetime: &mut Lifetime, now_ms: u64, sent: u32) -> bool {
        lifetime.set_now(Instant::from_millis(now_ms));
        lifetime.is_alive(sent)
    }

    #[test]
    fn late_pdu_is_dead_whatever_the_clocks_say() {
        for offset in [0u32, 77, u32::MAX - 500, 1 << 31] {
            let mut lifetime = Lifetime::new(100);
            let sent = |ms: u32| ms.wrapping_add(offset);
            assert!(at(&mut lifetime, 1_010, sent(1_000)));
            assert!(at(&mut lifetime, 2_110, sent(2_000)), "100 ms longer");
            assert!(!at(&mut lifetime, 3_111, sent(3_000)), "101 ms longer");
            assert!(at(&mut lifetime, 4_005, sent(4_000)), "faster than ever");
            assert!(!at(&mut lifetime, 5_106, sent(5_000)));
        }
    }

    #[test]
    fn clock_that_jumps_is_followed_within_two_minutes() {
        let mut lifetime = Lifetime::new(100);
        assert!(at(&mut lifetime, 1_000, 1_000));
        assert!(
            !at(&mut lifetime, 2_000, 1_000),
            "the sender's clock stood still"
        );
        let alive = (3..130).find(|second| at(&mut lifetime, second * 1000, second_of(*second)));
        let alive = alive.expect("alive again");
        assert!((60..=125).contains(&alive), "{alive}");
    }

    fn second_of(second: u64) -> u32 {
        (second * 1000 - 1000) as u32
    }

    #[test]
    fn drift_of_the_clocks_does_no_harm() {
        let mut lifetime = Lifetime::new(20);
        // The clocks differ by 100 parts per million: 8.6 s in a day.
        for minute in 0..(24 * 60 * 4) {
            let now_ms = minute * 15_000u64;
            let sent = (now_ms - now_ms / 10_000) as u32;
            assert!(at(&mut lifetime, now_ms, sent), "minute {}", minute / 4);
        }
    }
}
