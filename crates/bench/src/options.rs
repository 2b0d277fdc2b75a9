//! Options of the benches that have cases and sizes.

use crate::Progress;

/// What is measured, and how often and how long.
#[derive(Debug, Clone)]
pub struct Options<Case> {
    /// The cases.
    pub cases: Vec<Case>,
    /// Repetitions.
    pub runs: usize,
    /// Time of each measurement in nanoseconds.
    pub time_ns: u64,
    /// Sizes in bytes, of frames without FCS or of payloads.
    pub sizes: Vec<u64>,
    /// Called at each step.
    pub progress: Progress,
}
