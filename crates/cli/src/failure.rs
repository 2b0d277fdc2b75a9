//! How a command ends when it does not succeed, and the exit code that says so.

use std::fmt;

/// The exit code of a command that tried and did not succeed.
pub const EXIT_FAILED: u8 = 1;
/// The exit code of a command line that asks for something impossible; nothing was tried.
pub const EXIT_USAGE: u8 = 2;

/// Why a command did not succeed: what was attempted, on what, and what would be right.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong; nothing was tried.
    Usage(String),
    /// The command was tried and did not succeed.
    Failed(String),
}

impl Failure {
    /// The exit code of the process for this failure.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(_) => EXIT_FAILED,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

/// A failure that was tried, from anything that can be shown.
pub fn failed(text: impl fmt::Display) -> Failure {
    Failure::Failed(text.to_string())
}

/// A wrong command line.
pub fn usage(text: impl fmt::Display) -> Failure {
    Failure::Usage(text.to_string())
}

/// Puts what was attempted in front of the reason for which it failed.
pub trait Attempt<T> {
    /// Turns an error into `Failure::Failed("{what}: {error chain}")`.
    fn attempt(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: std::error::Error> Attempt<T> for Result<T, E> {
    fn attempt(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let mut text = format!("{what}: {error}");
            let mut source = error.source();
            while let Some(inner) = source {
                let inner_text = inner.to_string();
                // Many errors already print their source; saying it twice helps nobody.
                if !text.ends_with(&inner_text) {
                    text.push_str(": ");
                    text.push_str(&inner_text);
                }
                source = inner.source();
            }
            Failure::Failed(text)
        })
    }
}

/// What every command returns.
pub type Outcome = Result<(), Failure>;
