//! Runs commands and hands over their output while they run, in a guest or on this host.
//!
//! A slow [`Sink`] slows the command down: this module buffers only the pieces in transit. A sink
//! that refuses a piece ends the command.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use carina_api::output::{Collector, PIECE_BYTES, Sink, Stream};
use carina_sys::end_with_parent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Exit status of a command, with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status as in a shell: the command's status, 127 if there is no such command, or 128
    /// plus the number of a signal.
    pub status: i32,
    /// The beginning of the standard output, as many bytes as the collector kept.
    pub stdout: Vec<u8>,
    /// The beginning of the standard error, as many bytes as the collector kept.
    pub stderr: Vec<u8>,
}

impl Output {
    /// The output that a collector has kept of a command, with the command's exit status.
    pub fn of(kept: Collector, status: i32) -> Output {
        let ([stdout, stderr], _) = kept.into_outputs();
        Output {
            status,
            stdout,
            stderr,
        }
    }

    /// Whether the status was 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as text, without white space at both ends.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Standard error as text, without white space at both ends.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// When a command is killed if it has not ended by itself: at a time limit, or when its result is
/// no longer needed.
#[derive(Debug, Clone, Copy)]
pub struct CommandLimits<'a> {
    /// Time after which the command is killed, counted from its start.
    pub limit: Duration,
    /// The caller sets this when it no longer needs the command's result; the command is then
    /// killed.
    pub is_cancelled: &'a AtomicBool,
}

impl CommandLimits<'_> {
    /// Why a command that began at `begin` must be killed now; `None` if it may continue.
    pub(crate) fn finish(&self, begin: Instant) -> Option<Finish> {
        if self.is_cancelled.load(Ordering::Acquire) {
            Some(Finish::Cancelled)
        } else if begin.elapsed() >= self.limit {
            Some(Finish::TimedOut)
        } else {
            None
        }
    }
}

/// How a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The command ended by itself, with this exit status: 128 plus the number of the signal if a
    /// signal ended it.
    Exited(i32),
    /// The command was killed because [`CommandLimits::is_cancelled`] was set, or because the sink
    /// refused output.
    Cancelled,
    /// The command was killed because it reached [`CommandLimits::limit`].
    TimedOut,
}

/// Runs a command on this host with empty standard input, hands its output to `sink`, and waits
/// until the command ends. At the end of `until`, or when the sink refuses output, kills the
/// command and the other processes of its process group.
///
/// When the command ends by itself, processes that it left in the background continue. The call
/// does not wait for them, and what they write later is discarded.
///
/// # Errors
/// The command cannot be started, or the kernel refuses to wait for it.
pub fn run_piped(
    command: &mut Command,
    until: CommandLimits<'_>,
    sink: &mut dyn Sink,
) -> io::Result<Finish> {
    let mut child = end_with_parent(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut files = [
        child
            .stdout
            .take()
            .map(|stdout| File::from(OwnedFd::from(stdout))),
        child
            .stderr
            .take()
            .map(|stderr| File::from(OwnedFd::from(stderr))),
    ];
    let finish = relay(&child, &mut files, until, sink);
    if !matches!(finish, Ok(Finish::Exited(_))) {
        kill_group(&child);
    }
    let status = child.wait()?;
    files.into_iter().flatten().for_each(discard);
    Ok(match finish? {
        Finish::Exited(_) => Finish::Exited(status_of(status)),
        other => other,
    })
}

/// Hands the output of a command to the sink until the command has ended or must be killed. The
/// exit status in the result is not the real one; the caller waits for the process.
fn relay(
    child: &Child,
    files: &mut [Option<File>; 2],
    until: CommandLimits<'_>,
    sink: &mut dyn Sink,
) -> io::Result<Finish> {
    let begin = Instant::now();
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let is_over = || until.finish(begin).is_some();
    let mut buffer = vec![0; PIECE_BYTES];
    // Once the command has ended: how many bytes of each output are still to be read. What a
    // process in the background writes later comes after these bytes.
    let mut left: Option<[usize; 2]> = None;
    loop {
        if let Some(finish) = until.finish(begin) {
            return Ok(finish);
        }
        let (has_ended, ready) = poll_outputs(&process, files)?;
        if has_ended && left.is_none() {
            left = Some(files.each_ref().map(unread));
        }
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let bytes_max = left.map_or(PIECE_BYTES, |left| left[at].min(PIECE_BYTES));
            let Some(file) = files[at].as_mut().filter(|_| ready[at] && bytes_max > 0) else {
                continue;
            };
            let Ok(length @ 1..) = file.read(&mut buffer[..bytes_max]) else {
                files[at] = None;
                if let Some(left) = &mut left {
                    left[at] = 0;
                }
                continue;
            };
            if let Some(left) = &mut left {
                left[at] -= length;
            }
            if sink.take(stream, &buffer[..length], &is_over).is_break() {
                return Ok(until.finish(begin).unwrap_or(Finish::Cancelled));
            }
        }
        if left == Some([0, 0]) {
            return Ok(Finish::Exited(0));
        }
    }
}

/// Number of bytes in a pipe that can be read.
fn unread(file: &Option<File>) -> usize {
    let bytes = file.as_ref().and_then(|file| ioctl_fionread(file).ok());
    usize::try_from(bytes.unwrap_or_default()).unwrap_or(usize::MAX)
}

/// Waits for at most [`LOOK`] until a command has ended or written something. Returns whether it
/// has ended, and which of its outputs can be read.
fn poll_outputs(process: &OwnedFd, files: &[Option<File>; 2]) -> io::Result<(bool, [bool; 2])> {
    let mut polled = vec![PollFd::new(process, PollFlags::IN)];
    for file in files.iter().flatten() {
        polled.push(PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN));
    }
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut seen = polled.iter().map(|polled| !polled.revents().is_empty());
    let has_ended = seen.next().unwrap_or_default();
    let ready = [0, 1].map(|at| files[at].is_some() && seen.next().unwrap_or_default());
    Ok((has_ended, ready))
}

fn kill_group(child: &Child) {
    // The child may have ended just now, but it was not waited for yet, so no other process has its
    // number.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

/// Reads a pipe to its end on a thread, so that processes that still write to it do not fail.
fn discard(mut file: File) {
    let thread = std::thread::Builder::new().name("discards".to_owned());
    // Without a thread the pipe is closed, and what writes there ends.
    let _ = thread.spawn(move || io::copy(&mut file, &mut io::sink()));
}

fn status_of(status: ExitStatus) -> i32 {
    let by_signal = || SIGNALLED + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(by_signal)
}

const SIGNALLED: i32 = 128;
/// Time between two checks whether a command must be killed.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn never(limit: Duration) -> CommandLimits<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        CommandLimits {
            limit,
            is_cancelled: &NEVER,
        }
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn large_output_comes_whole_in_bounded_pieces() {
        let (mut bytes, mut longest, mut errors) = (0_u64, 0, Vec::new());
        let script = "yes | head -c 67108864; echo err >&2; exit 7";
        let mut sink = |stream: Stream, piece: &[u8]| {
            longest = longest.max(piece.len());
            match stream {
                Stream::Stdout => {
                    let expected = |at: usize| b"y\n"[((bytes + at as u64) % 2) as usize];
                    assert!((0..piece.len()).all(|at| piece[at] == expected(at)));
                    bytes += piece.len() as u64;
                }
                Stream::Stderr => errors.extend_from_slice(piece),
            }
            ControlFlow::Continue(())
        };
        let finish = run_piped(&mut shell(script), never(LIMIT), &mut sink).unwrap();
        assert_eq!(finish, Finish::Exited(7));
        assert_eq!((bytes, &errors[..]), (64 << 20, &b"err\n"[..]));
        assert!(longest <= PIECE_BYTES);
    }

    #[test]
    fn collector_keeps_so_much_and_counts_the_rest() {
        let mut sink = Collector::new([1000, 10]);
        let script = "head -c 50000000 /dev/zero; echo err >&2";
        run_piped(&mut shell(script), never(LIMIT), &mut sink).unwrap();
        let ([stdout, stderr], dropped) = sink.into_outputs();
        assert_eq!((stdout.len(), dropped), (1000, 50_000_000 - 1000));
        assert_eq!(stderr, b"err\n");
    }

    #[test]
    fn background_keeps_no_one_waiting_and_runs_on() {
        let mut sink = Collector::new([100, 100]);
        let script = "sleep 1000 & echo $!";
        run_piped(&mut shell(script), never(LIMIT), &mut sink).unwrap();
        let pid = Output::of(sink, 0).text();
        let killed = Command::new("kill").args(["-9", &pid]).status().unwrap();
        assert!(killed.success(), "it runs on in the background");
    }

    #[test]
    fn background_that_writes_without_end_keeps_no_one_waiting() {
        let mut sink = Collector::new([100, 100]);
        let script = "yes 2>/dev/null & echo $! >&2";
        let finish = run_piped(&mut shell(script), never(LIMIT), &mut sink).unwrap();
        assert_eq!(finish, Finish::Exited(0));
        let pid = Output::of(sink, 0).error_text();
        let killed = Command::new("kill").args(["-9", &pid]).status().unwrap();
        assert!(killed.success(), "it runs on in the background");
    }

    #[test]
    fn reader_that_goes_ends_the_command() {
        let mut taken = 0;
        let mut sink = |_: Stream, piece: &[u8]| {
            taken += piece.len();
            ControlFlow::Break(())
        };
        let finish = run_piped(&mut shell("yes"), never(LIMIT), &mut sink).unwrap();
        assert_eq!(finish, Finish::Cancelled);
        assert!(taken <= PIECE_BYTES);
    }

    #[test]
    fn time_ends_a_command_whose_reader_stands_still() {
        struct Still;
        impl Sink for Still {
            fn take(&mut self, _: Stream, _: &[u8], is_over: &dyn Fn() -> bool) -> ControlFlow<()> {
                while !is_over() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                ControlFlow::Break(())
            }
        }
        let until = never(Duration::from_millis(50));
        let finish = run_piped(&mut shell("yes"), until, &mut Still).unwrap();
        assert_eq!(finish, Finish::TimedOut);
        let until = never(Duration::from_millis(50));
        let silent = run_piped(&mut shell("sleep 1000"), until, &mut Still).unwrap();
        assert_eq!(silent, Finish::TimedOut);
    }

    #[test]
    fn signal_that_ends_a_command_is_in_its_status() {
        let mut sink = Collector::new([0, 0]);
        let finish = run_piped(&mut shell("kill -9 $$"), never(LIMIT), &mut sink).unwrap();
        assert_eq!(finish, Finish::Exited(128 + 9));
    }
}
