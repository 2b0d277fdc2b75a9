//! SIGINT (Ctrl-C) and SIGTERM: a command finishes and prints its result, or ends in order with
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

/// SIGINT and SIGTERM. While this value lives they do not end the process; its owner polls them.
pub struct Interrupt {
    epoll: Epoll,
    _signal: StopSignal,
}

impl Interrupt {
    /// Takes the signals, for this thread and those that it makes.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn take() -> io::Result<Interrupt> {
        let signal = StopSignal::new()?;
        let epoll = Epoll::new()?;
        epoll.add(signal.as_fd(), 0, Interest::Read)?;
        Ok(Interrupt {
            epoll,
            _signal: signal,
        })
    }

    /// Waits for so long, or until a signal is there; says whether one is.
    ///
    /// # Errors
    /// The kernel's refusal to wait.
    pub fn comes_within(&self, time: Duration) -> io::Result<bool> {
        let mut ready = Vec::new();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.epoll.wait(&mut ready, Some(time))?;
        Ok(!ready.is_empty())
    }

    /// Whether a signal is there.
    ///
    /// # Errors
    /// As of [`Interrupt::comes_within`].
    pub fn is_there(&self) -> io::Result<bool> {
        self.comes_within(Duration::ZERO)
    }
}

/// What [`end_with_signal`] attempts, for its errors.
pub const TAKING_SIGNALS: &str = "waiting for signals";

/// Lets SIGINT and SIGTERM end this process at once, whatever it waits for. What it has started
/// ends with it, and its scratch directories are removed. Exit code 130.
///
/// # Errors
/// The kernel's refusal.
pub fn end_with_signal(json: bool) -> io::Result<()> {
    end_with_signal_saying(json, "interrupted; what it had started has ended")
}

/// Like [`end_with_signal`], with another message.
///
/// # Errors
/// The kernel's refusal.
pub fn end_with_signal_saying(json: bool, words: &'static str) -> io::Result<()> {
    end_with_signal_after(json, words, || true)
}

/// Like [`end_with_signal_saying`], after `finish` has given back what would outlive this process.
/// When `finish` returns false, the signal is left to others.
///
/// # Errors
/// The kernel's refusal.
pub fn end_with_signal_after(
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

/// Lets SIGINT and SIGTERM end a server that runs until then, with exit code 0. For servers that
/// own nothing but flows and names: the node takes these back when the process ends.
///
/// # Errors
/// The kernel's refusal.
pub fn end_server_with_signal() -> io::Result<()> {
    on_signal(|| Some(0))
}

/// A flag that SIGINT and SIGTERM set, for work that removes what it has made before it ends.
///
/// # Errors
/// The kernel's refusal.
pub fn flag_of_signal() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let is_set = flag.clone();
    on_signal(move || {
        is_set.store(true, Ordering::Release);
        None
    })?;
    Ok(flag)
}

/// Ends this process with the exit code that `finish` returns, if any, when SIGINT or SIGTERM
/// arrives.
fn on_signal(finish: impl FnOnce() -> Option<u8> + Send + 'static) -> io::Result<()> {
    let signal = Interrupt::take()?;
    let wait = move || {
        while let Ok(false) = signal.comes_within(LOOK_AGAIN) {}
        if let Some(code) = finish() {
            carina_lab::remove_scratch();
            std::process::exit(code.into());
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map(drop)
}

/// A wait for a signal has no end of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
