//! A flow as a Python object.

use std::os::fd::AsRawFd;

use carina_client::FlowInfo;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView};

use crate::buffer::{Input, Output};
use crate::error::raised;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::wait::Deadline;

/// A flow to a remote application, over rings in shared memory.
#[pyclass(frozen, module = "carina._native")]
pub(crate) struct Flow {
    sending: Sending,
    receiving: Receiving,
    info: FlowInfo,
}

impl Flow {
    pub(crate) fn new(flow: carina_client::Flow) -> Flow {
        let info = flow.info().clone();
        let (sender, receiver) = flow.split();
        Flow {
            sending: Sending::new(sender),
            receiving: Receiving::new(receiver, MESSAGE_BYTES_MAX),
            info,
        }
    }
}

#[pymethods]
impl Flow {
    /// Sends one message; waits for space.
    #[pyo3(signature = (message, /, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let message = Input::of(message)?;
        self.sending
            .send(py, &[message.as_slice()], Deadline::new(timeout)?)
    }

    /// Sends several messages, in order; waits for space.
    #[pyo3(signature = (messages, /, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let inputs = inputs(messages)?;
        let slices: Vec<&[u8]> = inputs.iter().map(Input::as_slice).collect();
        self.sending.send(py, &slices, Deadline::new(timeout)?)
    }

    /// Accepts a message if there is space; never waits. After False, `space_fileno()` becomes
    /// readable when there is space.
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        let message = Input::of(message)?;
        Ok(self.sending.attempt(py, &[message.as_slice()])? == 1)
    }

    /// Accepts as many messages as there is space for, and returns how many; never waits.
    fn try_send_many(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<usize> {
        let inputs = inputs(messages)?;
        let slices: Vec<&[u8]> = inputs.iter().map(Input::as_slice).collect();
        self.sending.attempt(py, &slices)
    }

    /// Sends the rest of a message that `try_send` accepted; True when nothing is left.
    fn try_flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.sending.flush(py)
    }

    /// Receives one message; waits for it.
    #[pyo3(signature = (timeout=None))]
    fn recv<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        let look = |receiver: &mut _| self.receiving.bytes(py, receiver);
        self.receiving.wait_for(py, Deadline::new(timeout)?, look)?
    }

    /// Receives a message if one has arrived, otherwise returns None; never waits. After None,
    /// `fileno()` becomes readable when a message arrives or the flow ends.
    fn try_recv<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let look = |receiver: &mut _| self.receiving.bytes(py, receiver);
        self.receiving.attempt(py, look)?.transpose()
    }

    /// Waits for one message, and returns it with all others that have arrived, at most `max`.
    #[pyo3(signature = (max=1024, timeout=None))]
    fn recv_many<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let max = at_least_one(max)?;
        let look = |receiver: &mut _| self.receiving.list(py, receiver, max);
        self.receiving.wait_for(py, Deadline::new(timeout)?, look)?
    }

    /// Returns the messages that have arrived, at most `max`; never waits. After an empty list,
    /// `fileno()` becomes readable when a message arrives or the flow ends.
    #[pyo3(signature = (max=1024))]
    fn try_recv_many<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyList>> {
        let max = at_least_one(max)?;
        let look = |receiver: &mut _| self.receiving.list(py, receiver, max);
        let found = self.receiving.attempt(py, look)?;
        found.unwrap_or_else(|| Ok(PyList::empty(py)))
    }

    /// Receives one message into a writable buffer and returns its length; waits for it. A message
    /// that is longer than the buffer raises MessageTooLargeError, and its rest is lost.
    #[pyo3(signature = (buffer, /, timeout=None))]
    fn recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let mut buffer = Output::of(buffer)?;
        self.receiving
            .fill(py, &mut buffer, Deadline::new(timeout)?)
    }

    /// Receives one message without a copy, as a read-only memoryview of the ring; waits for it.
    /// The remote application can change the memory while it is read: decide by a copy,
    /// `bytes(view)`. The space returns to the sender when the view and its slices are released.
    #[pyo3(signature = (timeout=None))]
    fn recv_view<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let look = |receiver: &mut _| self.receiving.lease(receiver);
        let lease = self.receiving.wait_for(py, Deadline::new(timeout)?, look)?;
        PyMemoryView::from(Bound::new(py, lease)?.as_any())
    }

    /// Like `recv_view`, but returns None when no message has arrived; never waits.
    fn try_recv_view<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let look = |receiver: &mut _| self.receiving.lease(receiver);
        let Some(lease) = self.receiving.attempt(py, look)? else {
            return Ok(None);
        };
        PyMemoryView::from(Bound::new(py, lease)?.as_any()).map(Some)
    }

    /// Returns the descriptor that becomes readable after `try_recv` returned None, when a message
    /// arrives or the flow ends. The flow owns it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let held = self.receiving.half().hold(py)?;
        let fd = held.poll_fd().map_err(|error| raised(py, &error))?;
        Ok(fd.as_raw_fd())
    }

    /// Returns the descriptor that becomes readable after `try_send` returned False, when there is
    /// space. `fileno()` reports the end of the flow. The flow owns it.
    fn space_fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let held = self.sending.half.hold(py)?;
        Ok(held.space_fd().as_raw_fd())
    }

    /// Tells the remote application that no more messages follow. Messages can still be received.
    fn close_sending(&self, py: Python<'_>) -> PyResult<()> {
        self.sending.half.close(py).map(drop)
    }

    /// Deallocates the flow: the remote application receives what was sent, then the end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let sender = self.sending.half.close(py)?;
        let receiver = self.receiving.half().close(py)?;
        drop((sender, receiver));
        Ok(())
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.receiving.half().is_closed()
    }

    /// Port-id of the flow on this system.
    #[getter]
    fn port(&self) -> u32 {
        self.info.port.0
    }

    /// Name of the application at this end.
    #[getter]
    fn local(&self) -> &str {
        self.info.local.as_str()
    }

    /// Name of the application at the other end.
    #[getter]
    fn remote(&self) -> &str {
        self.info.remote.as_str()
    }

    /// Name of the DIF that carries the flow.
    #[getter]
    fn dif(&self) -> &str {
        self.info.dif.as_str()
    }

    /// Longest message that the flow carries, in bytes; None when only memory limits it.
    #[getter]
    fn message_max(&self) -> Option<u64> {
        (self.info.sdu_max != u64::MAX).then_some(self.info.sdu_max)
    }

    /// Longest message in bytes that crosses the ring in one piece, about a quarter of the ring.
    /// Longer ones travel in pieces, and are copied even by `recv_view`.
    #[getter]
    fn piece_max(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.sending.half.hold(py)?.piece_max())
    }

    /// Whether the flow delivers every message, in order.
    #[getter]
    fn reliable(&self) -> bool {
        self.info.spec.max_loss == 0 && self.info.spec.in_order
    }

    /// Counters of this end: messages and bytes sent and received, doorbells, sleeps.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sent = self.sending.half.hold(py)?.stats();
        let received = self.receiving.half().hold(py)?.stats();
        let stats = PyDict::new(py);
        stats.set_item("messages_sent", sent.sdus_sent)?;
        stats.set_item("bytes_sent", sent.bytes_sent)?;
        stats.set_item("messages_received", received.sdus_received)?;
        stats.set_item("bytes_received", received.bytes_received)?;
        stats.set_item("messages_too_large", received.sdus_too_large)?;
        stats.set_item(
            "doorbells_rung",
            sent.doorbells_rung + received.doorbells_rung,
        )?;
        stats.set_item("sleeps", sent.sleeps + received.sleeps)?;
        Ok(stats)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// The next message; the iteration ends when the remote application has closed the flow.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match self.recv(py, None) {
            Ok(message) => Ok(Some(message)),
            Err(error) if is_close(py, &error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn __repr__(&self) -> String {
        let FlowInfo {
            port,
            local,
            remote,
            dif,
            ..
        } = &self.info;
        let (local, remote, dif) = (local.as_str(), remote.as_str(), dif.as_str());
        let state = if self.closed() { "closed" } else { "open" };
        format!(
            "<carina.Flow {local} -> {remote} in {dif}, port {}, {state}>",
            port.0
        )
    }
}

/// Whether the exception means that the remote application closed the flow.
fn is_close(py: Python<'_>, error: &PyErr) -> bool {
    let code = error.value(py).getattr("code");
    code.is_ok_and(|code| code.eq("closed").unwrap_or(false))
}

fn inputs<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Vec<Input<'py>>> {
    messages
        .try_iter()?
        .map(|message| Input::of(&message?))
        .collect()
}

fn at_least_one(max: usize) -> PyResult<usize> {
    if max == 0 {
        return Err(PyValueError::new_err(
            "max is 0; it must be 1 or more messages",
        ));
    }
    Ok(max)
}

/// Longest message that a flow receives, in bytes: a remote application that sends pieces without
/// end cannot fill the memory.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
