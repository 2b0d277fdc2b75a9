//! `setsockopt` and `getsockopt`: options of TCP and IP that a flow remembers, or has no use for.

use carina_wrap::calls::take_error;
use carina_wrap::mark::Mark;
use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;

use crate::process::{borrowed, last_error};
use crate::{result, wrap};

/// `setsockopt(2)`. An option of TCP or IP on a flow succeeds and, but for `TCP_NODELAY`, is
/// forgotten: a flow has neither segments nor packets of its own.
///
/// # Safety
/// As of `setsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let is_mark = level == libc::SOL_SOCKET && option == libc::SO_INCOMING_CPU;
    if is_mark && mark_of(socket).is_some() {
        return 0;
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let done = unsafe { libc::syscall(libc::SYS_setsockopt, socket, level, option, value, length) };
    if done == 0 {
        return 0;
    }
    let is_for_kernel = level == libc::SOL_SOCKET && option != libc::SO_REUSEPORT;
    if is_for_kernel || !is_unsupported() {
        return -1;
    }
    let Some(mark) = mark_of(socket) else {
        return result(Err(Errno::OPNOTSUPP));
    };
    if value.is_null() || (length as usize) < size_of::<c_int>() {
        return result(Err(Errno::INVAL));
    }
    if let Some(bit) = remembered(level, option) {
        // SAFETY: the caller promises `length` readable bytes, which are enough.
        let is_set = unsafe { std::ptr::read_unaligned(value.cast::<c_int>()) } != 0;
        let mark = mark.without(bit).with_if(is_set, bit);
        // SAFETY: used during this call only.
        let set = unsafe { borrowed(socket) }.map_or(Err(Errno::BADF), |socket| mark.set(socket));
        return result(set.map(|()| 0));
    }
    0
}

/// `getsockopt(2)`. A flow answers as a TCP socket would.
///
/// # Safety
/// As of `getsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if level == libc::SOL_SOCKET
        && ANSWERED.contains(&option)
        && let Some(mark) = mark_of(socket)
        && let Some(answer) = of_socket(socket, option, mark)
    {
        // SAFETY: the caller's promise about the room.
        return result(answer.and_then(|answer| unsafe { put(answer, value, length) }));
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, socket, level, option, value, length) };
    if done == 0 || level == libc::SOL_SOCKET || !is_unsupported() {
        return done as c_int;
    }
    let Some(mark) = mark_of(socket) else {
        return result(Err(Errno::OPNOTSUPP));
    };
    if let Some(bit) = remembered(level, option) {
        // SAFETY: the caller's promise about the room.
        return result(unsafe { put(mark.has(bit).into(), value, length) });
    }
    // SAFETY: the caller's promise about the room.
    result(unsafe {
        match (level, option) {
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => put(SEGMENT_BYTES, value, length),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => put_state(value, length),
            // No options: OpenSSH refuses a connection that has any.
            (libc::IPPROTO_IP, IP_OPTIONS) => {
                if length.is_null() {
                    return result(Err(Errno::FAULT));
                }
                *length = 0;
                Ok(0)
            }
            _ => put(0, value, length),
        }
    })
}

/// The bit of a mark that remembers an option which `AF_UNIX` sockets lack.
fn remembered(level: c_int, option: c_int) -> Option<Mark> {
    match (level, option) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(Mark::NODELAY),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => Some(Mark::REUSEPORT),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Some(Mark::V6ONLY),
        _ => None,
    }
}

/// The options of a socket that are not the kernel's to answer.
const ANSWERED: [c_int; 6] = [
    libc::SO_REUSEPORT,
    libc::SO_ERROR,
    libc::SO_TYPE,
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_ACCEPTCONN,
];

fn of_socket(socket: c_int, option: c_int, mark: Mark) -> Option<Result<c_int, Errno>> {
    let answer = match option {
        libc::SO_TYPE => libc::SOCK_STREAM,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        libc::SO_DOMAIN if mark.has(Mark::IPV6) => libc::AF_INET6,
        libc::SO_DOMAIN => libc::AF_INET,
        libc::SO_REUSEPORT => mark.has(Mark::REUSEPORT).into(),
        libc::SO_ACCEPTCONN => mark.has(Mark::LISTENER).into(),
        _ => {
            // SAFETY: used during this call only.
            let socket = unsafe { borrowed(socket) }?;
            let error = take_error(socket, mark);
            return Some(error.map(|error| error.map_or(0, Errno::raw_os_error)));
        }
    };
    Some(Ok(answer))
}

/// Writes a number as the kernel does: as many bytes of it as fit.
///
/// # Safety
/// `length` is null or points to a length, and `value` to that many writable bytes.
unsafe fn put(number: c_int, value: *mut c_void, length: *mut socklen_t) -> Result<c_int, Errno> {
    if value.is_null() || length.is_null() {
        return Err(Errno::FAULT);
    }
    let bytes = number.to_ne_bytes();
    // SAFETY: both pointers are valid, and no more is written than there is room for.
    unsafe {
        let room = bytes.len().min(*length as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), room);
        *length = room as socklen_t;
    }
    Ok(0)
}

/// Writes a `tcp_info` that says only that the connection is established.
///
/// # Safety
/// As of [`put`].
unsafe fn put_state(value: *mut c_void, length: *mut socklen_t) -> Result<c_int, Errno> {
    if value.is_null() || length.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: both pointers are valid, and no more is written than there is room for.
    unsafe {
        let room = size_of::<libc::tcp_info>().min(*length as usize);
        std::ptr::write_bytes(value.cast::<u8>(), 0, room);
        if room > 0 {
            *value.cast::<u8>() = ESTABLISHED;
        }
        *length = room as socklen_t;
    }
    Ok(0)
}

fn mark_of(socket: c_int) -> Option<Mark> {
    wrap()?;
    // SAFETY: used during this call only.
    Mark::of(unsafe { borrowed(socket) }?)
}

fn is_unsupported() -> bool {
    matches!(last_error(), Errno::OPNOTSUPP | Errno::NOPROTOOPT)
}

/// `IP_OPTIONS` of Linux, which the crate `libc` does not have.
const IP_OPTIONS: c_int = 4;

/// `TCP_ESTABLISHED` in `tcpi_state`.
const ESTABLISHED: u8 = 1;

/// The segment size that TCP has on loopback; a flow has none.
const SEGMENT_BYTES: c_int = 65_483;
