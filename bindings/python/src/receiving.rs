//! Receiving: bytes, buffers and leases, one or many.

use std::sync::Arc;

use carina_client::{Error, FlowReceiver};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::Output;
use crate::error::{raised, timed_out};
use crate::half::Half;
use crate::lease::Lease;
use crate::wait::Deadline;

/// The receiving direction of a flow.
pub(crate) struct Receiving {
    half: Arc<Half<FlowReceiver>>,
    /// Longest message that is received, in bytes.
    pub(crate) bytes_max: usize,
}

impl Receiving {
    pub(crate) fn new(receiver: FlowReceiver, bytes_max: usize) -> Receiving {
        Receiving {
            half: Arc::new(Half::new("the flow", receiver)),
            bytes_max,
        }
    }

    pub(crate) fn half(&self) -> &Half<FlowReceiver> {
        &self.half
    }

    /// Calls `attempt` until it returns something, and waits between attempts.
    pub(crate) fn wait_for<T>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        mut attempt: impl FnMut(&mut FlowReceiver) -> Result<Option<T>, Error>,
    ) -> PyResult<T> {
        loop {
            let mut held = self.half.hold(py)?;
            let receiver: &mut FlowReceiver = &mut held;
            if let Some(found) = attempt(receiver).map_err(|error| raised(py, &error))? {
                return Ok(found);
            }
            let until = deadline.slice();
            let waited = py.detach(|| receiver.wait_until(until));
            // The end of the flow is reported by the next attempt, after the last message.
            let arrived = waited.map_err(|error| raised(py, &error))?;
            drop(held);
            py.check_signals()?;
            if !arrived && deadline.has_passed() {
                return Err(timed_out(py, "no message arrived within the time limit"));
            }
        }
    }

    /// Like [`Self::wait_for`], but never waits: arms the flow's descriptor when nothing has
    /// arrived.
    pub(crate) fn attempt<T>(
        &self,
        py: Python<'_>,
        mut attempt: impl FnMut(&mut FlowReceiver) -> Result<Option<T>, Error>,
    ) -> PyResult<Option<T>> {
        let mut held = self.half.hold(py)?;
        let mut look = || loop {
            if let Some(found) = attempt(&mut held)? {
                return Ok(Some(found));
            }
            if held.arm()? {
                return Ok(None);
            }
        };
        look().map_err(|error: Error| raised(py, &error))
    }

    pub(crate) fn bytes<'py>(
        &self,
        py: Python<'py>,
        receiver: &mut FlowReceiver,
    ) -> Result<Option<PyResult<Bound<'py, PyBytes>>>, Error> {
        receiver.try_recv_with(self.bytes_max, |length, copy| {
            PyBytes::new_with(py, length, |to| {
                copy(to);
                Ok(())
            })
        })
    }

    /// Messages that have arrived, at most `max`; `None` when none has arrived. Ends early behind
    /// [`LIST_BYTES`]: while long messages are copied, others arrive.
    pub(crate) fn list<'py>(
        &self,
        py: Python<'py>,
        receiver: &mut FlowReceiver,
        max: usize,
    ) -> Result<Option<PyResult<Bound<'py, PyList>>>, Error> {
        let Some(first) = self.bytes(py, receiver)? else {
            return Ok(None);
        };
        let fill = || -> PyResult<Bound<'py, PyList>> {
            let list = PyList::empty(py);
            let first = first?;
            let mut bytes = first.as_bytes().len();
            list.append(first)?;
            while list.len() < max && bytes < LIST_BYTES && receiver.has_sdu() {
                // An error does not lose the messages before it: the next call raises it again.
                let Ok(Some(next)) = self.bytes(py, receiver) else {
                    break;
                };
                let next = next?;
                bytes += next.as_bytes().len();
                list.append(next)?;
            }
            Ok(list)
        };
        Ok(Some(fill()))
    }

    pub(crate) fn lease(&self, receiver: &mut FlowReceiver) -> Result<Option<Lease>, Error> {
        let message = receiver.try_lease(self.bytes_max)?;
        Ok(message.map(|message| Lease::new(message, Arc::downgrade(&self.half))))
    }

    /// Waits for a message and writes it to `buffer`.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        buffer: &mut Output,
        deadline: Deadline,
    ) -> PyResult<usize> {
        loop {
            let mut held = self.half.hold(py)?;
            let receiver: &mut FlowReceiver = &mut held;
            let to = buffer.as_mut_slice();
            // A message in several fragments is copied while they arrive, also without a wait:
            // `try_recv` would gather them in memory first.
            let received = if receiver.has_sdu() {
                receiver.try_recv(to)
            } else {
                let left = deadline.slice();
                py.detach(|| {
                    let left = left.saturating_duration_since(std::time::Instant::now());
                    receiver.recv_timeout(to, left)
                })
            };
            if let Some(length) = received.map_err(|error| raised(py, &error))? {
                return Ok(length);
            }
            drop(held);
            py.check_signals()?;
            if deadline.has_passed() {
                return Err(timed_out(py, "no message arrived within the time limit"));
            }
        }
    }
}

/// Bytes of messages behind which a list of messages ends, so that a sender without pause neither
/// fills the memory nor delays the call.
const LIST_BYTES: usize = 1 << 20;
