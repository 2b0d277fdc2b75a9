//! Ctrl-C: it makes a command finish and print its result, instead of killing it, or ends a bench
//! with everything that the bench has started.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use carina_netdev::StopSignal;
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

/// Has SIGINT and SIGTERM end this process at once, whatever it waits for: with everything that it
/// has started, which ends with it, and with the directories of nodes that it runs.
///
/// # Errors
/// The kernel's refusal.
pub fn end_with_signal(json: bool) -> io::Result<()> {
    end_with_signal_saying(json, "interrupted; what it had started has ended")
}

/// As [`end_with_signal`], with words of its own for what is left.
///
/// # Errors
/// As there.
pub fn end_with_signal_saying(json: bool, words: &'static str) -> io::Result<()> {
    let signal = Interrupt::take()?;
    let wait = move || {
        while let Ok(false) = signal.comes_within(LOOK_AGAIN) {}
        carina_lab::remove_scratch();
        let failure = Failure::Interrupted(words.to_owned());
        report(&failure, json);
        std::process::exit(failure.code().into());
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map(drop)
}

/// A wait for a signal has no end of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
