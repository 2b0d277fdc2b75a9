//! Random numbers of layer management: nonces, addresses and jitter. They depend on the seed only.

use carina_random::SplitMix;
use carina_time::Duration;

/// A member's generator of random numbers. Not for keys: the toolbox makes those.
#[derive(Clone, Debug)]
pub struct Random(SplitMix);

impl Random {
    /// Makes a generator. The same `seed` always gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(SplitMix::new(seed))
    }

    /// Returns the next random number, from the full range of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number other than 0, since 0 means "absent" in messages.
    pub fn nonce(&mut self) -> u64 {
        loop {
            let nonce = self.next_u64();
            if nonce != 0 {
                return nonce;
            }
        }
    }

    /// Returns a nearly uniform random number in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Returns a random duration between 7/8 and 9/8 of `time`, so that members do not act in step.
    pub fn about(&mut self, time: Duration) -> Duration {
        let span = (time / 4).as_nanos();
        let extra = if span == 0 { 0 } else { self.below(span) };
        time - time / 8 + Duration::from_nanos(extra)
    }
}
