//! What a command shows: tables for people, JSON for programs, figures for both.

pub mod figure;
pub mod rows;
pub mod table;

use serde::Serialize;

use crate::failure::{Attempt, Outcome};

/// Prints one JSON document on standard output, on one line.
///
/// # Errors
/// A value that JSON cannot carry, or a closed standard output.
pub fn print_json(value: &impl Serialize) -> Outcome {
    use std::io::Write;
    let text = serde_json::to_string(value).attempt("writing JSON")?;
    writeln!(std::io::stdout(), "{text}").attempt("writing to standard output")
}

/// Prints a line of text on standard output; a reader that went away is a failure, not a panic.
///
/// # Errors
/// A closed standard output.
pub fn print_line(text: impl std::fmt::Display) -> Outcome {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").attempt("writing to standard output")
}

/// Prints a progress line on standard error, where it does not disturb `--json`.
pub fn progress(text: impl std::fmt::Display) {
    use std::io::Write;
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}
