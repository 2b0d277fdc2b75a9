//! Output of commands: lines for people, JSON for programs, progress on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Attempt, Failure, Outcome};

/// Prints a value as JSON on standard output, on one line.
///
/// # Errors
/// JSON cannot express the value ([`Failure::Failed`]), standard output is closed
/// ([`Failure::Unread`]), or the write fails ([`Failure::Failed`]).
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    print_line(serde_json::to_string(value).attempt("writing JSON")?)
}

/// Prints a line of text on standard output.
///
/// # Errors
/// Standard output is closed ([`Failure::Unread`]), or the write fails ([`Failure::Failed`]).
pub(crate) fn print_line(text: impl Display) -> Outcome {
    printed(writeln!(io::stdout(), "{text}"))
}

/// Writes bytes to standard output as they are, and flushes.
///
/// # Errors
/// Standard output is closed ([`Failure::Unread`]), or the write fails ([`Failure::Failed`]).
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome {
    let mut output = io::stdout().lock();
    printed(output.write_all(bytes).and_then(|()| output.flush()))
}

/// The outcome of a write to standard output. A closed pipe ends the command without a message.
///
/// # Errors
/// [`Failure::Unread`] for a closed pipe, else [`Failure::Failed`].
pub(crate) fn printed(result: io::Result<()>) -> Outcome {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        other => other.attempt("writing to standard output"),
    }
}

/// Reports a failure as text on standard error, and with `json` also as an object on standard
/// output.
pub(crate) fn report(failure: &Failure, json: bool) {
    progress(format!("carina: {failure}"));
    if json {
        let body = serde_json::json!({
            "error": { "code": failure.word(), "message": failure.to_string() }
        });
        // If standard output is closed, this error is not reported anywhere.
        let _ = print_json(&body);
    }
}

/// Prints a progress line on standard error, so that it is not mixed with the output of `--json`.
pub(crate) fn progress(text: impl Display) {
    // One write for the whole line: other programs may write to the same file or terminal.
    let line = format!("{text}\n");
    // If standard error is closed, this error is not reported anywhere.
    let _ = io::stderr().write_all(line.as_bytes());
}
