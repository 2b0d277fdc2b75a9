//! The error of a simulation, for a caller that prints it.

use std::fmt;

/// What has failed in a simulation, with the state of the simulated world at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// Each failure as text, with its virtual time.
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
