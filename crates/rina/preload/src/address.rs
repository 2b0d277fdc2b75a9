//! Socket addresses of the C library.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// Reads an address; `None` for a family other than IPv4 and IPv6, or one that is too short.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the first two bytes are readable, as just checked.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    match i32::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as many bytes are readable, and every pattern of bits is a value.
            let four = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(four.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let six = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(six.sin6_port), 0, 0).into())
        }
        _ => None,
    }
}

/// Writes an address as the kernel does: as many bytes as fit, and the length it has.
///
/// # Safety
/// Either pointer is null, or `length` points to a length and `to` to that many writable bytes.
pub(crate) unsafe fn write(address: SocketAddr, to: *mut sockaddr, length: *mut socklen_t) {
    if to.is_null() || length.is_null() {
        return;
    }
    // SAFETY: all fields of both are integers and arrays of integers, for which zero is a value.
    let (mut four, mut six): (sockaddr_in, sockaddr_in6) = unsafe { std::mem::zeroed() };
    let (from, bytes) = match address {
        SocketAddr::V4(address) => {
            four.sin_family = libc::AF_INET as libc::sa_family_t;
            four.sin_port = address.port().to_be();
            four.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            ((&raw const four).cast::<u8>(), size_of::<sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            six.sin6_port = address.port().to_be();
            six.sin6_addr.s6_addr = address.ip().octets();
            ((&raw const six).cast::<u8>(), size_of::<sockaddr_in6>())
        }
    };
    // SAFETY: `length` is valid; no more than the room that it gives is written, and no more is
    // read than the local has.
    unsafe {
        let room = (*length as usize).min(bytes);
        ptr::copy_nonoverlapping(from, to.cast::<u8>(), room);
        *length = bytes as socklen_t;
    }
}
