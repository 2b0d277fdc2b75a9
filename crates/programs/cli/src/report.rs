//! What a command prints: lines for people, JSON for programs, progress on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Attempt, Failure, Outcome};

/// Prints one JSON document on standard output, on one line.
///
/// # Errors
/// A value that JSON cannot carry, or a closed standard output.
pub fn print_json(value: &impl Serialize) -> Outcome {
    print_line(serde_json::to_string(value).attempt("writing JSON")?)
}

/// Prints a line of text on standard output.
///
/// # Errors
/// A closed standard output.
pub fn print_line(text: impl Display) -> Outcome {
    printed(writeln!(io::stdout(), "{text}"))
}

/// Puts bytes on standard output as they are, and none of them waits for more.
///
/// # Errors
/// A closed standard output.
pub fn print_bytes(bytes: &[u8]) -> Outcome {
    let mut output = io::stdout().lock();
    printed(output.write_all(bytes).and_then(|()| output.flush()))
}

/// The outcome of a write to standard output: a closed pipe ends a command without a message.
///
/// # Errors
/// [`Failure::Unread`], or what else there was.
pub fn printed(result: io::Result<()>) -> Outcome {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        other => other.attempt("writing to standard output"),
    }
}

/// Reports a failure: words on standard error, with `json` an object on standard output.
pub fn report(failure: &Failure, json: bool) {
    progress(format!("carina: {failure}"));
    if json {
        let body = serde_json::json!({
            "error": { "code": failure.word(), "message": failure.to_string() }
        });
        // With standard output closed there is nowhere to report this.
        let _ = print_json(&body);
    }
}

/// Prints a progress line on standard error, where it does not disturb `--json`.
pub fn progress(text: impl Display) {
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(io::stderr(), "{text}");
}
