//! The ratio of two systems that were measured in pairs: its median, and a confidence interval for
//! the median.
//!
//! The interval consists of order statistics (as in the sign test's interval for a median), so it
//! assumes nothing about the distribution. With `n` pairs it goes from the `k`-th lowest to the
//! `k`-th highest ratio, where `k` is the largest number for which the coverage is at least 95 %.
//! Fewer than 6 pairs do not reach 95 % (5 reach 93.75 %); the interval then goes from the lowest
//! to the highest ratio.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// The ratio of two systems over paired runs: median and confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the ratios of the pairs.
    pub ratio: f64,
    /// Lower and upper end of the 95 % confidence interval of that median.
    pub interval: [f64; 2],
    /// Number of pairs of runs whose ratios were taken.
    pub runs: usize,
}

impl Ratio {
    /// The ratios of the first value of each pair to the second one. Pairs whose second value is
    /// not positive are left out. Returns `None` if no pair remains.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let usable = pairs.into_iter().filter(|(_, under)| *under > 0.0);
        let mut ratios: Vec<f64> = usable.map(|(over, under)| over / under).collect();
        ratios.sort_by(f64::total_cmp);
        let summary = Summary::of(&ratios)?;
        let rank = rank_95(ratios.len());
        Some(Self {
            ratio: summary.p50,
            interval: [ratios[rank], ratios[ratios.len() - 1 - rank]],
            runs: ratios.len(),
        })
    }

    /// Whether the ratio is at least `bar`: true if the median is at least `bar`, or if `bar` lies
    /// within the interval. `None` with fewer than [`RUNS_MIN`] pairs, which are too few to decide.
    pub fn holds(&self, bar: f64) -> Option<bool> {
        let [low, high] = self.interval;
        let holds = self.ratio >= bar || (low..=high).contains(&bar);
        (self.runs >= RUNS_MIN).then_some(holds)
    }
}

/// Smallest number of pairs for which a ratio is judged.
pub const RUNS_MIN: usize = 5;

/// Number of the `n` sorted ratios to leave out at each end, so that the coverage is still at least
/// 95 %.
fn rank_95(n: usize) -> usize {
    // The probability that at most `rank` of `n` fair coins show heads.
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = term;
    let mut rank = 0;
    loop {
        term *= (n - rank) as f64 / (rank + 1) as f64;
        if below + term > 0.025 || rank + 1 >= n.div_ceil(2) {
            return rank;
        }
        below += term;
        rank += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(values: &[f64]) -> Ratio {
        Ratio::of(values.iter().map(|value| (*value, 1.0))).unwrap()
    }

    #[test]
    fn five_pairs_span_from_lowest_to_highest() {
        let five = ratio(&[3.0, 1.0, 2.0, 5.0, 4.0]);
        assert_eq!((five.ratio, five.interval, five.runs), (3.0, [1.0, 5.0], 5));
    }

    #[test]
    fn interval_leaves_out_what_the_sign_test_does() {
        // From tables of the sign test: n = 9 gives ranks 2 and 8, n = 20 ranks 6 and 15.
        let values = |n: usize| -> Vec<f64> { (1..=n).map(|value| value as f64).collect() };
        assert_eq!(ratio(&values(9)).interval, [2.0, 8.0]);
        assert_eq!(ratio(&values(20)).interval, [6.0, 15.0]);
    }

    #[test]
    fn bar_is_held_by_the_median_or_within_the_interval() {
        let five = ratio(&[2.8, 2.9, 2.95, 3.1, 3.2]);
        assert_eq!(five.holds(2.9), Some(true));
        assert_eq!(five.holds(3.0), Some(true));
        assert_eq!(five.holds(3.3), Some(false));
        assert_eq!(ratio(&[9.0; 4]).holds(3.0), None);
    }

    #[test]
    fn pairs_without_a_divisor_do_not_count() {
        assert_eq!(Ratio::of([(1.0, 0.0)]), None);
        assert_eq!(Ratio::of([(1.0, 0.0), (4.0, 2.0)]).unwrap().runs, 1);
    }
}
