//! The service `carina` of the C library's name service switch (nsswitch.conf(5)): names of hosts
//! below `dif.internal` that stand for registered applications.
//!
//! ```text
//!  getaddrinfo --> nsswitch.conf: hosts: files carina dns --> libnss_carina.so.2 --> node
//!                                                                    +-------> table of names
//! ```
//!
//! The C library loads this file into any program. It has no threads, keeps no descriptor open, and
//! asks the node anew for each name. A name of another domain costs one comparison.

mod answer;
mod lookup;

use std::ffi::CStr;
use std::net::IpAddr;
use std::panic::catch_unwind;

use libc::{c_char, c_int, c_void, hostent, size_t, socklen_t};

use crate::answer::{AddressTuple, Arena, Host, Status};
use crate::lookup::{Found, Lookup};

/// The two places where glibc expects the error codes of a function.
#[derive(Clone, Copy)]
struct Errors {
    errno: *mut c_int,
    h_errno: *mut c_int,
}

impl Errors {
    /// Reports an outcome.
    ///
    /// # Safety
    /// Both pointers may be written.
    unsafe fn report(self, status: Status) -> c_int {
        let (errno, h_errno) = match status {
            Status::Success => (0, 0),
            Status::NotFound => (libc::ENOENT, HOST_NOT_FOUND),
            Status::NoData => (libc::ENOENT, NO_DATA),
            Status::NoRoom => (libc::ERANGE, NETDB_INTERNAL),
            Status::Unavailable => (libc::EAGAIN, TRY_AGAIN),
        };
        if status != Status::Success {
            // SAFETY: the caller's promise.
            unsafe {
                *self.errno = errno;
                *self.h_errno = h_errno;
            }
        }
        status.code()
    }
}

/// Looks a name up.
///
/// # Safety
/// `name` is a string.
unsafe fn find(name: *const c_char) -> Found {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let Ok(name) = name.to_str() else {
        return Found::Nothing;
    };
    // A panic must not leave this library.
    catch_unwind(|| Lookup::of_process().addresses(name)).unwrap_or(Found::Unavailable)
}

/// `getaddrinfo(3)`: the addresses of both families.
///
/// # Safety
/// As the C library calls it: `name` is a string, `buffer` has `room` bytes, and the others may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyname4_r(
    name: *const c_char,
    found: *mut *mut AddressTuple,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
    ttl: *mut i32,
) -> c_int {
    let errors = Errors { errno, h_errno };
    // SAFETY: the caller's promises.
    unsafe {
        let addresses = match find(name) {
            Found::Addresses(addresses) => addresses,
            Found::Nothing => return errors.report(Status::NotFound),
            Found::Unavailable => return errors.report(Status::Unavailable),
        };
        let mut arena = Arena::new(buffer, room);
        let Some(first) = arena.tuples(CStr::from_ptr(name), &addresses, *found) else {
            return errors.report(Status::NoRoom);
        };
        *found = first;
        if !ttl.is_null() {
            *ttl = TTL_S;
        }
        errors.report(Status::Success)
    }
}

/// `gethostbyname2(3)`, with the canonical name.
///
/// # Safety
/// As [`_nss_carina_gethostbyname4_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyname3_r(
    name: *const c_char,
    family: c_int,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
    ttl: *mut i32,
    canonical: *mut *mut c_char,
) -> c_int {
    let errors = Errors { errno, h_errno };
    // SAFETY: the caller's promises.
    unsafe {
        let addresses = match find(name) {
            Found::Addresses(addresses) => addresses,
            Found::Nothing => return errors.report(Status::NotFound),
            Found::Unavailable => return errors.report(Status::Unavailable),
        };
        let is_wanted = |address: &&IpAddr| answer::family(address) == family;
        let Some(address) = addresses.iter().find(is_wanted) else {
            return errors.report(Status::NoData);
        };
        let host = Host {
            name: CStr::from_ptr(name),
            address: *address,
        };
        let status = Arena::new(buffer, room).host(&host, entry);
        if status == Status::Success {
            if !ttl.is_null() {
                *ttl = TTL_S;
            }
            if !canonical.is_null() {
                *canonical = (*entry).h_name;
            }
        }
        errors.report(status)
    }
}

/// `gethostbyname2(3)`.
///
/// # Safety
/// As [`_nss_carina_gethostbyname4_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
) -> c_int {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's promises; null is allowed for the last two.
    unsafe {
        _nss_carina_gethostbyname3_r(
            name,
            family,
            entry,
            buffer,
            room,
            errno,
            h_errno,
            std::ptr::null_mut(),
            none,
        )
    }
}

/// `gethostbyname(3)`.
///
/// # Safety
/// As [`_nss_carina_gethostbyname4_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyname_r(
    name: *const c_char,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
) -> c_int {
    let family = libc::AF_INET;
    // SAFETY: the caller's promises.
    unsafe { _nss_carina_gethostbyname2_r(name, family, entry, buffer, room, errno, h_errno) }
}

/// `gethostbyaddr(3)` and `getnameinfo(3)`: the name that an address of the table stands for.
///
/// # Safety
/// `address` has `length` bytes; else as [`_nss_carina_gethostbyname4_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyaddr2_r(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
    ttl: *mut i32,
) -> c_int {
    let errors = Errors { errno, h_errno };
    // SAFETY: the caller's promises.
    unsafe {
        let address: IpAddr = match (family, length) {
            (libc::AF_INET, 4) => address.cast::<[u8; 4]>().read_unaligned().into(),
            (libc::AF_INET6, 16) => address.cast::<[u8; 16]>().read_unaligned().into(),
            _ => return errors.report(Status::NotFound),
        };
        let name = catch_unwind(|| Lookup::of_process().name(address));
        let name = match name {
            Ok(Ok(Some(name))) => name,
            Ok(Ok(None)) => return errors.report(Status::NotFound),
            Ok(Err(_)) | Err(_) => return errors.report(Status::Unavailable),
        };
        let name = name.as_c_str();
        let status = Arena::new(buffer, room).host(&Host { name, address }, entry);
        if status == Status::Success && !ttl.is_null() {
            *ttl = TTL_S;
        }
        errors.report(status)
    }
}

/// `gethostbyaddr(3)`.
///
/// # Safety
/// As [`_nss_carina_gethostbyaddr2_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_carina_gethostbyaddr_r(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    errno: *mut c_int,
    h_errno: *mut c_int,
) -> c_int {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's promises; null is allowed for the last one.
    unsafe {
        _nss_carina_gethostbyaddr2_r(
            address, length, family, entry, buffer, room, errno, h_errno, none,
        )
    }
}

/// How long an answer may be kept, in seconds.
const TTL_S: i32 = 5;

/// Values of `h_errno` (netdb.h).
const NETDB_INTERNAL: c_int = -1;
const HOST_NOT_FOUND: c_int = 1;
const TRY_AGAIN: c_int = 2;
const NO_DATA: c_int = 4;
