//! Runs a command in a node that is a namespace. The command is killed when its time is over, or
//! when the caller no longer waits for it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_sys::end_with_parent;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Attempt, Error, Result};
use crate::node::Output;

/// The conditions under which a running command is killed.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// Longest time that the command may run.
    pub limit: Duration,
    /// Set by another thread when the caller no longer waits for the command, which is then killed.
    pub is_cancelled: &'a AtomicBool,
}

/// The part of an output stream that has been read so far.
#[derive(Debug, Default)]
struct Said {
    bytes: Vec<u8>,
    has_ended: bool,
}

/// Runs a command and returns its output. If the command does not end in time, or the caller no
/// longer waits for it, its process group is killed and an error is returned. Processes that it
/// leaves in the background do not delay the result.
pub fn run(command: &mut Command, what: &str, until: Until<'_>) -> Result<Output> {
    let mut child = end_with_parent(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .attempt(format!("running {what}"))?;
    // Both outputs are read while the command runs; otherwise the command could block on a full
    // pipe.
    let said = [reader(child.stdout.take()), reader(child.stderr.take())];
    let deadline = Instant::now() + until.limit;
    let status = loop {
        let is_over = until.is_cancelled.load(Ordering::Acquire) || Instant::now() >= deadline;
        match child.try_wait().attempt(format!("running {what}"))? {
            Some(status) => break Some(status),
            None if is_over => break None,
            None => std::thread::sleep(LOOK),
        }
    };
    let Some(status) = status else {
        end(&mut child);
        return Err(if until.is_cancelled.load(Ordering::Acquire) {
            Error::Ended("the connection that waited for the command")
        } else {
            Error::Timeout {
                what: format!("{what} has not ended"),
                limit: until.limit,
            }
        });
    };
    let [stdout, stderr] = said.map(|said| all_of(&said));
    Ok(Output {
        status: status_of(status),
        stdout,
        stderr,
    })
}

/// The exit status of a process; [`SIGNALLED`] if a signal killed it.
fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or(SIGNALLED)
}

fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // The kill fails if the process group ends at the same moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Starts a thread that reads a stream to its end. The thread continues after the command has ended
/// if a background process keeps the stream open.
fn reader(stream: Option<impl Read + Send + 'static>) -> Arc<Mutex<Said>> {
    let said = Arc::new(Mutex::new(Said::default()));
    let shared = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        if let Some(mut stream) = stream {
            // Bytes that were read before an error are kept.
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                lock(&shared).bytes.extend_from_slice(&buffer[..length]);
            }
        }
        lock(&shared).has_ended = true;
    });
    said
}

/// The output of a command that has ended. Waits until the reader has all bytes that the command
/// wrote.
fn all_of(said: &Mutex<Said>) -> Vec<u8> {
    let (mut length, mut since) = (usize::MAX, Instant::now());
    loop {
        let mut now = lock(said);
        if now.bytes.len() != length {
            (length, since) = (now.bytes.len(), Instant::now());
        }
        // A background process may keep the stream open without writing to it.
        if now.has_ended || since.elapsed() > QUIET {
            return std::mem::take(&mut now.bytes);
        }
        drop(now);
        std::thread::sleep(LOOK);
    }
}

fn lock(said: &Mutex<Said>) -> std::sync::MutexGuard<'_, Said> {
    // Each critical section leaves the value consistent, so a poisoned lock is usable.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

const SIGNALLED: i32 = 128;
const LOOK: Duration = Duration::from_millis(5);
/// After a command has ended, its output counts as complete when no byte was read for this long.
const QUIET: Duration = Duration::from_millis(300);

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
    fn output_comes_whole_and_background_keeps_no_one_waiting() {
        let until = Until {
            limit: LIMIT,
            is_cancelled: &AtomicBool::new(false),
        };
        let script = "sleep 1000 & echo $!; head -c 3000000 /dev/zero; exit 7";
        let output = run(&mut shell(script), "a script", until).unwrap();
        assert_eq!(output.status, 7);
        let end = output
            .stdout
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap();
        assert_eq!(output.stdout.len(), end + 1 + 3_000_000);
        let pid = String::from_utf8_lossy(&output.stdout[..end]).into_owned();
        let killed = Command::new("kill").args(["-9", &pid]).status().unwrap();
        assert!(killed.success(), "it runs on in the background");
    }

    #[test]
    fn cancelled_command_ends_with_what_it_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let script = format!(
            "sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait",
            path.display()
        );
        let is_cancelled = AtomicBool::new(false);
        let until = Until {
            limit: LIMIT,
            is_cancelled: &is_cancelled,
        };
        let pid = std::thread::scope(|scope| {
            let runs = scope.spawn(|| run(&mut shell(&script), "a script", until));
            while !path.exists() {
                std::thread::sleep(LOOK);
            }
            let pid = std::fs::read_to_string(&path).unwrap();
            is_cancelled.store(true, Ordering::Release);
            assert!(matches!(runs.join().unwrap(), Err(Error::Ended(_))));
            pid.trim().parse().unwrap()
        });
        let deadline = Instant::now() + LIMIT;
        while carina_namespaces::Process::numbered(pid).is_some() {
            assert!(Instant::now() < deadline, "{pid} runs on");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn command_that_runs_on_is_killed_at_its_deadline() {
        let until = Until {
            limit: Duration::from_millis(30),
            is_cancelled: &AtomicBool::new(false),
        };
        let error = run(&mut shell("sleep 1000"), "`sleep 1000`", until).unwrap_err();
        let words = error.to_string();
        assert!(
            words.starts_with("`sleep 1000` has not ended within"),
            "{words}"
        );
    }
}
