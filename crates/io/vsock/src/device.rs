//! The device of one guest, its sockets and its counters.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use carina_sys::{Epoll, EventFd, Interest};
use carina_vhost_user::features::VERSION_1;
use carina_vhost_user::{Offer, Port, PortConfig, Role};

use self::server::{CONNECTIONS, DROPPED, LISTENER, PORT, STOP, Server, VIOLATIONS};

mod held;
mod server;

/// Configuration of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Path of the vhost-user socket on which QEMU listens.
    pub vhost_socket: PathBuf,
    /// Path of the device's Unix socket. A host program connects to it to reach a port of the
    /// guest. If the guest connects to port P of the host, the device connects to the Unix socket
    /// at this path with `_P` appended, where a host program must listen.
    pub path: PathBuf,
    /// Context id of the guest, 3 or more.
    pub guest_cid: u64,
}

/// Counters of a device since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of times that a QEMU has connected.
    pub attached: u64,
    /// 1 while a QEMU is connected, else 0.
    pub is_attached: u64,
    /// Number of connections between guest and host that exist now.
    pub connections: u64,
    /// Number of connections that were ended because the guest broke the protocol.
    pub violations: u64,
    /// Number of packets that were dropped: malformed, or with other context ids.
    pub dropped: u64,
}

/// A device with its thread. Dropping it ends all connections and disconnects QEMU.
#[derive(Debug)]
pub struct Device {
    port: Arc<Port>,
    stop: Arc<EventFd>,
    counts: Arc<[AtomicU64; 3]>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Device {
    /// Starts to serve a guest, whose QEMU may start to listen later.
    ///
    /// # Errors
    /// The path is too long, another program listens there, or the process has too many open files.
    pub fn start(config: &DeviceConfig) -> io::Result<Device> {
        let port = Port::new(&PortConfig {
            path: config.vhost_socket.clone(),
            role: Role::Client,
            offer: Offer {
                features: VERSION_1,
                rings: 2,
                mtu_max: 0,
                config: Some(config.guest_cid.to_le_bytes()),
            },
        })?;
        let port = Arc::new(port);
        let stop = Arc::new(EventFd::new()?);
        let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
        let epoll = Epoll::new()?;
        let listener = listen(&config.path)?;
        epoll.add(&listener, LISTENER, Interest::Read)?;
        epoll.add(&*stop, STOP, Interest::Read)?;
        epoll.add(port.wait_fd(), PORT, Interest::Read)?;
        let server = Server::new(
            config,
            Arc::clone(&port),
            epoll,
            listener,
            Arc::clone(&counts),
        );
        let thread = thread::Builder::new()
            .name("vsock".to_owned())
            .spawn(move || server.run())?;
        Ok(Device {
            port,
            stop,
            counts,
            thread: Some(thread),
            path: config.path.clone(),
        })
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of_port = self.port.counts();
        let count = |at: usize| self.counts[at].load(Ordering::Relaxed);
        Counts {
            attached: of_port.connections,
            is_attached: of_port.is_connected,
            connections: count(CONNECTIONS),
            violations: count(VIOLATIONS),
            dropped: count(DROPPED),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been reported already.
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens on `path`. Replaces the socket of a process that has ended.
fn listen(path: &PathBuf) -> io::Result<UnixListener> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if UnixStream::connect(path).is_ok() {
        let text = format!("{}: another process listens there", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
