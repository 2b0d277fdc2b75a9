//! Bytes of Python objects, without a copy.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes that a caller passes: `bytes`, or any contiguous buffer of bytes.
pub(crate) enum Input<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyBuffer<u8>),
}

impl<'py> Input<'py> {
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Input<'py>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Input::Bytes(bytes.clone()));
        }
        let buffer = PyBuffer::<u8>::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the buffer is not contiguous; pass bytes(x)",
            ));
        }
        Ok(Input::Buffer(buffer))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Input::Bytes(bytes) => bytes.as_bytes(),
            Input::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            Input::Buffer(buffer) => {
                let from = buffer.buf_ptr().cast::<u8>();
                // SAFETY: the exporter keeps `len_bytes` contiguous bytes at this address while
                // `buffer` lives. As with `socket.send`, a thread that writes to a buffer while it
                // is being sent determines what is sent; the bytes are only copied.
                unsafe { std::slice::from_raw_parts(from, buffer.len_bytes()) }
            }
        }
    }
}

/// A writable contiguous buffer that a caller passes.
pub(crate) struct Output(PyBuffer<u8>);

impl Output {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Output> {
        let buffer = PyBuffer::<u8>::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the buffer is read-only or not contiguous; pass a bytearray or a view of one",
            ));
        }
        Ok(Output(buffer))
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        let to = self.0.buf_ptr().cast::<u8>();
        // SAFETY: the exporter keeps `len_bytes` contiguous writable bytes at this address while
        // the buffer lives. As with `socket.recv_into`, no other thread may use the buffer during
        // the call.
        unsafe { std::slice::from_raw_parts_mut(to, self.0.len_bytes()) }
    }
}
