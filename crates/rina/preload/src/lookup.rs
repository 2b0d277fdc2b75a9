//! The resolver functions of the C library: a host name that becomes a flow has an address of the
//! name table.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use libc::{addrinfo, c_char, c_int, c_void, hostent, size_t, sockaddr, socklen_t};

use crate::{address, wrap};

/// `getaddrinfo(3)`: for a name that becomes a flow, returns its addresses in the name table.
///
/// # Safety
/// As of `getaddrinfo(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getaddrinfo(
    host: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    type Function = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const addrinfo,
        *mut *mut addrinfo,
    ) -> c_int;
    // SAFETY: the C library's function has this type.
    let Some(next) = (unsafe { next::<Function>(c"getaddrinfo") }) else {
        return libc::EAI_SYSTEM;
    };
    // SAFETY: all fields are integers and pointers, for which zero is a value.
    let mut wanted: addrinfo = unsafe { std::mem::zeroed() };
    if !hints.is_null() {
        // SAFETY: the caller's promise.
        let hints = unsafe { &*hints };
        wanted.ai_flags = hints.ai_flags;
        wanted.ai_family = hints.ai_family;
        wanted.ai_socktype = hints.ai_socktype;
        wanted.ai_protocol = hints.ai_protocol;
    }
    // SAFETY: the caller's promise about the name.
    let number = (wanted.ai_flags & libc::AI_NUMERICHOST == 0)
        .then(|| unsafe { number_of(host, wanted.ai_family) })
        .flatten();
    let Some(number) = number else {
        // SAFETY: the arguments are the caller's.
        return unsafe { next(host, service, hints, found) };
    };
    let has_canonical = wanted.ai_flags & libc::AI_CANONNAME != 0;
    wanted.ai_flags = (wanted.ai_flags | libc::AI_NUMERICHOST) & !libc::AI_ADDRCONFIG;
    // SAFETY: the name and the hints are locals, the rest is the caller's.
    let outcome = unsafe { next(number.as_ptr(), service, &raw const wanted, found) };
    if outcome == 0 && has_canonical {
        // SAFETY: the C library has just made the list, whose first entry has a canonical name of
        // its allocator, which `freeaddrinfo` frees.
        unsafe {
            let first = *found;
            if !first.is_null() {
                libc::free((*first).ai_canonname.cast::<c_void>());
                (*first).ai_canonname = libc::strdup(host);
            }
        }
    }
    outcome
}

/// `getnameinfo(3)`: for an address of the name table, returns its name.
///
/// # Safety
/// As of `getnameinfo(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getnameinfo(
    of: *const sockaddr,
    length: socklen_t,
    host: *mut c_char,
    host_room: socklen_t,
    service: *mut c_char,
    service_room: socklen_t,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(
        *const sockaddr,
        socklen_t,
        *mut c_char,
        socklen_t,
        *mut c_char,
        socklen_t,
        c_int,
    ) -> c_int;
    // SAFETY: the C library's function has this type.
    let Some(next) = (unsafe { next::<Function>(c"getnameinfo") }) else {
        return libc::EAI_SYSTEM;
    };
    // SAFETY: the caller's promise about the address.
    let parsed = unsafe { address::read(of, length) };
    let wants_name = flags & libc::NI_NUMERICHOST == 0 && !host.is_null() && host_room > 0;
    let name = parsed
        .filter(|_| wants_name)
        .and_then(|address: SocketAddr| wrap()?.name(address.ip()));
    let Some(name) = name.and_then(|name| CString::new(name).ok()) else {
        // SAFETY: the arguments are the caller's.
        return unsafe { next(of, length, host, host_room, service, service_room, flags) };
    };
    let bytes = name.as_bytes_with_nul();
    if bytes.len() > host_room as usize {
        return libc::EAI_OVERFLOW;
    }
    // SAFETY: the caller promises the room, which is enough.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), host.cast::<u8>(), bytes.len()) };
    if service.is_null() || service_room == 0 {
        return 0;
    }
    // SAFETY: the arguments are the caller's; no name of the host is asked for.
    unsafe { next(of, length, ptr::null_mut(), 0, service, service_room, flags) }
}

/// `gethostbyname(3)`: for a name that becomes a flow, returns its address in the name table.
///
/// # Safety
/// As of `gethostbyname(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gethostbyname(host: *const c_char) -> *mut hostent {
    type Function = unsafe extern "C" fn(*const c_char) -> *mut hostent;
    // SAFETY: the C library's function has this type; the caller's promise about the name.
    unsafe {
        let Some(next) = next::<Function>(c"gethostbyname") else {
            return ptr::null_mut();
        };
        let number = number_of(host, libc::AF_INET);
        next(number.as_ref().map_or(host, |number| number.as_ptr()))
    }
}

/// `gethostbyname2(3)`: for a name that becomes a flow, returns its address in the name table.
///
/// # Safety
/// As of `gethostbyname2(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gethostbyname2(host: *const c_char, family: c_int) -> *mut hostent {
    type Function = unsafe extern "C" fn(*const c_char, c_int) -> *mut hostent;
    // SAFETY: as above.
    unsafe {
        let Some(next) = next::<Function>(c"gethostbyname2") else {
            return ptr::null_mut();
        };
        let number = number_of(host, family);
        next(
            number.as_ref().map_or(host, |number| number.as_ptr()),
            family,
        )
    }
}

/// `gethostbyname_r(3)`: for a name that becomes a flow, returns its address in the name table.
///
/// # Safety
/// As of `gethostbyname_r(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gethostbyname_r(
    host: *const c_char,
    entry: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(
        *const c_char,
        *mut hostent,
        *mut c_char,
        size_t,
        *mut *mut hostent,
        *mut c_int,
    ) -> c_int;
    // SAFETY: as above.
    unsafe {
        let Some(next) = next::<Function>(c"gethostbyname_r") else {
            return libc::ENOSYS;
        };
        let number = number_of(host, libc::AF_INET);
        let host = number.as_ref().map_or(host, |number| number.as_ptr());
        next(host, entry, buffer, room, found, error)
    }
}

/// Returns the address of a name that becomes a flow, in digits; `None` for any other name.
///
/// # Safety
/// `host` is null or a string.
unsafe fn number_of(host: *const c_char, family: c_int) -> Option<CString> {
    if host.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let host = unsafe { CStr::from_ptr(host) }.to_str().ok()?;
    let (four, six) = match wrap()?.lookup(host) {
        Ok(found) => found?,
        Err(error) => {
            eprintln!("carina wrap: looking up {host}: {error}");
            return None;
        }
    };
    let address: IpAddr = if family == libc::AF_INET6 {
        six.into()
    } else {
        four.into()
    };
    CString::new(address.to_string()).ok()
}

/// Returns the C library's own function of this name, which this library replaces.
///
/// # Safety
/// `Function` is the type of that function.
pub(crate) unsafe fn next<Function: Copy>(name: &CStr) -> Option<Function> {
    // SAFETY: the name is a string; a symbol that is found is a function of the type promised, and
    // a pointer to a function has the size of a pointer.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        assert!(size_of::<Function>() == size_of::<*mut c_void>());
        (!symbol.is_null()).then(|| std::mem::transmute_copy(&symbol))
    }
}
