//! The ratios that the benchmark requires, and whether the measurements reach them.

use carina_measure::results::{Metric, OURS, Samples};

use super::{CONNECT, PASTA, PROXY, RELAY, TCP};
use crate::rate::compare_with_bars;

/// A line for each ratio that was measured and has a bar, and for each ratio of the proxy.
pub(super) fn compare(samples: &Samples) -> Vec<String> {
    let mut notes = Vec::new();
    for (system, peer, metric, bars) in BARS {
        let bar = |case: &str| bars.iter().find(|bar| bar.0 == case).map(|bar| bar.1);
        let mut factors = samples.factors_of(system);
        factors.retain(|factor| bar(&factor.case).is_some());
        let lines = compare_with_bars(&factors, peer, metric, bar);
        notes.extend(lines.into_iter().map(|line| format!("{system}, {line}")));
    }
    let of_proxy = samples.factors_of(PROXY);
    for metric in [Metric::GoodputMbps, Metric::RttP50Us] {
        let lines = compare_with_bars(&of_proxy, RELAY, metric, |_| None);
        notes.extend(lines.into_iter().map(|line| format!("proxy, {line}")));
    }
    notes
}

/// The bars: system, peer, metric, and the required ratio in each case.
type Bars = (
    &'static str,
    &'static str,
    Metric,
    &'static [(&'static str, f64)],
);

const BARS: [Bars; 4] = [
    (
        OURS,
        TCP,
        Metric::GoodputMbps,
        &[("bulk", 0.97), ("iperf3", 2.0), ("static", 1.0)],
    ),
    (
        OURS,
        TCP,
        Metric::MsgsPerS,
        &[
            ("round-trips", 0.97),
            ("redis", 1.5),
            ("redis-pipelined", 1.15),
            ("wrk", 1.5),
            ("static-round-trips", 1.0),
            ("connections", 0.5),
        ],
    ),
    (OURS, PASTA, Metric::MsgsPerS, &[("connections", 1.0)]),
    (
        CONNECT,
        RELAY,
        Metric::GoodputMbps,
        &[("many-1", 1.0), ("many-16", 1.0), ("many-256", 1.0)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_is_judged_in_its_own_case() {
        let mut samples = Samples::default();
        for _ in 0..5 {
            for (case, system, metric, value) in [
                ("iperf3", OURS, Metric::GoodputMbps, 30.0),
                ("iperf3", TCP, Metric::GoodputMbps, 20.0),
                ("many-16", CONNECT, Metric::GoodputMbps, 11.0),
                ("many-16", RELAY, Metric::GoodputMbps, 10.0),
            ] {
                samples.add(case, 64, system, metric, value);
            }
        }
        assert_eq!(
            compare(&samples),
            [
                "carina, iperf3 at 64 bytes: 1.50 x tcp [1.50 to 1.50]; bar 2: NOT HELD",
                "connect, many-16 at 64 bytes: 1.10 x socat [1.10 to 1.10]; bar 1: held",
            ]
        );
    }
}
