//! The failures of a run, for a caller that prints them.

use std::fmt;

/// The failures of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// Each failure, with its time.
    pub failures: Vec<String>,
    /// Description of the state of the world, for people.
    pub state: String,
}

impl std::error::Error for RunError {}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.failures.join("\n"), self.state)
    }
}
