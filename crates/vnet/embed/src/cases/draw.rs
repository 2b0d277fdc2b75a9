//! Random numbers of other than uniform integer distributions.

use carina_random::Random;

/// A uniformly distributed number from 0 to below 1.
pub(crate) fn unit(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// An exponentially distributed number with this mean.
pub(crate) fn exponential(random: &mut Random, mean: f64) -> f64 {
    // 1 - unit() is never zero, so the logarithm is finite.
    -mean * (1.0 - unit(random)).ln()
}

/// A Poisson-distributed number with this mean (D. Knuth, *The Art of Computer Programming*, volume
/// 2, §3.4.1).
pub(crate) fn poisson(random: &mut Random, mean: f64) -> u64 {
    let mut count = 0;
    let mut left = mean;
    // A sum of Poisson numbers is a Poisson number. The parts are small enough that `exp` does not
    // become zero.
    while left > 0.0 {
        let part = left.min(PART_MAX);
        left -= part;
        let least = (-part).exp();
        let mut product = unit(random);
        while product > least {
            count += 1;
            product *= unit(random);
        }
    }
    count
}

const PART_MAX: f64 = 500.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_mean_and_variance_asked_for() {
        let mut random = Random::new(5);
        for mean in [7.14, 250.0, 1200.0] {
            let drawn: Vec<f64> = (0..4000)
                .map(|_| poisson(&mut random, mean) as f64)
                .collect();
            let average = drawn.iter().sum::<f64>() / 4000.0;
            let spread = drawn
                .iter()
                .map(|value| (value - average).powi(2))
                .sum::<f64>()
                / 4000.0;
            assert!((average / mean - 1.0).abs() < 0.02, "{average} for {mean}");
            assert!((spread / mean - 1.0).abs() < 0.1, "{spread} for {mean}");
        }
        let sum: f64 = (0..40_000).map(|_| exponential(&mut random, 500.0)).sum();
        assert!((sum / 40_000.0 - 500.0).abs() < 10.0, "{sum}");
    }
}
