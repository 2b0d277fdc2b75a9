//! A running guest of any process: it is found by the record of its machine and reached through
//! its second serial port.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::running::Output;
use crate::shell::{NoAnswer, SILENCE, Shell};
use crate::state;

/// How long a guest may take to boot; under translation it is slow.
pub const BOOT: Duration = Duration::from_secs(180);

/// How long a guest on a disk of the user's may take to answer: it runs since QEMU has started, and
/// most such guests have nothing that answers.
const DISK_ANSWER: Duration = Duration::from_secs(30);
const AWAITED: &str = "waiting for it to answer";
const AWAITED_OF_DISK: &str = "waiting for it to answer (only Carina's own guest runs what answers; a \
     VM from --disk is reached by `carina vm console` or by flows)";

/// A running guest, reached through its second serial port.
#[derive(Debug)]
pub struct Guest {
    name: String,
    shell: Shell,
}

impl Guest {
    /// Reaches the guest of a machine recorded in `directory`, once it has booted, for which it has
    /// `limit`; without one, as long as the slowest boot of Carina's own guest takes. A disk of the
    /// user's may have nothing that answers.
    ///
    /// # Errors
    /// The machine does not run, or does not answer.
    pub fn reach(directory: &Path, name: &str, limit: Option<Duration>) -> Result<Self> {
        let reaching = |source: Error| Error::Unreachable {
            vm: name.to_owned(),
            source: Box::new(source),
        };
        let machines = state::list(directory).map_err(reaching)?;
        let record = machines.into_iter().find(|record| record.name == name);
        let record = record.ok_or_else(|| Error::NoMachine(name.to_owned()))?;
        let shell = Shell::connect(&record.agent).map_err(reaching)?;
        let name = name.to_owned();
        let guest = Self { name, shell };
        // The first bytes of a connection may be lost; the request is repeated until an answer.
        let (limit, what) = if record.from_disk {
            (limit.unwrap_or(DISK_ANSWER), AWAITED_OF_DISK)
        } else {
            (limit.unwrap_or(BOOT), AWAITED)
        };
        guest
            .shell
            .wait_ready(limit, || false)
            .map_err(|answer| guest.silent(what, answer, limit))?;
        Ok(guest)
    }

    /// Runs a shell command in it.
    ///
    /// # Errors
    /// The guest does not answer. A command that fails is reported by its status.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        let mut attempts = 0;
        loop {
            let (status, stdout, stderr) = self
                .shell
                .run(command, limit)
                .map_err(|answer| self.silent(format!("`{command}`"), answer, limit))?;
            attempts += 1;
            // The serial port lost the text of the command, so nothing was run.
            let is_lost = status == 2 && String::from_utf8_lossy(&stderr).starts_with(LOST);
            if !is_lost || attempts == ATTEMPTS {
                return Ok(Output {
                    status,
                    stdout,
                    stderr,
                });
            }
        }
    }

    /// Runs a shell command in it that must succeed.
    ///
    /// # Errors
    /// The guest does not answer, or the command fails; its message is in the error.
    pub fn must_run(&self, command: &str) -> Result<Output> {
        let output = self.run(command, COMMAND)?;
        if output.is_success() {
            return Ok(output);
        }
        Err(Error::GuestCommand {
            vm: self.name.clone(),
            command: command.to_owned(),
            status: output.status,
            said: output.error_text(),
        })
    }

    /// Writes a text file in it, in commands short enough for the serial port's buffer.
    ///
    /// # Errors
    /// The guest does not answer or cannot.
    pub fn put(&self, path: &str, text: &str) -> Result<()> {
        self.must_run(&format!(": >'{path}'"))?;
        let mut rest = text;
        while !rest.is_empty() {
            let mut end = rest.len().min(PUT_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (part, after) = rest.split_at(end);
            let quoted = part.replace('\'', "'\\''");
            self.must_run(&format!("printf '%s' '{quoted}' >>'{path}'"))?;
            rest = after;
        }
        Ok(())
    }

    fn silent(&self, what: impl Into<String>, answer: NoAnswer, limit: Duration) -> Error {
        let mut what = what.into();
        if answer == NoAnswer::Silent {
            what.push_str(": the guest no longer answers while it runs");
        }
        Error::Silent {
            vm: self.name.clone(),
            what,
            is_closed: answer == NoAnswer::Closed,
            limit: match answer {
                NoAnswer::Silent => SILENCE,
                _ => limit,
            },
        }
    }
}

/// The guest's agent says this of a command whose text has not come.
const LOST: &str = "the text of command ";
const ATTEMPTS: u32 = 5;

/// Bytes of a file in one command.
const PUT_BYTES: usize = 800;

/// How long a command may take that the guest must run.
const COMMAND: Duration = Duration::from_secs(60);
