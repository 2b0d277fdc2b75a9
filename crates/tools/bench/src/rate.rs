//! Rates of frames, and judgements whether a ratio of rates reaches a required value.

use carina_measure::results::{Factor, Metric, Samples};

/// A rate of frames, and its cost in CPU time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Frames in 10⁶ per second.
    pub(crate) mpps: f64,
    /// CPU time per frame of the forwarding thread, in ns.
    pub(crate) ns_per_frame: f64,
    /// Share of wall-clock time in which the thread ran, from 0 to 1.
    pub(crate) cpu_share: f64,
}

impl Rate {
    /// The rate of `frames` frames in the given wall-clock time and CPU time, in ns.
    pub(crate) fn of(frames: f64, wall_ns: f64, cpu_ns: f64) -> Rate {
        Rate {
            mpps: frames * 1000.0 / wall_ns,
            ns_per_frame: cpu_ns / frames,
            cpu_share: cpu_ns / wall_ns,
        }
    }

    pub(crate) fn add_to(&self, samples: &mut Samples, case: &str, size: u64, system: &str) {
        let values = [
            (Metric::Mpps, self.mpps),
            (Metric::CpuNsPerSdu, self.ns_per_frame),
        ];
        for (metric, value) in values {
            samples.add(case, size, system, metric, value);
        }
    }

    /// A note for a rate that other programs disturbed; otherwise `None`.
    pub(crate) fn disturbance(&self, case: &str, system: &str, cpu: usize) -> Option<String> {
        let percent = (self.cpu_share * 100.0).round();
        (self.cpu_share < CPU_SHARE_MIN).then(|| {
            format!(
                "{case}, {system}: other threads ran too, it had {percent} % of processor {cpu}"
            )
        })
    }
}

/// For each ratio in `metric` to `peer`, a text that says whether it reaches the value that `bar`
/// returns for its case.
pub(crate) fn compare_with_bars(
    factors: &[Factor],
    peer: &str,
    metric: Metric,
    bar: impl Fn(&str) -> Option<f64>,
) -> Vec<String> {
    let is_rate = |factor: &&Factor| factor.over == peer && factor.metric == metric;
    let line = |factor: &Factor| {
        let Factor {
            case, sdu, ratio, ..
        } = factor;
        let [low, high] = ratio.interval;
        let bar = match bar(case) {
            None => "no bar".to_owned(),
            Some(bar) => match ratio.holds(bar) {
                None => format!("bar {bar}: too few runs"),
                Some(true) => format!("bar {bar}: held"),
                Some(false) => format!("bar {bar}: NOT HELD"),
            },
        };
        let ratio = ratio.ratio;
        format!("{case} at {sdu} bytes: {ratio:.2} x {peer} [{low:.2} to {high:.2}]; {bar}")
    };
    factors.iter().filter(is_rate).map(line).collect()
}

/// Least share of wall-clock time for a rate that counts as undisturbed.
const CPU_SHARE_MIN: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_judged_by_pairs_of_runs() {
        let mut samples = Samples::default();
        for run in 0..5 {
            let slow = f64::from(run) + 10.0;
            for (case, factor) in [("a", 1.5), ("b", 0.5), ("c", 1.0)] {
                samples.add(case, 64, "carina", Metric::Mpps, slow * factor);
                samples.add(case, 64, "peer", Metric::Mpps, slow);
                samples.add(case, 64, "peer", Metric::CpuNsPerSdu, slow);
            }
        }
        let lines = compare_with_bars(&samples.factors(), "peer", Metric::Mpps, |case| {
            (case != "c").then_some(1.0)
        });
        assert_eq!(
            lines,
            [
                "a at 64 bytes: 1.50 x peer [1.50 to 1.50]; bar 1: held",
                "b at 64 bytes: 0.50 x peer [0.50 to 0.50]; bar 1: NOT HELD",
                "c at 64 bytes: 1.00 x peer [1.00 to 1.00]; no bar",
            ]
        );
    }
}
