//! Records failed measurements, while the other ones continue.

use crate::Progress;
use crate::error::Result;

/// A benchmark ends when this number of measurements in succession have failed.
pub const FAILURES_MAX: usize = 8;

/// The failures so far.
#[derive(Debug)]
pub(crate) struct Failures {
    lines: Vec<String>,
    in_a_row: usize,
    progress: Progress,
}

impl Failures {
    pub(crate) fn new(progress: Progress) -> Failures {
        Failures {
            lines: Vec::new(),
            in_a_row: 0,
            progress,
        }
    }

    /// Records the outcome of one measurement. Returns its value, or `None` if it failed. `what`
    /// names the measurement.
    ///
    /// # Errors
    /// This is the last of [`FAILURES_MAX`] failures in succession.
    pub(crate) fn note<T>(&mut self, what: &str, outcome: Result<T>) -> Result<Option<T>> {
        let error = match outcome {
            Ok(value) => {
                self.in_a_row = 0;
                return Ok(Some(value));
            }
            Err(error) => error,
        };
        self.in_a_row += 1;
        if self.in_a_row == FAILURES_MAX {
            return Err(error.in_case(what));
        }
        let line = format!("{what}, {error}");
        self.progress.step(format!("FAILED: {line}"));
        self.lines.push(line);
        Ok(None)
    }

    /// The failures, one line for each.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn failed() -> Result<()> {
        Err(Error::Ping("no answer".to_owned()))
    }

    #[test]
    fn too_many_failures_in_a_row_end_the_bench() {
        let mut failures = Failures::new(Progress(|_| {}));
        for _ in 0..FAILURES_MAX - 1 {
            assert!(
                failures
                    .note("run 1", failed())
                    .is_ok_and(|note| note.is_none())
            );
        }
        assert!(
            failures
                .note("run 2", Ok(()))
                .is_ok_and(|note| note.is_some())
        );
        for _ in 0..FAILURES_MAX - 1 {
            assert!(failures.note("run 3", failed()).is_ok());
        }
        let error = failures.note("run 4", failed()).unwrap_err();
        assert_eq!(error.to_string(), "run 4: ping: no answer");
        let lines = failures.into_lines();
        assert_eq!(lines.len(), 2 * (FAILURES_MAX - 1));
        assert_eq!(lines[0], "run 1, ping: no answer");
    }
}
