//! Errors of the library as exceptions of `carina.errors`.

use carina_client::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// Makes the exception for an error of the library.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::NoNode { .. } => made(py, "NoNodeError", "no-node", &message, false),
        Error::Refused(body) => {
            let code = body.code.as_str();
            made(py, "RefusedError", code, &body.message, body.is_final)
        }
        Error::NodeGone => made(py, "NodeGoneError", "node-gone", &message, false),
        Error::NoAnswer { .. } => made(py, "NoAnswerError", "no-answer", &message, false),
        Error::Closed => made(py, "FlowClosedError", "closed", &message, false),
        Error::FlowFailed { .. } => made(py, "FlowFailedError", "flow-failed", &message, false),
        Error::SduTooLarge { .. } => made(
            py,
            "MessageTooLargeError",
            "message-too-large",
            &message,
            true,
        ),
        Error::Protocol(_) => made(py, "ProtocolError", "protocol", &message, true),
        _ => made(py, "SystemCallError", "system", &message, false),
    }
}

/// The exception for a time limit of the caller that has passed; `what` is what did not happen.
pub(crate) fn timed_out(py: Python<'_>, what: &str) -> PyErr {
    made(py, "WaitTimeoutError", "timeout", what, false)
}

/// The exception for a call on an object that this process has closed.
pub(crate) fn not_open(py: Python<'_>, what: &str) -> PyErr {
    let message = format!("{what} is closed");
    made(py, "NotOpenError", "not-open", &message, true)
}

/// The exception for a node that has not answered.
pub(crate) fn no_answer(py: Python<'_>, asked: &str, seconds: f64) -> PyErr {
    let message = format!(
        "the node has not answered {asked} within {seconds} s; it is stopped, stuck or very busy"
    );
    made(py, "NoAnswerError", "no-answer", &message, false)
}

fn made(py: Python<'_>, class: &str, code: &str, message: &str, is_final: bool) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let module =
            ERRORS.get_or_try_init(py, || py.import("carina.errors").map(Bound::unbind))?;
        let class = module.bind(py).getattr(class)?;
        Ok(PyErr::from_value(class.call1((message, code, is_final))?))
    };
    make().unwrap_or_else(|error| error)
}

static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
