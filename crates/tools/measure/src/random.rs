//! Random numbers for generated traffic: the same seed gives the same traffic.

use carina_random::SplitMix;

/// Draws random numbers for generated traffic; the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(SplitMix);

impl Random {
    /// A generator whose numbers depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// An exponentially distributed random number with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - unit() is never zero, so the logarithm is finite.
        -mean * (1.0 - self.0.unit()).ln()
    }

    /// A random whole number in `low..=high`, all equally likely.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
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
