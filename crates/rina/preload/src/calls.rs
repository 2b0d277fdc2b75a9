//! The functions of the C library `bind`, `listen`, `connect`, `accept`, `getsockname` and
//! `getpeername`.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use carina_wrap::calls::{AcceptFlags, Call, is_connected, local_address, remote_address};
use carina_wrap::mark::Mark;
use libc::{c_int, sockaddr, socklen_t};
use rustix::io::Errno;

use crate::address;
use crate::process::{ThisProcess, borrowed};
use crate::{listeners, result, wrap};

/// `bind(2)`.
///
/// # Safety
/// As of `bind(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(
    socket: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's promise about the address, and for the descriptor that of the function.
    let (parsed, descriptor) = unsafe { (address::read(to, length), borrowed(socket)) };
    if let (Some(wrap), Some(address), Some(socket)) = (wrap(), parsed, descriptor) {
        match wrap.bind(&ThisProcess, socket, address) {
            Ok(Call::Kernel) => {}
            Ok(Call::Done(())) => {
                listeners::note(socket.as_raw_fd());
                return 0;
            }
            Err(error) => return result(Err(error)),
        }
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    unsafe { libc::syscall(libc::SYS_bind, socket, to, length) as c_int }
}

/// `listen(2)`.
///
/// # Safety
/// None beyond that of `listen(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn listen(socket: c_int, backlog: c_int) -> c_int {
    // SAFETY: used during this call only.
    let descriptor = unsafe { borrowed(socket) };
    if let (Some(wrap), Some(socket)) = (wrap(), descriptor) {
        match wrap.listen(&ThisProcess, socket) {
            Ok(Call::Kernel) => {}
            Ok(Call::Done(())) => {
                listeners::note(socket.as_raw_fd());
                return 0;
            }
            Err(error) => return result(Err(error)),
        }
    }
    // SAFETY: no pointer is passed.
    unsafe { libc::syscall(libc::SYS_listen, socket, backlog) as c_int }
}

/// `connect(2)`.
///
/// # Safety
/// As of `connect(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(
    socket: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: as of `bind`.
    let (parsed, descriptor) = unsafe { (address::read(to, length), borrowed(socket)) };
    if let (Some(wrap), Some(address), Some(socket)) = (wrap(), parsed, descriptor) {
        match wrap.connect(&ThisProcess, socket, address) {
            Ok(Call::Kernel) => {}
            Ok(Call::Done(())) => return 0,
            Err(error) => return result(Err(error)),
        }
    }
    // SAFETY: as of `bind`.
    unsafe { libc::syscall(libc::SYS_connect, socket, to, length) as c_int }
}

/// `accept(2)`.
///
/// # Safety
/// As of `accept(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(
    socket: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { accept4(socket, peer, length, 0) }
}

/// `accept4(2)`.
///
/// # Safety
/// As of `accept4(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    socket: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: used during this call only.
    let descriptor = unsafe { borrowed(socket) };
    if let (Some(wrap), Some(socket)) = (wrap(), descriptor) {
        let flags = AcceptFlags {
            nonblock: flags & libc::SOCK_NONBLOCK != 0,
            cloexec: flags & libc::SOCK_CLOEXEC != 0,
        };
        match wrap.accept(socket, flags) {
            Ok(Call::Kernel) => {}
            Ok(Call::Done(accepted)) => {
                // SAFETY: the caller's promise about the room for the address.
                unsafe { address::write(accepted.peer, peer, length) };
                return std::os::fd::IntoRawFd::into_raw_fd(accepted.socket);
            }
            Err(error) => return result(Err(error)),
        }
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    unsafe { libc::syscall(libc::SYS_accept4, socket, peer, length, flags) as c_int }
}

/// `getsockname(2)`.
///
/// # Safety
/// As of `getsockname(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockname(
    socket: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if let Some(Ok(address)) = name_of(socket, |socket, mark| {
        local_address(socket, mark).ok_or(Errno::INVAL)
    }) {
        // SAFETY: the caller's promise about the room for the address.
        unsafe { address::write(address, to, length) };
        return 0;
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    unsafe { libc::syscall(libc::SYS_getsockname, socket, to, length) as c_int }
}

/// `getpeername(2)`.
///
/// # Safety
/// As of `getpeername(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(
    socket: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let peer = name_of(socket, |socket, mark| {
        let is_connected = is_connected(socket, mark);
        let address = is_connected.then(|| remote_address(socket, mark)).flatten();
        address.ok_or(Errno::NOTCONN)
    });
    match peer {
        Some(Ok(address)) => {
            // SAFETY: the caller's promise about the room for the address.
            unsafe { address::write(address, to, length) };
            0
        }
        Some(Err(error)) => result(Err(error)),
        // SAFETY: the arguments are the caller's, and the kernel checks them.
        None => unsafe { libc::syscall(libc::SYS_getpeername, socket, to, length) as c_int },
    }
}

fn name_of(
    socket: c_int,
    name: impl Fn(std::os::fd::BorrowedFd<'_>, Mark) -> Result<SocketAddr, Errno>,
) -> Option<Result<SocketAddr, Errno>> {
    wrap()?;
    // SAFETY: used during this call only.
    let socket = unsafe { borrowed(socket) }?;
    let mark = Mark::of(socket)?;
    Some(name(socket, mark))
}
