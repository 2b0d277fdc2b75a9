//! Unix sockets: `SOCK_SEQPACKET` sockets, which carry whole messages in order with an end of file,
//! and `SOCK_STREAM` sockets, which carry bytes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, socketpair,
};

/// Credentials of the process at the other end of a Unix socket, as they were when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id of the peer; 0 if the process is not visible in this PID namespace.
    pub pid: i32,
    /// Effective user id of the peer.
    pub uid: u32,
    /// Effective group id of the peer.
    pub gid: u32,
}

/// Creates a connected pair of blocking `SOCK_SEQPACKET` sockets.
///
/// # Errors
/// The kernel's refusal, usually because the process has too many open files.
pub fn socketpair_seqpacket() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Creates a connected pair of blocking `SOCK_STREAM` sockets.
///
/// # Errors
/// Like [`socketpair_seqpacket`].
pub fn socketpair_stream() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Opens a non-blocking `SOCK_SEQPACKET` listener on `path`. Does not remove a stale socket file.
///
/// # Errors
/// `AddrInUse` if the path exists; `InvalidInput` if it is longer than 107 bytes.
pub fn listen_seqpacket(path: &Path) -> io::Result<OwnedFd> {
    let address = address(path)?;
    let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    bind(&socket, &address).map_err(|error| at(path, error))?;
    listen(&socket, 1024)?;
    Ok(socket)
}

/// Accepts one connection as a non-blocking socket.
///
/// # Errors
/// `WouldBlock` if no connection waits; otherwise the kernel's refusal.
pub fn accept_seqpacket(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(
        listener,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
    )?)
}

/// Connects a blocking socket to `path`. Waits at most `limit` for a place in the listener's queue.
/// Later writes also wait at most `limit` for room.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if no socket listens; `TimedOut` if the listener accepts no
/// connections; `InvalidInput` if the path is longer than 107 bytes.
pub fn connect_seqpacket(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    connect_within(path, SocketType::SEQPACKET, limit)
}

/// Like [`connect_seqpacket`], with a stream socket.
///
/// # Errors
/// As for [`connect_seqpacket`].
pub fn connect_stream(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    connect_within(path, SocketType::STREAM, limit).map(UnixStream::from)
}

fn connect_within(path: &Path, kind: SocketType, limit: Duration) -> io::Result<OwnedFd> {
    let address = address(path)?;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // The send timeout also limits how long connect(2) waits for a full queue.
    set_socket_timeout(
        &socket,
        Timeout::Send,
        Some(limit.max(Duration::from_millis(1))),
    )?;
    match rustix::io::retry_on_intr(|| connect(&socket, &address)) {
        Ok(()) => Ok(socket),
        Err(rustix::io::Errno::AGAIN) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "{}: its process has accepted no connection for {} s; it is stopped or stuck",
                path.display(),
                limit.as_secs_f32()
            ),
        )),
        Err(error) => Err(at(path, error)),
    }
}

/// Returns the credentials of the process at the other end of a Unix socket.
///
/// # Errors
/// The kernel's refusal: this is not a Unix socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    // rustix is not used here: its `UCred` cannot hold the pid 0 of a process in another namespace.
    let mut raw = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: both pointers are to locals of the sizes given, and the fd is borrowed for the call.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut raw).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials {
        pid: raw.pid,
        uid: raw.uid,
        gid: raw.gid,
    })
}

/// Whether the other end of a Unix socket has not read all messages from this end. True until the
/// other end has received the last message completely.
///
/// # Errors
/// The kernel's refusal: this is not a socket.
pub fn peer_has_unread(socket: impl AsFd) -> io::Result<bool> {
    unread_bytes(socket).map(|bytes| bytes > 0)
}

/// Returns how much memory the kernel counts for data that the other end of a Unix socket has not
/// read, in bytes. This is more than the number of bytes that were written.
///
/// # Errors
/// The kernel's refusal: not a socket.
pub fn unread_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut memory: libc::c_int = 0;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: the pointer is to a local of the type that this request writes, and the fd is
    // borrowed for the call.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut memory) };
    match result {
        0 => Ok(usize::try_from(memory).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("socket path {} is longer than 107 bytes", path.display()),
        )
    })
}

fn at(path: &Path, error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{recv_with_fds, send_with_fds};

    #[test]
    fn unread_messages_of_the_peer_are_seen() {
        let (a, b) = socketpair_seqpacket().unwrap();
        assert!(!peer_has_unread(&a).unwrap());
        for message in ["one", "two"] {
            send_with_fds(&a, message.as_bytes(), &[]).unwrap();
        }
        let mut buffer = [0; 8];
        for _ in 0..2 {
            assert!(peer_has_unread(&a).unwrap());
            assert!(!peer_has_unread(&b).unwrap());
            recv_with_fds(&b, &mut buffer).unwrap();
        }
        assert!(!peer_has_unread(&a).unwrap());
        let (_pipe, not_a_socket) = std::io::pipe().unwrap();
        drop(b);
        assert!(!peer_has_unread(&a).unwrap());
        assert!(peer_has_unread(&not_a_socket).is_err());
    }

    #[test]
    fn connection_through_a_path_carries_whole_messages() {
        let directory = std::env::temp_dir().join(format!("carina-sys-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let limit = Duration::from_secs(10);
        let missing = connect_seqpacket(&path, limit).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let listener = listen_seqpacket(&path).unwrap();
        let nobody = accept_seqpacket(&listener).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(
            listen_seqpacket(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        let client = connect_seqpacket(&path, limit).unwrap();
        let server = accept_seqpacket(&listener).unwrap();
        send_with_fds(&client, b"one", &[]).unwrap();
        send_with_fds(&client, b"three", &[]).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(recv_with_fds(&server, &mut buffer).unwrap().bytes, 3);
        assert_eq!(recv_with_fds(&server, &mut buffer).unwrap().bytes, 5);
        let peer = peer_credentials(&server).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn connecting_to_a_full_queue_ends_in_time() {
        let directory = std::env::temp_dir().join(format!("carina-full-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let listener = socket(SocketFlags::CLOEXEC).unwrap();
        bind(&listener, &address(&path).unwrap()).unwrap();
        listen(&listener, 1).unwrap();
        let limit = Duration::from_millis(50);
        let connections: Vec<_> = (0..8).map(|_| connect_seqpacket(&path, limit)).collect();
        let refused = connections.into_iter().find_map(Result::err).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
        assert!(refused.to_string().contains("accepted no connection"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn long_path_is_named_in_the_error() {
        let path = Path::new("/tmp").join("x".repeat(120));
        let error = listen_seqpacket(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("107"));
    }
}
