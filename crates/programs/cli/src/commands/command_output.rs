//! Runs a command in a guest, and copies its output to standard output and standard error of this
//! program while it runs.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_vm::shell::shell_words;
use carina_vm::{CommandLimits, Finish, Guest, Sink, Stream};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_after};
use crate::report::{print_bytes, printed};

/// Writes the output of a command in a guest or a node to standard output and standard error of
/// this program, as it arrives. If the reader of this program's output is slow, the command waits.
/// The field holds the result of the last write.
pub(super) struct OwnOutputs(Outcome);

impl OwnOutputs {
    /// Makes a writer that has not written anything yet.
    pub(super) fn new() -> OwnOutputs {
        OwnOutputs(Ok(()))
    }

    /// The result of the last write: success if the whole output was written.
    ///
    /// # Errors
    /// Standard output or standard error was closed, or cannot be written.
    pub(super) fn outcome(self) -> Outcome {
        self.0
    }
}

impl Sink for OwnOutputs {
    fn take(&mut self, stream: Stream, piece: &[u8], _: &dyn Fn() -> bool) -> ControlFlow<()> {
        self.0 = match stream {
            Stream::Stdout => print_bytes(piece),
            Stream::Stderr => printed(std::io::stderr().write_all(piece)),
        };
        match self.0 {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Runs a command in the guest that `reach` returns, and then ends this process with the command's
/// exit code. SIGINT and SIGTERM end the command in the guest, and then this process.
///
/// # Errors
/// The guest cannot be reached or does not answer, the command runs longer than one hour, or an
/// output of this program is closed; the command in the guest is then ended.
pub(super) fn exec_in_guest(
    shared: &Shared,
    reach: impl FnOnce() -> Result<Guest, Failure>,
    command: &[String],
) -> Outcome {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::new(AtomicBool::new(false));
    let cancels = Arc::clone(&is_cancelled);
    let (begins, ends) = (Arc::clone(&has_begun), Arc::clone(&has_ended));
    let words = "interrupted; the command in the guest is ended";
    // Before `reach`, which starts a thread: a thread that existed already would not block the
    // signals, and they would end this process at once.
    end_with_signal_after(shared.json, words, move || {
        // In this order, and with one order for both threads: either no command begins any more, or
        // this thread waits for its end.
        cancels.store(true, Ordering::SeqCst);
        if !begins.load(Ordering::SeqCst) {
            return true;
        }
        // A guest that does not answer ends the command by itself.
        let begin = Instant::now();
        while !ends.load(Ordering::Acquire) && begin.elapsed() < END {
            std::thread::sleep(LOOK);
        }
        true
    })
    .attempt(TAKING_SIGNALS)?;
    let guest = reach()?;
    has_begun.store(true, Ordering::SeqCst);
    if is_cancelled.load(Ordering::SeqCst) {
        return Err(Failure::Interrupted(words.to_owned()));
    }
    let until = CommandLimits {
        limit: EXEC,
        is_cancelled: &is_cancelled,
    };
    let mut outputs = OwnOutputs::new();
    let finish = guest.stream(&shell_words(command), until, &mut outputs);
    has_ended.store(true, Ordering::Release);
    if is_cancelled.load(Ordering::Acquire) {
        // The process ends with the signal's exit code at this moment.
        std::thread::sleep(END);
        return Err(Failure::Interrupted(words.to_owned()));
    }
    let finish = finish?;
    outputs.outcome()?;
    match finish {
        Finish::Exited(status) => std::process::exit(status),
        Finish::TimedOut => Err(failed(format!(
            "`{}` has not ended within {} s; it is killed",
            command.join(" "),
            EXEC.as_secs()
        ))),
        Finish::Cancelled => Err(Failure::Interrupted(words.to_owned())),
    }
}

/// Time limit for a command in a guest.
const EXEC: Duration = Duration::from_secs(3600);
/// How long this process waits after a signal until the command in the guest has ended.
const END: Duration = Duration::from_secs(6);
const LOOK: Duration = Duration::from_millis(5);
