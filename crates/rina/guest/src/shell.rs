//! Runs commands of the host in a shell.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// A shell that runs a script. A script that is too long for an argument is in a file, which is
/// removed afterwards.
pub(crate) struct Shell {
    pub command: Command,
    file: Option<String>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // It is in memory, and goes with the guest at the latest.
            let _ = fs::remove_file(file);
        }
    }
}

/// A shell for a command.
///
/// # Errors
/// Its file cannot be written.
pub(crate) fn shell_of(id: &str, script: &str) -> std::io::Result<Shell> {
    let mut command = Command::new("sh");
    if script.len() <= ARGUMENT_BYTES_MAX {
        command.arg("-c").arg(script);
        return Ok(Shell {
            command,
            file: None,
        });
    }
    let file = format!("{DIRECTORY}/{id}");
    fs::write(&file, script)?;
    command.arg(&file);
    Ok(Shell {
        command,
        file: Some(file),
    })
}

/// Returns the status of a command as a shell reports it: 128 plus the number of the signal that
/// ended it.
pub(crate) fn status_of(status: ExitStatus) -> i32 {
    let by_signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(by_signal)
}

/// Directory for the files of commands.
pub(crate) const DIRECTORY: &str = "/run/agent";
/// Longest script that is passed as an argument, in bytes. An argument may have at most 128 KiB
/// (execve(2)).
const ARGUMENT_BYTES_MAX: usize = 100 << 10;
