//! Ctrl-C that makes a command finish and print its result, instead of killing it.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use carina_netdev::StopSignal;
use carina_sys::{Epoll, Interest};

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
