//! The listening sockets of connectors.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{SocketFlags, accept_with, listen};

use crate::endpoint::{Endpoint, Resolved};
use crate::error::GatewayError;

/// A listening stream socket. If it is a Unix socket, its file is removed when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// The address on which the socket listens. If the settings have port 0, the port is the one
    /// that the kernel chose.
    pub endpoint: Endpoint,
    pub is_tcp: bool,
    /// The file of a Unix socket, which is removed with the listener.
    _file: Option<SocketFile>,
}

/// The file of a Unix socket that this process has created.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Listener {
    /// Opens a non-blocking listening socket.
    pub(crate) fn bind(endpoint: &Endpoint) -> Result<Listener, GatewayError> {
        let failed = |source| GatewayError::Listen {
            endpoint: endpoint.clone(),
            source,
        };
        let listener = match endpoint
            .resolve()
            .map_err(GatewayError::resolving(endpoint))?
        {
            Resolved::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                let endpoint = Endpoint::Tcp(listener.local_addr().map_err(failed)?.to_string());
                Listener {
                    socket: listener.into(),
                    endpoint,
                    is_tcp: true,
                    _file: None,
                }
            }
            Resolved::Unix(path) => {
                remove_stale(&path).map_err(failed)?;
                let listener = UnixListener::bind(&path).map_err(failed)?;
                let inode = std::fs::metadata(&path).map_err(failed)?.ino();
                Listener {
                    socket: listener.into(),
                    endpoint: endpoint.clone(),
                    is_tcp: false,
                    _file: Some(SocketFile { path, inode }),
                }
            }
            Resolved::Udp(_) => {
                return Err(failed(io::Error::other(
                    "no connections come to a UDP port",
                )));
            }
        };
        let ready = listen(&listener.socket, BACKLOG)
            .and_then(|()| rustix::io::ioctl_fionbio(&listener.socket, true));
        ready.map_err(|error| failed(error.into()))?;
        Ok(listener)
    }

    /// Accepts the next connection as a blocking socket; `None` when no connection waits.
    pub(crate) fn accept(&self) -> rustix::io::Result<Option<OwnedFd>> {
        use rustix::io::Errno;
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                // The client gave up before its connection was accepted.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have created a file of its own at this path.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            let path = self.path.display();
            tracing::warn!(target: "carina::gateway", %error, %path, "the socket file stays");
        }
    }
}

/// Removes the socket file that a killed process has left behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(file) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !file.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Largest number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_files_end_with_their_listener_and_never_with_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let endpoint = Endpoint::Unix(path.clone());
        let first = Listener::bind(&endpoint).unwrap();
        let second = Listener::bind(&endpoint).unwrap_err().to_string();
        assert!(second.contains("another process listens there"), "{second}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        drop(first);
        let third = Listener::bind(&endpoint).unwrap_err().to_string();
        assert!(third.contains("a file exists there"), "{third}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_file(&path).unwrap();
        // The file that a killed process leaves behind.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::bind(&endpoint).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_port_in_use_is_said_to_be() {
        let first = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Listener::bind(&first.endpoint).unwrap_err().to_string();
        assert!(error.contains("the port is in use"), "{error}");
        let nowhere = Listener::bind(&"unix:/nowhere/s".parse().unwrap()).unwrap_err();
        assert!(
            nowhere.to_string().contains("the directory does not exist"),
            "{nowhere}"
        );
    }
}
