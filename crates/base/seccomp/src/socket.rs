//! Calls on a socket with an address that a program gave as bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::listener::outcome;

/// Calls `connect(2)` with the bytes of an address, which the kernel checks.
///
/// # Errors
/// As `connect(2)`.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `length` bytes of the slice, and no more.
    outcome(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) })
}

/// Calls `bind(2)` with the bytes of an address, which the kernel checks.
///
/// # Errors
/// As `bind(2)`.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: as of `connect`.
    outcome(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) })
}
