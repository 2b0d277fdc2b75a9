//! `setsockopt` and `getsockopt`: options of TCP and IP that a flow remembers or ignores.

use carina_wrap::mark::Mark;
use carina_wrap::options;
use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;

use crate::process::{borrowed, last_error};
use crate::{result, wrap};

/// `setsockopt(2)`. An option of TCP or IP on a flow succeeds as
/// [`options::set`] says.
///
/// # Safety
/// As of `setsockopt(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
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
    if value.is_null() {
        return result(Err(Errno::INVAL));
    }
    // SAFETY: the caller promises `length` readable bytes, which `options::set` has checked.
    let read = || Ok(unsafe { std::ptr::read_unaligned(value.cast::<[u8; 4]>()) });
    let of = [level, option, c_int::try_from(length).unwrap_or(-1)];
    // SAFETY: used during this call only.
    let descriptor = unsafe { borrowed(socket) }.ok_or(Errno::BADF);
    result(
        descriptor
            .and_then(|socket| options::set(socket, mark, of, read))
            .map(|()| 0),
    )
}

/// `getsockopt(2)`: a flow answers as a TCP socket would.
///
/// # Safety
/// As of `getsockopt(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if level == libc::SOL_SOCKET
        && ANSWERED.contains(&option)
        && let Some(mark) = mark_of(socket)
    {
        // SAFETY: the caller's promise about the room.
        return result(unsafe { answer(socket, mark, [level, option], value, length) });
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, socket, level, option, value, length) };
    if done == 0 || level == libc::SOL_SOCKET || !is_unsupported() {
        return done as c_int;
    }
    let Some(mark) = mark_of(socket) else {
        return result(Err(Errno::OPNOTSUPP));
    };
    // SAFETY: the caller's promise about the room.
    result(unsafe { answer(socket, mark, [level, option], value, length) })
}

/// The socket options that this library answers instead of the kernel.
const ANSWERED: [c_int; 6] = [
    libc::SO_REUSEPORT,
    libc::SO_ERROR,
    libc::SO_TYPE,
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_ACCEPTCONN,
];

/// Writes the value of an option as the kernel does: as many bytes as the program has room for.
///
/// # Safety
/// `length` is null or points to a length, and `value` is null or points to that many writable
/// bytes.
unsafe fn answer(
    socket: c_int,
    mark: Mark,
    [level, option]: [c_int; 2],
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<c_int, Errno> {
    // SAFETY: used during this call only.
    let socket = unsafe { borrowed(socket) }.ok_or(Errno::BADF)?;
    let bytes = options::value(socket, mark, level, option)?;
    if length.is_null() || (value.is_null() && !bytes.is_empty()) {
        return Err(Errno::FAULT);
    }
    // SAFETY: both pointers are valid where they are used, and no more is written than there is
    // room for.
    unsafe {
        let room = bytes.len().min(*length as usize);
        if room > 0 {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), room);
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
