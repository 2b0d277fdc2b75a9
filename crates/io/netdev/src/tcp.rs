//! TCP connections that never block.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

use crate::error::NetdevError;

/// Opens a non-blocking listener on `address`.
///
/// # Errors
/// The address is in use, or does not belong to this system.
pub fn listen_stream(address: SocketAddr) -> Result<TcpListener, NetdevError> {
    let failed = |source| NetdevError::System {
        what: format!("listening on TCP address {address}"),
        source,
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Starts to connect. The stream becomes writable when the attempt has succeeded or failed;
/// `take_error` then returns the error, if any.
///
/// # Errors
/// The kernel's refusal, e.g. because there is no route.
pub fn connect_stream(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    // The writer already collects bursts, so waiting for more data would only delay them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Accepts the next incoming connection; `None` if no connection waits.
///
/// # Errors
/// The kernel's refusal, usually because the process has too many open files.
pub fn accept_stream(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(Some((stream, from)));
            }
            // This connection was lost, but others may wait behind it. A caller that waits for an
            // edge would get no further event for them.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    fn soon<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        for _ in 0..5000 {
            if let Some(value) = ready() {
                return value;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not within 5 s");
    }

    #[test]
    fn connecting_does_not_block_and_a_refusal_is_reported() {
        let listener = listen_stream("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(accept_stream(&listener).unwrap().is_none());
        assert!(listen_stream(address).is_err());
        let mut client = connect_stream(address).unwrap();
        let (mut server, from) = soon(|| accept_stream(&listener).unwrap());
        assert_eq!(from, client.local_addr().unwrap());
        soon(|| client.write_all(b"hello").ok());
        let mut hello = [0; 5];
        soon(|| server.read_exact(&mut hello).ok());
        assert_eq!(&hello, b"hello");
        drop((listener, server));
        let refused = connect_stream(address).unwrap();
        let error = soon(|| refused.take_error().unwrap());
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
