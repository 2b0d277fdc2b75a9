//! Seeded randomness: the same seed gives the same nonces, addresses and jitter.

/// SplitMix64. Not for keys: those come from the toolbox.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number that is not 0: 0 means "none" in messages.
    pub(crate) fn nonce(&mut self) -> u64 {
        loop {
            let nonce = self.next();
            if nonce != 0 {
                return nonce;
            }
        }
    }

    /// Uniform enough in `0..end`; `end` must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// `time` plus or minus up to an eighth, so that members do not act in step.
    pub(crate) fn about(&mut self, time: u64) -> u64 {
        let span = time / 4;
        time - time / 8 + if span == 0 { 0 } else { self.below(span) }
    }
}
