//! Datagrams of relayed sockets, which have a header with the address of the peer before each.

use carina_wrap::datagram_header::{self, BYTES};
use carina_wrap::mark::Mark;
use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::process::{borrowed, last_error};
use crate::{address, listeners, result, wrap};

/// Whether a descriptor number may be a relayed socket, without a system call. False for a socket
/// that the program has inherited through `exec`.
pub(crate) fn may_be(socket: c_int) -> bool {
    listeners::may_be(socket)
}

/// Whether a descriptor is a relayed socket.
pub(crate) fn is_relayed(socket: c_int) -> bool {
    // SAFETY: used during this call only.
    let mark = unsafe { borrowed(socket) }
        .filter(|_| wrap().is_some())
        .and_then(Mark::of);
    mark.is_some_and(|mark| mark.has(Mark::RELAYED))
}

/// Returns the parts of a datagram in a message.
///
/// # Safety
/// `message` points to a message, whose parts the program does not change during the call.
pub(crate) unsafe fn parts<'a>(message: *const msghdr) -> &'a [iovec] {
    // SAFETY: the caller's promise.
    let (parts, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    if parts.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// Sends a datagram behind its header. Returns the length of the datagram, or -1 with `errno` set.
///
/// # Safety
/// The kernel checks the parts; no promise is needed for them.
pub(crate) unsafe fn send(
    socket: c_int,
    mut header: [u8; BYTES],
    datagram: &[iovec],
    flags: c_int,
) -> ssize_t {
    if datagram.iter().map(|part| part.iov_len).sum::<usize>() > DATAGRAM_BYTES_MAX {
        return result(Err(Errno::MSGSIZE)) as ssize_t;
    }
    let mut parts = with_header(&mut header, datagram);
    let message = message_of(&mut parts);
    // SAFETY: the header and the list of parts are locals.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            socket,
            &raw const message,
            flags | libc::MSG_NOSIGNAL,
        )
    };
    if sent >= 0 {
        return sent as ssize_t - BYTES as ssize_t;
    }
    match last_error() {
        // The relay has ended.
        Errno::PIPE | Errno::CONNRESET => result(Err(Errno::NETDOWN)) as ssize_t,
        _ => -1,
    }
}

/// `recvfrom` on a relayed socket.
///
/// # Safety
/// The addresses as of `recvfrom(2)`; the kernel checks the parts.
pub(crate) unsafe fn receive_from(
    socket: c_int,
    datagram: &[iovec],
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    match unsafe { receive(socket, datagram, flags) } {
        Ok(received) => {
            // SAFETY: the caller's promise about the room for the address.
            unsafe { received.write_sender(socket, from, length) };
            received.bytes
        }
        Err(error) => result(Err(error)) as ssize_t,
    }
}

/// `recvmsg` on a relayed socket. There are no control messages.
///
/// # Safety
/// As of `recvmsg(2)`.
pub(crate) unsafe fn receive_message(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    match unsafe { receive(socket, parts(message), flags) } {
        Ok(received) => {
            // SAFETY: the caller's promise.
            let message = unsafe { &mut *message };
            let name = message.msg_name.cast::<sockaddr>();
            // SAFETY: the caller's promise about the room for the address.
            unsafe { received.write_sender(socket, name, &raw mut message.msg_namelen) };
            message.msg_controllen = 0;
            message.msg_flags = received.flags;
            received.bytes
        }
        Err(error) => result(Err(error)) as ssize_t,
    }
}

struct Received {
    bytes: ssize_t,
    header: [u8; BYTES],
    flags: c_int,
}

impl Received {
    /// # Safety
    /// As of [`address::write`].
    unsafe fn write_sender(&self, socket: c_int, to: *mut sockaddr, length: *mut socklen_t) {
        // SAFETY: used during this call only.
        let mark = unsafe { borrowed(socket) }.and_then(Mark::of);
        let is_six = mark.is_some_and(|mark| mark.has(Mark::IPV6));
        if let Some((sender, _)) = datagram_header::decode(&self.header) {
            // SAFETY: the caller's promise.
            unsafe { address::write(address::in_family(sender, is_six), to, length) };
        }
    }
}

/// # Safety
/// The kernel checks the parts; no promise is needed for them.
unsafe fn receive(socket: c_int, datagram: &[iovec], flags: c_int) -> Result<Received, Errno> {
    let mut header = [0; BYTES];
    let mut parts = with_header(&mut header, datagram);
    let mut message = message_of(&mut parts);
    // SAFETY: the header and the list of parts are locals.
    let bytes = unsafe { libc::syscall(libc::SYS_recvmsg, socket, &raw mut message, flags) };
    if bytes < 0 {
        return Err(last_error());
    }
    if (bytes as usize) < BYTES {
        // The relay has ended.
        return Err(Errno::NETDOWN);
    }
    Ok(Received {
        bytes: bytes as ssize_t - BYTES as ssize_t,
        header,
        flags: message.msg_flags,
    })
}

fn with_header(header: &mut [u8; BYTES], datagram: &[iovec]) -> Vec<iovec> {
    let first = iovec {
        iov_base: header.as_mut_ptr().cast::<c_void>(),
        iov_len: BYTES,
    };
    std::iter::once(first)
        .chain(datagram.iter().copied())
        .collect()
}

fn message_of(parts: &mut [iovec]) -> msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is a value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    message
}

/// Longest datagram of UDP over IPv4, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;
