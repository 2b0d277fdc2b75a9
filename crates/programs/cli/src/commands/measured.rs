//! Output shared by the benchmarks and the demo.

use carina_bench::Progress;
use carina_measure::results::{Metric, Results};

use crate::Shared;
use crate::failure::{Failure, Outcome, failed, usage};
use crate::report::{print_json, print_line, progress};

/// Prints the steps of a benchmark on standard error.
pub(crate) const PROGRESS: Progress = Progress(|text| progress(text));

impl From<carina_bench::Error> for Failure {
    fn from(error: carina_bench::Error) -> Self {
        match error {
            carina_bench::Error::FileLimit { .. } => usage(error),
            error => Failure::of(error.to_string(), &error),
        }
    }
}

/// Fails when something could not be measured.
///
/// # Errors
/// Lists what was not measured, and why.
pub(crate) fn all_measured(results: &Results) -> Outcome {
    if results.failures.is_empty() {
        Ok(())
    } else {
        Err(failed(format!(
            "not measured: {}",
            results.failures.join("; ")
        )))
    }
}

/// Prints results as JSON, or as tables with their notes.
///
/// # Errors
/// Standard output is closed, or the write fails.
pub(crate) fn show(
    shared: &Shared,
    results: &Results,
    tables: &[(&str, Metric, &str)],
    systems: &[&str],
) -> Outcome {
    if shared.json {
        return print_json(results);
    }
    print_line(format!("{}\n", results.machine))?;
    let present: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| results.rows.iter().any(|row| row.system == *system))
        .collect();
    for (case, metric, title) in tables {
        let table = results.table(case, *metric, &present);
        if !table.is_empty() {
            let factors = if results.factors.is_empty() {
                ""
            } else {
                "; ×: factor [95 % interval]"
            };
            print_line(format!(
                "{case}: {title}; median [lowest..highest]{factors}\n{table}\n"
            ))?;
        }
    }
    for note in &results.notes {
        print_line(format!("- {note}"))?;
    }
    Ok(())
}
