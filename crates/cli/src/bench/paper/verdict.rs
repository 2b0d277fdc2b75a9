//! Goals, and whether a measurement has met them.

use carina_measure::results::{Metric, Results};
use serde::Serialize;

/// A goal beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The case.
    pub case: String,
    /// What is to be, in words.
    pub goal: String,
    /// What is, in words.
    pub measured: String,
    /// Whether it is as it is to be.
    pub met: bool,
}

impl Verdict {
    /// A verdict.
    pub fn new(case: &str, goal: impl Into<String>, measured: String, met: bool) -> Self {
        Self {
            case: case.to_owned(),
            goal: goal.into(),
            measured,
            met,
        }
    }
}

/// The goodput of one system over that of another at each SDU size at which both were measured.
pub fn ratios(results: &Results, case: &str, over: &str, under: &str) -> Vec<(u64, f64)> {
    let goodput = |system: &str, sdu| results.median(case, sdu, system, Metric::GoodputMbps);
    let mut sizes: Vec<u64> = results
        .rows
        .iter()
        .filter(|row| row.case == case && row.metric == Metric::GoodputMbps)
        .map(|row| row.sdu)
        .collect();
    sizes.dedup();
    let ratio = |sdu: u64| match (goodput(over, sdu), goodput(under, sdu)) {
        (Some(a), Some(b)) if b > 0.0 => Some((sdu, a / b)),
        _ => None,
    };
    sizes.into_iter().filter_map(ratio).collect()
}
