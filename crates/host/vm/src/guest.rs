//! Access to a running guest from any process: the machine's record locates it, and its second
//! serial port carries the commands.

use std::path::Path;
use std::time::Duration;

use crate::command::{CommandLimits, Finish, Output, Sink};
use crate::error::{Error, Result};
use crate::shell::{NoAnswer, SILENCE, Shell};
use crate::state;

/// How long a guest may take to boot; an emulated guest is slow.
pub const BOOT: Duration = Duration::from_secs(180);

/// How long a guest on a user's disk may take to answer. It has been running since QEMU started,
/// and most such guests have no agent that answers.
const DISK_ANSWER: Duration = Duration::from_secs(30);
const AWAITED: &str = "waiting for it to answer";
const AWAITED_OF_DISK: &str = "waiting for it to answer (only Carina's own guest runs the agent \
     that answers; reach a VM from --disk by `carina vm console` or by flows)";

/// A running guest, accessed through its second serial port.
#[derive(Debug)]
pub struct Guest {
    name: String,
    shell: Shell,
}

impl Guest {
    /// Connects to the guest of a machine recorded in `directory`, and waits at most `limit` until
    /// it has booted. Without a limit, it waits as long as Carina's own guest takes at most; for a
    /// user's disk, which may have no agent, it waits only briefly.
    ///
    /// # Errors
    /// The machine is not running, or does not answer.
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
        // The first bytes of a connection may be lost, so the request is repeated until there is an
        // answer.
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

    /// Runs a shell command in the guest, and waits until it ends, for at most `limit`.
    ///
    /// # Errors
    /// The guest does not answer, or the command does not end within `limit`. A command that fails
    /// is not an error; the output has its status.
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

    /// Like [`Guest::run`], but hands the output to `sink` while the command runs. Kills the
    /// command at the end of `until`, or when the sink refuses output.
    ///
    /// # Errors
    /// The guest does not answer. A command that was killed is not an error; the result says why.
    pub fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Finish> {
        let done = self.shell.stream(command, until, sink);
        done.map_err(|answer| self.silent(format!("`{command}`"), answer, until.limit))
    }

    /// Runs a shell command in the guest, and requires it to succeed.
    ///
    /// # Errors
    /// The guest does not answer, or the command fails; the error has its message.
    pub fn must_run(&self, command: &str) -> Result<Output> {
        let output = self.run(command, COMMAND)?;
        if output.is_success() {
            return Ok(output);
        }
        Err(Error::GuestCommand {
            vm: self.name.clone(),
            command: command.to_owned(),
            status: output.status,
            stderr: output.error_text(),
        })
    }

    /// Writes a text file in the guest, in commands that are short enough for the serial port's
    /// buffer.
    ///
    /// # Errors
    /// The guest does not answer, or cannot write the file.
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
        if let Some(fault) = answer.fault() {
            return Error::Guest(format!("VM {} {fault}", self.name));
        }
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

/// The agent's message for a command whose text did not arrive.
const LOST: &str = "the text of command ";
const ATTEMPTS: u32 = 5;

/// Number of bytes of a file in one command.
const PUT_BYTES: usize = 800;

/// Time limit for a command that must succeed.
const COMMAND: Duration = Duration::from_secs(60);
