//! The search for the highest rate without loss. (RFC 2544 §26.1)

/// A binary search between a rate without loss and a rate with loss.
#[derive(Clone, Debug)]
pub struct Search {
    /// The highest rate without loss so far, in packets per second.
    good: f64,
    /// The lowest rate with loss so far, in packets per second.
    bad: f64,
    resolution: f64,
    retries: u32,
    tried: u32,
    next: f64,
}

impl Search {
    /// Searches between 0 and `bad`, a rate with loss, in packets per second; tries `guess` first.
    /// The search ends when the remaining range is at most `resolution` of its upper end. It
    /// repeats a trial with loss up to `retries` times, because one packet lost to a disturbance
    /// tells nothing about the rate.
    #[must_use]
    pub fn new(bad: f64, guess: f64, resolution: f64, retries: u32) -> Search {
        let is_inside = guess > 0.0 && guess < bad;
        Search {
            good: 0.0,
            bad,
            resolution,
            retries,
            tried: 0,
            next: if is_inside { guess } else { bad / 2.0 },
        }
    }

    /// The rate to try next, in packets per second; `None` when the search has ended.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let is_over = self.bad - self.good <= self.resolution * self.bad || self.next < 1.0;
        (!is_over).then_some(self.next)
    }

    /// Records the outcome of a trial at [`Search::rate`]: whether it had no loss, and the rate
    /// that the sender reached.
    pub fn note(&mut self, is_lossless: bool, reached: f64) {
        if is_lossless {
            self.good = self.good.max(reached.min(self.next));
            // The sender cannot go faster.
            if reached < self.next * (1.0 - self.resolution) {
                self.bad = self.good;
            }
        } else if self.tried < self.retries {
            self.tried += 1;
            return;
        } else {
            self.bad = self.next;
        }
        self.tried = 0;
        self.next = f64::midpoint(self.good, self.bad);
    }

    /// The highest rate without loss, in packets per second; 0 if every trial had loss.
    #[must_use]
    pub fn found(&self) -> f64 {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(limit: f64, fastest: f64, flaky: bool) -> (f64, usize) {
        let mut search = Search::new(1e6, 9e5, 0.01, 1);
        let mut trials = 0;
        while let Some(rate) = search.rate() {
            trials += 1;
            let is_lossless = rate <= limit && !(flaky && trials % 2 == 0);
            search.note(is_lossless, rate.min(fastest));
            assert!(trials < 100);
        }
        (search.found(), trials)
    }

    #[test]
    fn highest_rate_is_found_within_the_resolution() {
        for limit in [910_000.0, 500_000.0, 123_456.0, 40_000.0] {
            let (found, trials) = search(limit, f64::MAX, false);
            assert!(found <= limit && found >= limit * 0.9, "{found} of {limit}");
            assert!(trials < 30, "{trials} trials");
        }
        assert_eq!(search(0.0, f64::MAX, false).0, 0.0);
    }

    #[test]
    fn stray_loss_is_tried_again_and_slow_senders_end_it() {
        let (found, _) = search(500_000.0, f64::MAX, true);
        assert!(found >= 490_000.0, "{found}");
        let (found, trials) = search(f64::MAX, 300_000.0, false);
        assert_eq!((found, trials), (300_000.0, 1));
    }
}
