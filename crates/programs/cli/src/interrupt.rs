//! Handling of SIGINT (Ctrl-C) and SIGTERM: a command finishes and prints its result, or ends
//! everything that it has started.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carina_sys::StopSignal;
use carina_sys::{Epoll, Interest};

use crate::failure::Failure;
use crate::report::report;

/// Blocks SIGINT and SIGTERM, so that they do not end the process, and detects them. The owner
/// checks with [`Interrupt::is_pending`] or [`Interrupt::comes_within`]. The signals stay blocked
/// after this value is dropped.
pub(crate) struct Interrupt {
    epoll: Epoll,
    _signal: StopSignal,
}

impl Interrupt {
    /// Blocks the signals in this thread and in all threads that it starts later.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn take() -> io::Result<Interrupt> {
        let signal = StopSignal::new()?;
        let epoll = Epoll::new()?;
        epoll.add(signal.as_fd(), 0, Interest::Read)?;
        Ok(Interrupt {
            epoll,
            _signal: signal,
        })
    }

    /// Waits for a signal, at most for `time`. Returns whether one has arrived.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(crate) fn comes_within(&self, time: Duration) -> io::Result<bool> {
        let mut ready = Vec::new();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.epoll.wait(&mut ready, Some(time))?;
        Ok(!ready.is_empty())
    }

    /// Whether a signal has arrived.
    ///
    /// # Errors
    /// Those of [`Interrupt::comes_within`].
    pub(crate) fn is_pending(&self) -> io::Result<bool> {
        self.comes_within(Duration::ZERO)
    }
}

/// What errors of [`end_with_signal`] say was attempted.
pub(crate) const TAKING_SIGNALS: &str = "waiting for signals";

/// From now on SIGINT and SIGTERM end this process at once, whatever it waits for, with exit code
/// 130. Processes that it started end with it, and its scratch directories are removed.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn end_with_signal(json: bool) -> io::Result<()> {
    end_with_signal_saying(
        json,
        "interrupted; the processes that the command had started have \
        ended",
    )
}

/// Like [`end_with_signal`], but reports `words` when a signal arrives: on standard error, and with
/// `json` also as a JSON object on standard output.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn end_with_signal_saying(json: bool, words: &'static str) -> io::Result<()> {
    end_with_signal_after(json, words, || true)
}

/// Like [`end_with_signal_saying`], but when a signal arrives, `finish` runs first. It removes what
/// would outlive this process. If `finish` returns false, nothing is printed and the process
/// continues.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn end_with_signal_after(
    json: bool,
    words: &'static str,
    finish: impl FnOnce() -> bool + Send + 'static,
) -> io::Result<()> {
    on_signal(move || {
        finish().then(|| {
            let failure = Failure::Interrupted(words.to_owned());
            report(&failure, json);
            failure.code()
        })
    })
}

/// From now on SIGINT and SIGTERM end this server with exit code 0. For servers that own only flows
/// and names: the node releases both when the process ends.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn end_server_with_signal() -> io::Result<()> {
    on_signal(|| Some(0))
}

/// Returns a flag that SIGINT and SIGTERM set, for work that has to remove what it made before it
/// ends.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn flag_of_signal() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let is_set = flag.clone();
    on_signal(move || {
        is_set.store(true, Ordering::Release);
        None
    })?;
    Ok(flag)
}

/// Starts a thread that waits for SIGINT or SIGTERM, and then ends this process with the exit code
/// that `finish` returns, if any.
fn on_signal(finish: impl FnOnce() -> Option<u8> + Send + 'static) -> io::Result<()> {
    let signal = Interrupt::take()?;
    let wait = move || {
        while let Ok(false) = signal.comes_within(LOOK_AGAIN) {}
        if let Some(code) = finish() {
            carina_scratch::remove_all();
            std::process::exit(code.into());
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map(drop)
}

/// Longest single wait for a signal; the thread then waits again.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
