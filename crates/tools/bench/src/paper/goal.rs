//! Goals, and whether measurements hold them.

use carina_measure::ratio::Ratio;
use serde::Serialize;

/// A ratio that is to be at least a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    /// The case.
    pub case: String,
    /// The goal, in words.
    pub goal: String,
    /// The ratio that is wanted.
    pub bar: f64,
    /// The median of the paired runs, its 95 % interval, and how many pairs there are.
    #[serde(flatten)]
    pub measured: Ratio,
    /// Whether the median holds the bar or the bar lies within the interval; absent with too few
    /// runs.
    pub held: Option<bool>,
}

impl Goal {
    /// A goal beside what was measured.
    pub fn new(case: &str, goal: impl Into<String>, bar: f64, measured: Ratio) -> Self {
        Self {
            case: case.to_owned(),
            goal: goal.into(),
            bar,
            measured,
            held: measured.holds(bar),
        }
    }
}
