//! A received message in place in the ring, as an object with Python's buffer protocol.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Weak;

use carina_client::{FlowReceiver, Leased, SduLease};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::half::Half;

/// A received message. `memoryview(lease)` reads it without a copy; the view keeps it alive.
///
/// The message is in memory that the remote application shares: a hostile peer may change it while
/// it is read. When the last reference to the lease ends, its space returns to the sender.
#[pyclass(frozen, module = "carina._native")]
pub(crate) struct Lease {
    /// `None` only while the lease is dropped.
    message: Option<Leased>,
    receiver: Weak<Half<FlowReceiver>>,
}

impl Lease {
    pub(crate) fn new(message: Leased, receiver: Weak<Half<FlowReceiver>>) -> Lease {
        Lease {
            message: Some(message),
            receiver,
        }
    }

    fn bytes(&self) -> (*const u8, usize) {
        match &self.message {
            Some(Leased::InPlace(sdu)) => (sdu.as_ptr(), sdu.len()),
            Some(Leased::Copied(copy)) => (copy.as_ptr(), copy.len()),
            None => (ptr::null(), 0),
        }
    }
}

#[pymethods]
impl Lease {
    fn __len__(&self) -> usize {
        self.bytes().1
    }

    /// Whether the message is in memory that the remote application can still change. It is false
    /// for a message that came in several fragments, which was copied.
    #[getter]
    fn is_shared(&self) -> bool {
        matches!(&self.message, Some(Leased::InPlace(_)))
    }

    /// Fills in a view of the message.
    ///
    /// # Safety
    ///
    /// Python passes a `Py_buffer` to fill in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, length) = slf.get().bytes();
        let length = ffi::Py_ssize_t::try_from(length)
            .map_err(|_| PyBufferError::new_err("the message is longer than Python can view"))?;
        // SAFETY: `view` is Python's to fill in. The bytes stay mapped while this object lives, and
        // the view holds a reference to it. The view is read-only, and Rust makes no reference.
        let filled = unsafe {
            let start = start.cast_mut().cast::<c_void>();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags)
        };
        if filled == -1 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let in_place: Option<SduLease> = match self.message.take() {
            Some(Leased::InPlace(sdu)) => Some(sdu),
            _ => None,
        };
        let Some(sdu) = in_place else { return };
        drop(sdu);
        // When another thread waits for a message, it releases the space at its next slice.
        if let Some(receiver) = self.receiver.upgrade()
            && let Some(mut receiver) = receiver.try_hold()
        {
            receiver.release_leases();
        }
    }
}
