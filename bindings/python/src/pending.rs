//! Registrations and allocations that were requested from the node and not answered yet.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_client::{
    AppName, DifName, Error, ErrorBody, FlowSpec, Node, PendingRegistration, name,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{no_answer, raised};
use crate::flow::Flow;
use crate::half::Half;
use crate::listener::Listener;
use crate::wait::{self, Deadline, SLICE};

/// A flow that was requested. The node gives it back when this object is dropped before it
/// returned the flow.
#[pyclass(frozen, module = "carina._native")]
pub(crate) struct Allocation {
    allocation: Half<carina_client::Allocation>,
}

/// A registration that was requested.
#[pyclass(frozen, module = "carina._native")]
pub(crate) struct PendingListener {
    registration: Half<PendingRegistration>,
}

/// Requests a flow from the node that listens on the socket `socket`.
#[pyfunction]
#[pyo3(signature = (socket, local, remote, dif, spec, ring_bytes))]
pub(crate) fn start_allocate(
    py: Python<'_>,
    socket: PathBuf,
    local: &str,
    remote: &str,
    dif: Option<&str>,
    spec: Spec,
    ring_bytes: Option<u64>,
) -> PyResult<Allocation> {
    let (local, remote, dif) = (app(py, local)?, app(py, remote)?, dif_name(py, dif)?);
    let spec = spec.checked()?;
    let allocation = connected(py, &socket, |node| {
        let node = match ring_bytes {
            Some(bytes) => node.with_ring_bytes(bytes),
            None => node,
        };
        node.start_allocate(&local, &remote, dif.as_ref(), &spec)
    })?;
    Ok(Allocation {
        allocation: Half::new("the allocation", allocation),
    })
}

/// Requests the registration of a name from the node that listens on the socket `socket`.
#[pyfunction]
pub(crate) fn start_register(
    py: Python<'_>,
    socket: PathBuf,
    local: &str,
    dif: Option<&str>,
) -> PyResult<PendingListener> {
    let (local, dif) = (app(py, local)?, dif_name(py, dif)?);
    let registration = connected(py, &socket, |node| {
        node.start_register(&local, dif.as_ref())
    })?;
    Ok(PendingListener {
        registration: Half::new("the registration", registration),
    })
}

#[pymethods]
impl Allocation {
    /// Waits for the answer and returns the flow.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Flow> {
        let asked = "the request for a flow";
        answered(py, timeout, asked, || {
            let mut held = self.allocation.hold(py)?;
            let done = held.try_finish().map_err(|error| raised(py, &error))?;
            if done.is_none() {
                wait::readable(py, held.as_fd(), Instant::now() + SLICE)?;
            }
            Ok(done.map(Flow::new))
        })
    }

    /// Returns the flow if the answer has arrived, otherwise None.
    fn try_finish(&self, py: Python<'_>) -> PyResult<Option<Flow>> {
        let done = self.allocation.hold(py)?.try_finish();
        done.map(|flow| flow.map(Flow::new))
            .map_err(|error| raised(py, &error))
    }

    /// Returns the descriptor that becomes readable when the answer has arrived.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.allocation.hold(py)?.as_fd().as_raw_fd())
    }

    /// Gives up the request.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.allocation.close(py).map(drop)
    }
}

#[pymethods]
impl PendingListener {
    /// Waits for the answer and returns the listener.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Listener> {
        answered(py, timeout, "the registration", || {
            let mut held = self.registration.hold(py)?;
            let done = held.try_finish().map_err(|error| raised(py, &error))?;
            if let (None, Some(fd)) = (&done, held.poll_fd()) {
                wait::readable(py, fd, Instant::now() + SLICE)?;
            }
            Ok(done.map(Listener::new))
        })
    }

    /// Returns the listener if the answer has arrived, otherwise None.
    fn try_finish(&self, py: Python<'_>) -> PyResult<Option<Listener>> {
        let done = self.registration.hold(py)?.try_finish();
        done.map(|registration| registration.map(Listener::new))
            .map_err(|error| raised(py, &error))
    }

    /// Returns the descriptor that becomes readable when the answer has arrived.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let held = self.registration.hold(py)?;
        Ok(held.poll_fd().map_or(-1, |fd| fd.as_raw_fd()))
    }

    /// Gives up the request.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.registration.close(py).map(drop)
    }
}

/// QoS that Python requests: a tuple in the order of these fields.
#[derive(FromPyObject)]
pub(crate) struct Spec(u32, u64, u64, u16, bool, u32);

impl Spec {
    fn checked(self) -> PyResult<FlowSpec> {
        let Spec(max_delay_us, max_sdu_gap, avg_bandwidth_bps, max_loss, in_order, max_jitter_us) =
            self;
        let spec = FlowSpec {
            max_delay_us,
            max_sdu_gap,
            avg_bandwidth_bps,
            max_loss,
            in_order,
            max_jitter_us,
            ..FlowSpec::unreliable()
        };
        spec.check()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(spec)
    }
}

/// Connects to the node and makes a request. A node that accepts no connection is retried, with
/// signal handlers between attempts.
fn connected<T: Send>(
    py: Python<'_>,
    socket: &PathBuf,
    request: impl Fn(Node) -> Result<T, Error> + Send + Sync,
) -> PyResult<T> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        let made = py.detach(|| Node::connect_within(socket, SLICE).and_then(&request));
        match made {
            Ok(made) => return Ok(made),
            Err(Error::NoNode { source, .. })
                if source.kind() == std::io::ErrorKind::TimedOut && Instant::now() < deadline => {}
            Err(error) => return Err(raised(py, &error)),
        }
        py.check_signals()?;
    }
}

/// Repeats `attempt`, which waits for a slice, until the node has answered.
fn answered<T>(
    py: Python<'_>,
    timeout: Option<f64>,
    asked: &str,
    attempt: impl Fn() -> PyResult<Option<T>>,
) -> PyResult<T> {
    let limit = timeout.unwrap_or(ANSWER_LIMIT.as_secs_f64());
    let deadline = Deadline::new(Some(limit))?;
    loop {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        if deadline.has_passed() {
            return Err(no_answer(py, asked, limit));
        }
    }
}

fn app(py: Python<'_>, text: &str) -> PyResult<AppName> {
    name(text).map_err(|error| raised(py, &error))
}

fn dif_name(py: Python<'_>, text: Option<&str>) -> PyResult<Option<DifName>> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| {
        let message = format!("{text:?} is not a name of a DIF: {error}");
        let body = ErrorBody::new(carina_client::ErrorCode::BadRequest, message);
        raised(py, &Error::Refused(body))
    })
}

/// Longest wait for an answer of the node, unless the caller sets a limit. It is longer than any
/// node waits for an application by default.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
