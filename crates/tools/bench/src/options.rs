//! Options of the benchmarks that have cases and sizes.

use crate::Progress;
use crate::error::Result;
use crate::failures::Failures;

/// The measurements to make: cases, sizes, duration and number of runs.
#[derive(Debug, Clone)]
pub struct Options<Case> {
    /// The cases of the benchmark that are measured, each at all sizes.
    pub cases: Vec<Case>,
    /// Number of times that each case is measured at each size.
    pub runs: usize,
    /// Duration of each single measurement in nanoseconds, without its warm-up.
    pub time_ns: u64,
    /// Sizes in bytes, of frames without FCS or of payloads.
    pub sizes: Vec<u64>,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

impl<Case: Copy> Options<Case> {
    /// Measures each case at each size, run after run, so that a disturbance of the machine affects
    /// all alike. Passes the number of the run, from 1, to `measure`. Returns the failures, one
    /// line each.
    ///
    /// # Errors
    /// Those of [`Failures::note`].
    pub(crate) fn measure_each(
        &self,
        name: impl Fn(&Case) -> &'static str,
        mut measure: impl FnMut(usize, Case, u64) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut failures = Failures::new(self.progress);
        for run in 1..=self.runs {
            for case in &self.cases {
                for size in &self.sizes {
                    let what = format!("run {run} of {}: {}, {size} bytes", self.runs, name(case));
                    self.progress.step(&what);
                    failures.note(&what, measure(run, *case, *size))?;
                }
            }
        }
        Ok(failures.into_lines())
    }
}

impl<Case> Options<Case> {
    /// Returns these options for one case alone: with the sizes that the user chose, otherwise with
    /// `own_sizes`.
    pub(crate) fn of_case(&self, case: Case, own_sizes: &[u64]) -> Self {
        let sizes = match &self.sizes[..] {
            [] => own_sizes,
            chosen => chosen,
        };
        Options {
            cases: vec![case],
            sizes: sizes.to_vec(),
            ..*self
        }
    }
}

/// Measures each of the systems once; in each run another system is first. A failure ends the
/// turn without a value of any system, so that values come in pairs.
pub(crate) fn in_turns<T>(
    run: usize,
    mut systems: Vec<&'static str>,
    mut measure: impl FnMut(&'static str) -> Result<T>,
) -> Result<Vec<(&'static str, T)>> {
    let first = run % systems.len();
    systems.rotate_left(first);
    let all = systems.into_iter();
    all.map(|system| Ok((system, measure(system)?))).collect()
}
