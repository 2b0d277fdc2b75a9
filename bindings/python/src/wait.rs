//! Waits that Ctrl-C ends: slices of time, with Python's signal handlers between them.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest time that a call waits before it runs signal handlers and looks whether its object was
/// closed.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// When a call stops to wait.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Makes a deadline of Python's `timeout` in seconds; `None` waits without limit.
    pub(crate) fn new(timeout: Option<f64>) -> PyResult<Deadline> {
        let Some(seconds) = timeout else {
            return Ok(Deadline(None));
        };
        let limit = Duration::try_from_secs_f64(seconds).map_err(|_| {
            let text = format!("timeout is {seconds}; it must be 0 or more seconds, or None");
            PyValueError::new_err(text)
        })?;
        Ok(Deadline(Instant::now().checked_add(limit)))
    }

    /// End of the next slice.
    pub(crate) fn slice(self) -> Instant {
        let slice = Instant::now() + SLICE;
        self.0.map_or(slice, |until| until.min(slice))
    }

    /// Whether the time has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|until| Instant::now() >= until)
    }
}

/// Waits for one slice at most until the descriptor is readable, with the interpreter's lock
/// released, and runs signal handlers.
pub(crate) fn readable(py: Python<'_>, fd: BorrowedFd<'_>, until: Instant) -> PyResult<()> {
    py.detach(|| {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&limit),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error)),
        }
    })?;
    py.check_signals()
}
