//! Runs commands in nodes: returns the exit status or an error, and hands over or keeps the output.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carina_vm::{Collector, CommandLimits, Finish, Output, Sink, run_piped};

use crate::error::{Attempt, Error, Result};

/// Runs a command, hands its output to `sink` while the command runs, and returns the exit status.
pub(super) fn stream(
    command: &mut Command,
    what: &str,
    until: CommandLimits<'_>,
    sink: &mut dyn Sink,
) -> Result<i32> {
    let finish = run_piped(command, until, sink).attempt(format!("running {what}"))?;
    status_of(finish, what, until.limit)
}

/// Runs a command without a way to cancel it, and returns its exit status and output.
pub(super) fn run(command: &mut Command, what: &str, limit: Duration) -> Result<Output> {
    let mut kept = Collector::new([OUTPUT_MAX; 2]);
    let until = CommandLimits {
        limit,
        is_cancelled: &AtomicBool::new(false),
    };
    let status = stream(command, what, until, &mut kept)?;
    Ok(Output::of(kept, status))
}

/// The exit status of a command that ended by itself.
///
/// # Errors
/// The command was killed before it ended.
pub(super) fn status_of(finish: Finish, what: &str, limit: Duration) -> Result<i32> {
    match finish {
        Finish::Exited(status) => Ok(status),
        Finish::Cancelled => Err(Error::Ended("the connection that waited for the command")),
        Finish::TimedOut => Err(Error::Timeout {
            what: format!("{what} did not end"),
            limit,
        }),
    }
}

/// Largest number of bytes that are kept of each output of a command; commands of the agent itself
/// need less.
const OUTPUT_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn cancelled_command_ends_with_what_it_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let script = format!(
            "sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait",
            path.display()
        );
        let is_cancelled = AtomicBool::new(false);
        let until = CommandLimits {
            limit: LIMIT,
            is_cancelled: &is_cancelled,
        };
        let mut kept = Collector::new([0, 0]);
        let wait = Duration::from_millis(5);
        let pid = std::thread::scope(|scope| {
            let runs = scope.spawn(|| stream(&mut shell(&script), "a script", until, &mut kept));
            while !path.exists() {
                std::thread::sleep(wait);
            }
            let pid = std::fs::read_to_string(&path).unwrap();
            is_cancelled.store(true, std::sync::atomic::Ordering::Release);
            assert!(matches!(runs.join().unwrap(), Err(Error::Ended(_))));
            pid.trim().parse().unwrap()
        });
        let deadline = std::time::Instant::now() + LIMIT;
        while carina_namespaces::Process::numbered(pid).is_some() {
            assert!(std::time::Instant::now() < deadline, "{pid} runs on");
            std::thread::sleep(wait);
        }
    }

    #[test]
    fn command_that_runs_on_is_killed_at_its_deadline() {
        let limit = Duration::from_millis(30);
        let error = run(&mut shell("sleep 1000"), "`sleep 1000`", limit).unwrap_err();
        let words = error.to_string();
        assert!(
            words.starts_with("`sleep 1000` did not end within"),
            "{words}"
        );
    }
}
