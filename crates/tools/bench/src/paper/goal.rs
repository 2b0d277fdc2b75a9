//! Goals, and whether measurements reach them.

use carina_measure::ratio::Ratio;
use serde::Serialize;

/// A ratio that has to reach a required value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    /// Name of the case whose ratio is compared with the required value.
    pub case: String,
    /// Description of the ratio, as text.
    pub goal: String,
    /// The value that the ratio has to reach.
    pub bar: f64,
    /// The median of the ratios of paired runs, its 95 % interval, and the number of pairs.
    #[serde(flatten)]
    pub measured: Ratio,
    /// Whether the goal is reached: the median is at least `bar`, or `bar` is within the interval.
    /// `None` with too few runs.
    pub held: Option<bool>,
}

impl Goal {
    /// A goal, with the measured ratio.
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
