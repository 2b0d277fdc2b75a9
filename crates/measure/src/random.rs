//! A small seeded generator (SplitMix64, Steele et al. 2014): the same seed gives the same traffic.

/// The generator's state.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that repeats itself for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in 0.0 (inclusive) to 1.0 (exclusive).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An exponentially distributed number of the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - unit() is never zero, so the logarithm is finite.
        -mean * (1.0 - self.unit()).ln()
    }

    /// A whole number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high - low + 1;
        low + self.bits() % span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_numbers_have_the_mean_asked_for() {
        let mut random = Random::new(7);
        let mean = (0..100_000).map(|_| random.exponential(250.0)).sum::<f64>() / 100_000.0;
        assert!((mean - 250.0).abs() < 5.0, "{mean}");
    }

    #[test]
    fn ranges_include_both_ends() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<u64> =
            (0..1000).map(|_| random.between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
