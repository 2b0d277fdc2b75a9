//! A command that runs in a node that is a namespace, until it ends or no one waits for it.

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

/// How long a command may run.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// At most so long.
    pub limit: Duration,
    /// Not after this is set: no one waits for it.
    pub is_cancelled: &'a AtomicBool,
}

/// What has come of an output so far.
#[derive(Debug, Default)]
struct Said {
    bytes: Vec<u8>,
    has_ended: bool,
}

/// Runs a command. Where it does not end in time, it is killed with all that it has started but for
/// what has made a session of its own. What it leaves in the background keeps no one waiting.
pub fn run(command: &mut Command, what: &str, until: Until<'_>) -> Result<Output> {
    let mut child = end_with_parent(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .attempt(format!("running {what}"))?;
    // Both are read while it runs: it must not wait for room in one of them.
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

/// A command that a signal has ended has the status that a shell gives it.
fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or(SIGNALLED)
}

fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may end at this very moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Reads a stream to its end on a thread, which goes on while something in the background writes.
fn reader(stream: Option<impl Read + Send + 'static>) -> Arc<Mutex<Said>> {
    let said = Arc::new(Mutex::new(Said::default()));
    let shared = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        if let Some(mut stream) = stream {
            // What was read before an error is kept.
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                lock(&shared).bytes.extend_from_slice(&buffer[..length]);
            }
        }
        lock(&shared).has_ended = true;
    });
    said
}

/// What was said by a command that has ended: all that it has written before.
fn all_of(said: &Mutex<Said>) -> Vec<u8> {
    let (mut length, mut since) = (usize::MAX, Instant::now());
    loop {
        let mut now = lock(said);
        if now.bytes.len() != length {
            (length, since) = (now.bytes.len(), Instant::now());
        }
        // Something in the background has the other end, and says nothing.
        if now.has_ended || since.elapsed() > QUIET {
            return std::mem::take(&mut now.bytes);
        }
        drop(now);
        std::thread::sleep(LOOK);
    }
}

fn lock(said: &Mutex<Said>) -> std::sync::MutexGuard<'_, Said> {
    // Every critical section leaves it whole.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

const SIGNALLED: i32 = 128;
const LOOK: Duration = Duration::from_millis(5);
/// How long nothing more comes of a command that has ended until its output counts as whole.
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
