//! The functions of the C library that send or receive messages: `sendto`, `sendmsg`, `recvfrom`,
//! `recvmsg` and their variants.

use std::os::fd::AsRawFd;

use carina_wrap::calls::{SendTo, is_first_after_close, remote_address};
use carina_wrap::mark::Mark;
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use rustix::io::Errno;

use crate::calls::connect;
use crate::process::{ThisProcess, borrowed, last_error};
use crate::{address, listeners, relayed, result, wrap};

/// Prepares a socket for data that the program sends to an address; see
/// [`send_to`](carina_wrap::calls::Wrap::send_to).
///
/// # Safety
/// As of [`address::read`].
unsafe fn sent_to(socket: c_int, to: *const sockaddr, length: socklen_t) -> Result<SendTo, Errno> {
    // SAFETY: the caller's promise, and the descriptor is used during this call only.
    let (parsed, descriptor) = unsafe { (address::read(to, length), borrowed(socket)) };
    match (wrap(), parsed, descriptor) {
        (Some(wrap), Some(to), Some(socket)) => {
            let sent = wrap.send_to(&ThisProcess, socket, to);
            if matches!(sent, Ok(SendTo::Relayed(_))) {
                listeners::note(socket.as_raw_fd());
            }
            sent
        }
        _ if relayed::is_relayed(socket) => Err(Errno::DESTADDRREQ),
        _ => Ok(SendTo::Kernel),
    }
}

/// `sendto(2)`: a connected stream ignores the address; `MSG_FASTOPEN` connects first. A datagram
/// to an address that a rule makes a flow connects its socket, or makes it a relayed one.
///
/// # Safety
/// As of `sendto(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    socket: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    let mut flags = flags;
    // SAFETY: the caller's promise about the address.
    let (to, length) = match unsafe { sent_to(socket, to, length) } {
        Ok(SendTo::Kernel) => (to, length),
        Ok(SendTo::Connected) => (std::ptr::null(), 0),
        Ok(SendTo::Relayed(header)) => {
            let datagram = iovec {
                iov_base: bytes.cast_mut(),
                iov_len: count,
            };
            // SAFETY: the caller's promise about the datagram.
            return unsafe { relayed::send(socket, header, &[datagram], flags) };
        }
        Err(error) => return result(Err(error)) as ssize_t,
    };
    // SAFETY: the caller's promise about the address.
    let connects = flags & libc::MSG_FASTOPEN != 0 && unsafe { opens(socket, to, length) };
    if connects {
        // SAFETY: as above.
        if unsafe { connect(socket, to, length) } != 0 {
            return -1;
        }
        flags &= !libc::MSG_FASTOPEN;
    }
    let send = |to: *const sockaddr, length: socklen_t| {
        sent(socket, count, flags, |flags| {
            // SAFETY: the arguments are the caller's, and the kernel checks them.
            unsafe {
                libc::syscall(libc::SYS_sendto, socket, bytes, count, flags, to, length) as ssize_t
            }
        })
    };
    let outcome = if connects { -1 } else { send(to, length) };
    if connects || (outcome < 0 && !to.is_null() && is_connected_flow(socket)) {
        return send(std::ptr::null(), 0);
    }
    outcome
}

/// Whether `connect` to this address makes the socket a flow.
///
/// # Safety
/// As of [`address::read`].
unsafe fn opens(socket: c_int, to: *const sockaddr, length: socklen_t) -> bool {
    // SAFETY: the caller's promise, and the descriptor is used during this call only.
    let (parsed, descriptor) = unsafe { (address::read(to, length), borrowed(socket)) };
    match (wrap(), parsed, descriptor) {
        (Some(wrap), Some(address), Some(socket)) => wrap.connects(socket, address),
        _ => false,
    }
}

/// `send(2)`: as `sendto` without an address.
///
/// # Safety
/// As of `send(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(
    socket: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    if relayed::may_be(socket) && relayed::is_relayed(socket) {
        return result(Err(Errno::DESTADDRREQ)) as ssize_t;
    }
    let to = std::ptr::null::<sockaddr>();
    sent(socket, count, flags, |flags| {
        // SAFETY: the arguments are the caller's, and the kernel checks them.
        unsafe { libc::syscall(libc::SYS_sendto, socket, bytes, count, flags, to, 0) as ssize_t }
    })
}

/// Sends `count` bytes by `send`, which gets the flags to use. If the remote end of a stream has
/// closed the flow, the first bytes are discarded, as by TCP; the next ones are refused, with the
/// signal SIGPIPE unless the flags forbid it.
fn sent(
    socket: c_int,
    count: size_t,
    flags: c_int,
    send: impl FnOnce(c_int) -> ssize_t,
) -> ssize_t {
    if wrap().is_none() {
        return send(flags);
    }
    let sent = send(flags | libc::MSG_NOSIGNAL);
    if sent >= 0 || last_error() != Errno::PIPE {
        return sent;
    }
    // SAFETY: used during this call only.
    let descriptor = unsafe { borrowed(socket) };
    if let Some((socket, mark)) =
        descriptor.and_then(|descriptor| Some((descriptor, Mark::of(descriptor)?)))
        && is_first_after_close(socket, mark)
        && mark.with(Mark::DISCARDED).set(socket).is_ok()
    {
        return count as ssize_t;
    }
    if flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    result(Err(Errno::PIPE)) as ssize_t
}

/// `sendmsg(2)`: a connected stream socket ignores the address of the message.
///
/// # Safety
/// As of `sendmsg(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let mut changed: msghdr;
    let mut message = message;
    // SAFETY: the caller's promise about the message, of which a copy is changed.
    unsafe {
        if !message.is_null() && (!(*message).msg_name.is_null() || relayed::may_be(socket)) {
            let name = (*message).msg_name.cast::<sockaddr>();
            match sent_to(socket, name, (*message).msg_namelen) {
                Ok(SendTo::Kernel) => {}
                Ok(SendTo::Relayed(header)) => {
                    return relayed::send(socket, header, relayed::parts(message), flags);
                }
                Ok(SendTo::Connected) => {
                    changed = std::ptr::read(message);
                    changed.msg_name = std::ptr::null_mut();
                    changed.msg_namelen = 0;
                    message = &raw const changed;
                }
                Err(error) => return result(Err(error)) as ssize_t,
            }
        }
    }
    let send = |flags: c_int| {
        // SAFETY: the arguments are the caller's, and the kernel checks them.
        unsafe { libc::syscall(libc::SYS_sendmsg, socket, message, flags) as ssize_t }
    };
    if message.is_null() {
        return send(flags);
    }
    // SAFETY: the caller's promise. The kernel reads the lengths again, and checks them.
    let count = unsafe { relayed::parts(message) }
        .iter()
        .fold(0_usize, |sum, part| sum.saturating_add(part.iov_len));
    let outcome = sent(socket, count, flags, send);
    if outcome >= 0 || !is_connected_flow(socket) {
        return outcome;
    }
    // SAFETY: the kernel has read the message through this pointer.
    let mut without_address = unsafe { std::ptr::read(message) };
    if without_address.msg_name.is_null() {
        return outcome;
    }
    without_address.msg_name = std::ptr::null_mut();
    without_address.msg_namelen = 0;
    // SAFETY: as above, with a local header.
    unsafe {
        libc::syscall(libc::SYS_sendmsg, socket, &raw const without_address, flags) as ssize_t
    }
}

/// Whether the last send failed because a connected flow of Carina was given an address.
fn is_connected_flow(socket: c_int) -> bool {
    last_error() == Errno::ISCONN
        && wrap().is_some()
        // SAFETY: used during this call only.
        && unsafe { borrowed(socket) }.and_then(Mark::of).is_some()
}

/// `sendmmsg(2)`: as many times `sendmsg(2)`, if a message has an address.
///
/// # Safety
/// As of `sendmmsg(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller promises `count` messages; the kernel checks them again.
    unsafe {
        let has_address = |at: usize| {
            let is_to_an_address = || !(*messages.add(at)).msg_hdr.msg_name.is_null();
            !messages.is_null() && (relayed::may_be(socket) || is_to_an_address())
        };
        if wrap().is_none() || !(0..count as usize).any(has_address) {
            return libc::syscall(libc::SYS_sendmmsg, socket, messages, count, flags) as c_int;
        }
        for at in 0..count as usize {
            let message = &mut *messages.add(at);
            match sendmsg(socket, &raw const message.msg_hdr, flags) {
                sent if sent >= 0 => message.msg_len = sent as c_uint,
                _ if at > 0 => return at as c_int,
                _ => return -1,
            }
        }
    }
    count as c_int
}

/// `recvmmsg(2)`: on a flow of datagrams, it waits for the first only.
///
/// # Safety
/// As of `recvmmsg(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    unsafe {
        if messages.is_null() || !is_ours(socket) {
            let call = libc::SYS_recvmmsg;
            return libc::syscall(call, socket, messages, count, flags, timeout) as c_int;
        }
        for at in 0..count as usize {
            let message = &mut *messages.add(at);
            let more = if at > 0 { libc::MSG_DONTWAIT } else { 0 };
            let flags = flags & !libc::MSG_WAITFORONE | more;
            match recvmsg(socket, &raw mut message.msg_hdr, flags) {
                received if received >= 0 => message.msg_len = received as c_uint,
                _ if at > 0 => return at as c_int,
                _ => return -1,
            }
        }
    }
    count as c_int
}

/// `recvfrom(2)`: on a flow that is a stream, it returns no address; on one of datagrams, that of
/// the remote end.
///
/// # Safety
/// As of `recvfrom(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvfrom(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    let wants_address = !from.is_null() && !length.is_null();
    if (wants_address || relayed::may_be(socket)) && relayed::is_relayed(socket) {
        let datagram = iovec {
            iov_base: bytes,
            iov_len: count,
        };
        // SAFETY: the caller's promise about the room for the datagram and for the address.
        return unsafe { relayed::receive_from(socket, &[datagram], flags, from, length) };
    }
    // SAFETY: the caller's promise.
    let mut room = if wants_address { unsafe { *length } } else { 0 };
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            socket,
            bytes,
            count,
            flags,
            from,
            length,
        )
    };
    if received >= 0 && wants_address {
        // SAFETY: the kernel has just written through both pointers, with the same room.
        unsafe {
            if write_sender(socket, from, &mut room) {
                *length = room;
            }
        }
    }
    received as ssize_t
}

/// Writes the address from which a message of a flow has come, and its length over the `room`: none
/// on a stream. Returns false, and writes nothing, if the socket is the kernel's.
///
/// # Safety
/// `from` points to `room` writable bytes.
unsafe fn write_sender(socket: c_int, from: *mut sockaddr, room: &mut socklen_t) -> bool {
    // SAFETY: used during this call only.
    let descriptor = unsafe { borrowed(socket) }.filter(|_| wrap().is_some());
    let Some((socket, mark)) =
        descriptor.and_then(|descriptor| Some((descriptor, Mark::of(descriptor)?)))
    else {
        return false;
    };
    let sender = mark
        .has(Mark::DATAGRAMS)
        .then(|| remote_address(socket, mark));
    match sender.flatten() {
        // SAFETY: the caller's promise.
        Some(sender) => unsafe { address::write(sender, from, room) },
        None => *room = 0,
    }
    true
}

/// `recv(2)`: on a registration it fails as on a TCP socket that listens, and removes no message.
///
/// # Safety
/// As of `recv(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recv(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    // Every read of data comes here, so the mark is read only for numbers of registrations.
    let (from, length) = (
        std::ptr::null_mut::<sockaddr>(),
        std::ptr::null_mut::<socklen_t>(),
    );
    if listeners::may_be(socket) {
        if is_listener(socket) {
            return result(Err(Errno::NOTCONN)) as ssize_t;
        }
        // SAFETY: the caller's promise.
        return unsafe { recvfrom(socket, bytes, count, flags, from, length) };
    }
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            socket,
            bytes,
            count,
            flags,
            from,
            length,
        ) as ssize_t
    }
}

fn is_listener(socket: c_int) -> bool {
    // SAFETY: used during this call only.
    let mark = unsafe { borrowed(socket) }.and_then(Mark::of);
    wrap().is_some() && mark.is_some_and(|mark| mark.has(Mark::LISTENER))
}

/// `recvfrom(2)`, in the form that programs with buffer checks (`_FORTIFY_SOURCE`) call.
///
/// # Safety
/// As of `recvfrom(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    if count > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { recvfrom(socket, bytes, count, flags, from, length) }
}

/// `recv(2)`, in the form that programs with buffer checks (`_FORTIFY_SOURCE`) call.
///
/// # Safety
/// As of `recv(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recv_chk(
    socket: c_int,
    bytes: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if count > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { recv(socket, bytes, count, flags) }
}

/// `recvmsg(2)`: returns an address as `recvfrom` does.
///
/// # Safety
/// As of `recvmsg(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmsg(
    socket: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let wants_address = !message.is_null() && unsafe { !(*message).msg_name.is_null() };
    let may_be_relayed = !message.is_null() && (wants_address || relayed::may_be(socket));
    if may_be_relayed && relayed::is_relayed(socket) {
        // SAFETY: the caller's promise about the message and what it points to.
        return unsafe { relayed::receive_message(socket, message, flags) };
    }
    // SAFETY: the caller's promise.
    let room = (!message.is_null()).then(|| unsafe { (*message).msg_namelen });
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let received = unsafe { libc::syscall(libc::SYS_recvmsg, socket, message, flags) };
    if let Some(mut room) = room.filter(|_| received >= 0) {
        // SAFETY: the kernel has just written through this pointer, and to the name with this room.
        let message = unsafe { &mut *message };
        let name = message.msg_name.cast::<sockaddr>();
        // SAFETY: as above.
        if !name.is_null() && unsafe { write_sender(socket, name, &mut room) } {
            message.msg_namelen = room;
        }
    }
    received as ssize_t
}

fn is_ours(socket: c_int) -> bool {
    // SAFETY: used during this call only.
    wrap().is_some() && unsafe { borrowed(socket) }.and_then(Mark::of).is_some()
}
