//! A registered name as a Python object.

use std::os::fd::{AsFd, AsRawFd};

use carina_client::{Error, Registration, RegistrationEvent};
use pyo3::prelude::*;

use crate::error::{raised, timed_out};
use crate::flow::Flow;
use crate::half::Half;
use crate::wait::{self, Deadline};

/// A name under which this process is registered; remote applications allocate flows to it.
#[pyclass(frozen, module = "carina._native")]
pub(crate) struct Listener {
    registration: Half<Registration>,
    name: String,
    difs: Vec<String>,
}

impl Listener {
    pub(crate) fn new(registration: Registration) -> Listener {
        Listener {
            name: registration.name().as_str().to_owned(),
            difs: registration
                .difs()
                .iter()
                .map(|dif| dif.as_str().to_owned())
                .collect(),
            registration: Half::new("the listener", registration),
        }
    }
}

#[pymethods]
impl Listener {
    /// Waits for a flow that a remote application allocates, and accepts it.
    #[pyo3(signature = (timeout=None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Flow> {
        let deadline = Deadline::new(timeout)?;
        loop {
            let mut held = self.registration.hold(py)?;
            let next = next_flow(&mut held).map_err(|error| raised(py, &error))?;
            if let Some(flow) = next {
                return Ok(flow);
            }
            wait::readable(py, held.as_fd(), deadline.slice())?;
            drop(held);
            if deadline.has_passed() {
                return Err(timed_out(py, "no flow was allocated within the time limit"));
            }
        }
    }

    /// Returns a flow if one was allocated, otherwise None; never waits. After None, `fileno()`
    /// becomes readable when there may be one.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<Flow>> {
        let mut held = self.registration.hold(py)?;
        next_flow(&mut held).map_err(|error| raised(py, &error))
    }

    /// Returns the descriptor that becomes readable when a flow was requested. The listener owns
    /// it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.registration.hold(py)?.as_fd().as_raw_fd())
    }

    /// The registered name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The DIFs in which the name was registered at first.
    #[getter]
    fn difs(&self) -> Vec<String> {
        self.difs.clone()
    }

    /// Withdraws the name. Flows that were accepted stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.registration.close(py).map(drop)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.registration.is_closed()
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

    /// The next flow, as `accept` returns it.
    fn __next__(&self, py: Python<'_>) -> PyResult<Flow> {
        self.accept(py, None)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { "closed" } else { "open" };
        format!(
            "<carina.Listener {} in {:?}, {state}>",
            self.name, self.difs
        )
    }
}

/// Accepts the requests that have arrived, and returns a flow that came of one.
fn next_flow(registration: &mut Registration) -> Result<Option<Flow>, Error> {
    while let Some(event) = registration.try_next_event()? {
        match event {
            RegistrationEvent::Request(request) => registration.start_accept(&request)?,
            RegistrationEvent::AcceptedFlow { flow, .. } => return Ok(Some(Flow::new(*flow))),
            // The caller gave up before this process accepted.
            _ => {}
        }
    }
    Ok(None)
}
