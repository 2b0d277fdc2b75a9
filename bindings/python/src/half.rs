//! One direction of a flow, or a registration: used by one thread at a time, and closed once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error;

/// A value that threads take turns with, until it is closed.
pub(crate) struct Half<T> {
    value: Mutex<Option<T>>,
    /// Whether a thread has closed the value, or waits for the thread that uses it to do so.
    is_closing: AtomicBool,
    what: &'static str,
}

/// Access to a value for the length of one call, or of one slice of a wait.
pub(crate) struct Held<'a, T>(MutexGuard<'a, Option<T>>);

impl<T: Send> Half<T> {
    /// Makes an open value; `what` names it in errors.
    pub(crate) fn new(what: &'static str, value: T) -> Half<T> {
        Half {
            value: Mutex::new(Some(value)),
            is_closing: AtomicBool::new(false),
            what,
        }
    }

    /// Gets access. While another thread has it, runs signal handlers and retries.
    pub(crate) fn hold(&self, py: Python<'_>) -> PyResult<Held<'_, T>> {
        if !self.is_closed() {
            let held = self.locked(py)?;
            if held.is_some() {
                return Ok(Held(held));
            }
        }
        Err(error::not_open(py, self.what))
    }

    /// Gets access if no other thread has it and the value is open.
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        let held = match self.value.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        held.is_some().then_some(Held(held))
    }

    /// Closes the value and returns it; `None` if it was closed before. A thread that waits with it
    /// gives it up at the end of its slice.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.is_closing.store(true, Ordering::Relaxed);
        Ok(self.locked(py)?.take())
    }

    /// Whether the value was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn locked(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<T>>> {
        loop {
            match self.value.try_lock() {
                Ok(held) => return Ok(held),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            py.detach(|| std::thread::sleep(RETRY));
            py.check_signals()?;
        }
    }
}

impl<T> std::ops::Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
            .as_ref()
            .expect("the value was open when it was locked")
    }
}

impl<T> std::ops::DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
            .as_mut()
            .expect("the value was open when it was locked")
    }
}

/// Time between two attempts to get what another thread has.
const RETRY: Duration = Duration::from_micros(500);
