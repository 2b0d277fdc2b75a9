//! Token buckets: one for each user and direction.

use carina_time::Instant;

/// Limits traffic to a rate. After a pause it allows a burst of 20 ms of the rate or ten frames,
/// whichever is more.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    bits_per_second: u64,
    size_bytes: u64,
    /// The available tokens, in bits times 10^9.
    tokens: u128,
    since: Option<Instant>,
}

impl Bucket {
    /// A bucket for this rate, full of tokens.
    pub(crate) fn new(bits_per_second: u64) -> Bucket {
        let bits_per_second = bits_per_second.min(RATE_MAX);
        let size_bytes = (bits_per_second / 8 / 50).max(SIZE_MIN);
        Bucket {
            bits_per_second,
            size_bytes,
            tokens: u128::from(size_bytes) * BYTE,
            since: None,
        }
    }

    /// Changes the rate. The available tokens stay, as far as the new bucket has room.
    pub(crate) fn set_rate(&mut self, bits_per_second: u64) {
        let changed = Bucket::new(bits_per_second);
        let tokens = self.tokens.min(changed.tokens);
        let since = self.since;
        *self = Bucket {
            tokens,
            since,
            ..changed
        };
    }

    /// Takes tokens for `bytes` bytes; returns false, and takes none, if there are too few.
    pub(crate) fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let since = self.since.replace(now).unwrap_or(now);
        let nanos = u128::from(now.since(since).as_nanos());
        let full = u128::from(self.size_bytes) * BYTE;
        self.tokens = (self.tokens + nanos * u128::from(self.bits_per_second)).min(full);
        let wanted = bytes as u128 * BYTE;
        let passes = wanted <= self.tokens;
        if passes {
            self.tokens -= wanted;
        }
        passes
    }
}

/// Number of tokens that one byte of traffic takes.
const BYTE: u128 = 8 * 1_000_000_000;
/// The highest rate, bits a second; no machine sends faster.
const RATE_MAX: u64 = 1_000_000_000_000;
const SIZE_MIN: u64 = 10 * 1500;

#[cfg(test)]
mod tests {
    use carina_time::Duration;

    use super::*;

    #[test]
    fn no_more_than_the_rate_and_one_burst_passes() {
        let mut bucket = Bucket::new(8_000_000);
        let (begin, mut passed) = (Instant::ZERO, 0);
        for ms in 0..1000 {
            for _ in 0..10 {
                let now = begin + Duration::from_millis(ms);
                passed += usize::from(bucket.take(now, 1000));
            }
        }
        // One megabyte in a second, plus a full bucket of 20,000 bytes.
        assert!((1000..=1020).contains(&passed), "{passed}");
    }

    #[test]
    fn changed_rate_holds_at_once() {
        let mut bucket = Bucket::new(8_000_000_000);
        bucket.set_rate(8_000);
        let now = Instant::ZERO;
        assert!(bucket.take(now, 15_000) && !bucket.take(now, 1));
        assert!(bucket.take(now + Duration::from_secs(1), 1000));
    }
}
