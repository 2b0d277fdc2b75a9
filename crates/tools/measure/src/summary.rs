//! Statistics of a list of samples: extremes, mean, deviation, percentiles, confidence interval.

use serde::{Deserialize, Serialize};

/// Extremes, mean, deviation and percentiles of a list of samples, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub count: usize,
    /// The smallest sample.
    pub min: f64,
    /// The arithmetic mean.
    pub avg: f64,
    /// The largest sample.
    pub max: f64,
    /// The sample standard deviation (n - 1 in the denominator); 0 for a single sample.
    pub stddev: f64,
    /// The median: half of the samples are at most this large.
    pub p50: f64,
    /// The 90th percentile: 90 % of the samples are at most this large.
    pub p90: f64,
    /// The 99th percentile: 99 % of the samples are at most this large.
    pub p99: f64,
}

impl Summary {
    /// Summarises samples; `None` for an empty slice.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let avg = sorted.iter().sum::<f64>() / count as f64;
        let squares = sorted.iter().map(|x| (x - avg).powi(2)).sum::<f64>();
        let stddev = if count > 1 {
            (squares / (count - 1) as f64).sqrt()
        } else {
            0.0
        };
        let at = |p| percentile(&sorted, p);
        Some(Self {
            count,
            min,
            avg,
            max,
            stddev,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        })
    }

    /// Half the width of the 95 % confidence interval of the mean (Student's t).
    pub fn confidence_95(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        student_t_975(self.count - 1) * self.stddev / (self.count as f64).sqrt()
    }
}

/// The percentile `p` (from 0 to 1) of the sorted samples, interpolated linearly.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let place = p * (sorted.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// The 0.975 quantile of Student's t for `freedom` degrees of freedom (standard table).
fn student_t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    TABLE
        .get(freedom.saturating_sub(1))
        .copied()
        .unwrap_or(1.96)
}

/// Slope and intercept of the least-squares line through the points; `None` if fewer than two
/// points have different x.
pub fn regression(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let spread = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum::<f64>();
    if points.len() < 2 || spread == 0.0 {
        return None;
    }
    let slope = points
        .iter()
        .map(|p| (p.0 - mean_x) * (p.1 - mean_y))
        .sum::<f64>()
        / spread;
    Some((slope, mean_y - slope * mean_x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_runs_give_the_textbook_numbers() {
        let s = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.min, s.avg, s.max, s.p50), (1.0, 3.0, 5.0, 3.0));
        assert!((s.stddev - 2.5f64.sqrt()).abs() < 1e-12);
        assert!((s.confidence_95() - 2.776 * 2.5f64.sqrt() / 5f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn no_samples_have_no_summary_and_one_has_no_deviation() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[2.0]).unwrap();
        assert_eq!((one.stddev, one.confidence_95(), one.p99), (0.0, 0.0, 2.0));
    }

    #[test]
    fn regression_finds_the_line_it_was_given() {
        let points: Vec<_> = (0..10).map(|x| (x as f64, 3.0 * x as f64 + 2.0)).collect();
        let (slope, intercept) = regression(&points).unwrap();
        assert!((slope - 3.0).abs() < 1e-9 && (intercept - 2.0).abs() < 1e-9);
        assert_eq!(regression(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
