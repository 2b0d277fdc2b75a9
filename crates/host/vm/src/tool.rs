//! Programs of the host: finds them, or reports the package that contains them.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::error::{Error, Result};

/// Finds `program` in `$PATH` and the system directories (the path of an ordinary user often lacks
/// `/usr/sbin`).
pub(crate) fn find(program: &str, package: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(extra)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::Missing {
            program: program.to_owned(),
            package,
        })
}

/// Runs a command until it ends, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = describe(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().map_err(|error| Error::Command {
        command: line.clone(),
        detail: error.to_string(),
    })?;
    if status.success() {
        return Ok(stdout);
    }
    let detail = format!("{status}: {}", last_words(&stderr));
    Err(Error::Command {
        command: line,
        detail,
    })
}

/// The last non-empty lines of a program's standard error, at most 600 bytes.
pub(crate) fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    let mut start = text.len().saturating_sub(600);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    if text.is_empty() {
        "it printed nothing".to_owned()
    } else {
        text[start..].to_owned()
    }
}

fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
