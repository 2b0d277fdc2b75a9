//! What layer management draws: nonces, addresses and jitter. The same seed gives the same.

use carina_random::SplitMix;
use carina_time::Duration;

/// A member's generator. Not for keys: those come from the toolbox.
#[derive(Clone, Debug)]
pub struct Random(SplitMix);

impl Random {
    /// A generator whose numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(SplitMix::new(seed))
    }

    /// The next number, of all that there are.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number that is not 0, which stands for "absent" in messages.
    pub fn nonce(&mut self) -> u64 {
        loop {
            let nonce = self.next_u64();
            if nonce != 0 {
                return nonce;
            }
        }
    }

    /// Uniform enough in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// `time` plus or minus up to an eighth, so that members do not act in step.
    pub fn about(&mut self, time: Duration) -> Duration {
        let span = (time / 4).as_nanos();
        let extra = if span == 0 { 0 } else { self.below(span) };
        time - time / 8 + Duration::from_nanos(extra)
    }
}
