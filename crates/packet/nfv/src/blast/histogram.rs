//! A histogram of times in nanoseconds over many orders of magnitude, in a fixed amount of memory.

use serde::Serialize;

/// Counts times, in nanoseconds, in buckets. The width of a bucket is at most 1/32 of the times
/// that it counts, so that quantiles are at most that much too high.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// Statistics of all times that were added to a [`Histogram`], in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The shortest time.
    pub min: u64,
    /// The mean time.
    pub mean: u64,
    /// Half of the times are at most this.
    pub p50: u64,
    /// 90 % of the times are at most this.
    pub p90: u64,
    /// 99 % of the times are at most this.
    pub p99: u64,
    /// 99.9 % of the times are at most this.
    pub p999: u64,
    /// The longest time.
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; bucket(u64::MAX) + 1].into(),
            total: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Adds one measured time, in ns.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Statistics of all times that were added; `None` if no time was added.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        if self.total == 0 {
            return None;
        }
        let quantile = |per_mille: u64| self.quantile(per_mille).clamp(self.min, self.max);
        Some(Spread {
            min: self.min,
            mean: u64::try_from(self.sum / u128::from(self.total)).unwrap_or(u64::MAX),
            p50: quantile(500),
            p90: quantile(900),
            p99: quantile(990),
            p999: quantile(999),
            max: self.max,
        })
    }

    /// The upper end of the bucket that contains the given quantile, in thousandths of the values.
    fn quantile(&self, per_mille: u64) -> u64 {
        let rank = u128::from(self.total) * u128::from(per_mille);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += u128::from(*count) * 1000;
            if *count > 0 && below >= rank {
                return upper(at);
            }
        }
        self.max
    }

    /// The buckets that counted something: the highest time of each bucket, in ns, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.counts.iter().enumerate();
        filled
            .filter(|(_, count)| **count > 0)
            .map(|(at, count)| (upper(at), *count))
    }
}

/// The bucket of a value. The first 64 buckets hold one value each; then 32 buckets follow for each
/// doubling.
fn bucket(value: u64) -> usize {
    if value < 64 {
        return value as usize;
    }
    let shift = 58 - value.leading_zeros();
    (shift as usize) * 32 + (value >> shift) as usize
}

/// The highest value of a bucket.
fn upper(at: usize) -> u64 {
    if at < 64 {
        return at as u64;
    }
    let shift = (at / 32 - 1) as u32;
    let first = (at as u64 - u64::from(shift) * 32) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for value in (0..5000).chain([u64::MAX / 3, u64::MAX]) {
            let at = bucket(value);
            let (low, high) = (if at == 0 { 0 } else { upper(at - 1) + 1 }, upper(at));
            assert!((low..=high).contains(&value), "{value} in {low}..={high}");
            assert!(high - low <= value / 32, "{value} in {low}..={high}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut all = Histogram::default();
        assert_eq!(all.spread(), None);
        (1..=1000).for_each(|value| all.add(value * 100));
        let spread = all.spread().unwrap();
        assert_eq!(
            (spread.min, spread.mean, spread.max),
            (100, 50_050, 100_000)
        );
        for (found, right) in [
            (spread.p50, 50_000),
            (spread.p90, 90_000),
            (spread.p99, 99_000),
        ] {
            assert!(
                found >= right && found <= right + right / 16,
                "{found} for {right}"
            );
        }
        assert_eq!(all.buckets().map(|(_, count)| count).sum::<u64>(), 1000);
    }
}
