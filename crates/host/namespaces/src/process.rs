//! Processes that may outlive the command that started them, and child processes that do not.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_sys::{end_with_parent, unblock_stop_signals};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{Attempt, Error, Result};

/// A process, identified by its pid and its start time, because pids are reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process ID.
    pub pid: i32,
    started_ticks: u64,
}

impl Process {
    /// The process of a child. The child may have ended already: its pid is not reused before the
    /// child is waited for.
    ///
    /// # Errors
    /// The child was already waited for.
    pub fn of_child(child: &Child) -> Result<Self> {
        i32::try_from(child.id())
            .ok()
            .and_then(|pid| {
                let (_, started_ticks) = status(pid)?;
                Some(Self { pid, started_ticks })
            })
            .ok_or(Error::NoProcess(child.id()))
    }

    /// This process.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn own() -> Result<Self> {
        let pid = std::process::id();
        Self::numbered(pid.cast_signed()).ok_or(Error::NoProcess(pid))
    }

    /// The running process with this pid; `None` if no such process exists.
    pub fn numbered(pid: i32) -> Option<Self> {
        let started_ticks = start_ticks(pid)?;
        Some(Self { pid, started_ticks })
    }

    /// Whether this process is still running.
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.started_ticks)
    }

    /// Sends SIGINT to the process, as Ctrl-C does; does nothing if the process has ended.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            // The process may end at this moment.
            let _ = kill_process(pid, signal);
        }
    }
}

/// A child process that is ended when this value is dropped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    what: String,
}

impl ChildProcess {
    /// Starts a command. `what` names the child in errors.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command, what: impl Into<String>) -> Result<Self> {
        let what = what.into();
        // SIGTERM ends the child when this value is dropped.
        let child = unblock_stop_signals(command)
            .spawn()
            .attempt(format!("starting {what}"))?;
        Ok(Self { child, what })
    }

    /// The pid of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Pid and start time of the child, for a record by which another process can end it.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn process(&self) -> Result<Process> {
        Process::of_child(&self.child)
    }

    /// Checks whether the child is still running, without waiting.
    ///
    /// # Errors
    /// The child has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self
            .child
            .try_wait()
            .attempt("checking whether a child process has ended")?
        {
            None => Ok(()),
            Some(status) => Err(Error::ChildEnded {
                what: self.what.clone(),
                status,
            }),
        }
    }

    /// Drops this value but does not end the child.
    pub fn detach(self) {
        std::mem::forget(self);
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Ok(process) = self.process() {
            end_all(std::slice::from_ref(&process), GRACE);
        }
        // The child has ended; this removes the zombie.
        let _ = self.child.wait();
    }
}

/// Runs a command until it ends, at most for `limit`, and returns its output. The command is killed
/// if this process ends. `what` names the command in errors.
///
/// # Errors
/// The command cannot be started, or does not end in time; then it is killed.
pub fn run_within(command: &mut Command, what: &str, limit: Duration) -> Result<Output> {
    let mut child = end_with_parent(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .attempt(format!("running {what}"))?;
    // Both streams are read while the command runs, so that it never waits for room in one of them.
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().attempt(format!("running {what}"))? {
            Some(status) => break Some(status),
            None if Instant::now() >= deadline => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        // The command may end at this moment.
        let _ = child.kill();
        let _ = child.wait();
    }
    let stdout = out.join().unwrap_or_default();
    let stderr = err.join().unwrap_or_default();
    let Some(status) = status else {
        let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
        let what = what.to_owned();
        return Err(Error::RunsOn {
            what,
            limit,
            stderr,
        });
    };
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Reads a stream to its end on a thread of its own.
fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes that were read before an error are kept.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        bytes
    })
}

/// Sends SIGTERM to processes, and SIGKILL to those that are still running after `grace`.
pub fn end_all(processes: &[Process], grace: Duration) {
    for process in processes {
        process.signal(Signal::TERM);
    }
    wait_for_end(processes, grace);
    for process in processes {
        process.signal(Signal::KILL);
    }
    wait_for_end(processes, AFTER_KILL);
}

fn wait_for_end(processes: &[Process], limit: Duration) {
    let deadline = Instant::now() + limit;
    while processes.iter().any(Process::is_alive) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Start time of a process in clock ticks since boot; `None` if it has ended or is a zombie.
fn start_ticks(pid: i32) -> Option<u64> {
    let (state, started_ticks) = status(pid)?;
    (!matches!(state, 'Z' | 'X')).then_some(started_ticks)
}

/// State and start time of a process (proc(5)).
fn status(pid: i32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the command's name, may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // Field 22 of proc(5), counted from the third field.
    Some((
        fields.first()?.chars().next()?,
        fields.get(19)?.parse().ok()?,
    ))
}

/// How long a process may take to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(5);
const AFTER_KILL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_identified_by_its_start_time_too() {
        let own = i32::try_from(std::process::id()).unwrap();
        let this = Process::numbered(own).unwrap();
        assert!(this.is_alive());
        let earlier = Process {
            started_ticks: this.started_ticks + 1,
            ..this
        };
        assert!(!earlier.is_alive());
        // The signal would end the test if this record were taken for the test's own process.
        earlier.signal(Signal::KILL);
    }

    #[test]
    fn child_of_a_thread_that_blocks_signals_does_not_block_them() {
        let _stop = carina_sys::StopSignal::new().unwrap();
        let mut command = Command::new("sleep");
        let child = ChildProcess::start(command.arg("1000"), "sleep").unwrap();
        let blocked = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix("SigBlk:"));
            u64::from_str_radix(mask.unwrap().trim(), 16).unwrap()
        };
        let term = 1 << (Signal::TERM.as_raw() - 1);
        assert_eq!(blocked(child.id()) & term, 0);
    }

    #[test]
    fn child_that_has_ended_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of_child(&child).unwrap();
        while process.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = Process::of_child(&child).unwrap();
        assert!(!ended.is_alive());
        assert_eq!(ended, process);
        child.wait().unwrap();
    }

    #[test]
    fn command_that_runs_on_is_killed_at_its_deadline() {
        let run = |script: &str, limit| {
            let mut command = Command::new("sh");
            run_within(command.args(["-c", script]), "a script", limit)
        };
        let output = run("echo out; echo err >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out\n"[..], &b"err\n"[..])
        );
        let error = run("echo so far >&2; exec sleep 600", Duration::from_secs(3));
        let words = error.unwrap_err().to_string();
        assert!(
            words.contains("a script to end") && words.contains("so far"),
            "{words}"
        );
    }

    #[test]
    fn process_that_ignores_sigterm_is_killed() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let process = Process::of_child(&child).unwrap();
        end_all(std::slice::from_ref(&process), Duration::from_millis(50));
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
