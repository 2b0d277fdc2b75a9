//! Reads and writes socket addresses behind pointers of the C library.

use std::net::SocketAddr;

pub(crate) use carina_wrap::addresses::in_family;
use carina_wrap::socket_address::{BYTES_MAX, decoded, encoded};
use libc::{sockaddr, socklen_t};

/// Reads an address; `None` for a family other than IPv4 and IPv6, or one that is too short.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let length = (length as usize).min(BYTES_MAX);
    // SAFETY: as many bytes are readable.
    decoded(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) })
}

/// Writes an address as the kernel does: as many bytes as fit, and the length it has.
///
/// # Safety
/// Either pointer is null, or `length` points to a length and `to` to that many writable bytes.
pub(crate) unsafe fn write(address: SocketAddr, to: *mut sockaddr, length: *mut socklen_t) {
    if to.is_null() || length.is_null() {
        return;
    }
    let bytes = encoded(address);
    // SAFETY: `length` is valid; no more than the room that it gives is written.
    unsafe {
        let room = (*length as usize).min(bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), room);
        *length = bytes.len() as socklen_t;
    }
}
