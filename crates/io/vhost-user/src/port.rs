//! A vhost-user socket, and the control thread that waits on it.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carina_sys::{EventFd, peer_credentials};
use carina_vring::Fault;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::Device;
use crate::kicks::Kicks;
use crate::progress::Progress;
use crate::protocol::{Connection, Outcome};
use crate::shared::{Offer, Shared};

/// Which end of a vhost-user connection creates the socket and listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end listens; front ends connect, one at a time.
    Server,
    /// The front end listens. This end connects, and reconnects when the connection ends.
    Client,
}

/// Configuration of a port: its socket, and the features of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Path of the vhost-user socket.
    pub path: PathBuf,
    /// Whether this end or the front end listens on the socket.
    pub role: Role,
    /// The features and limits that the device offers.
    pub offer: Offer,
}

/// A vhost-user device with its socket and control thread. Dropping it ends the connection.
#[derive(Debug)]
pub struct Port {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Path of the socket file that this end created, if it listens.
    made: Option<PathBuf>,
}

/// Counters of a port since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of front ends that have connected.
    pub connections: u64,
    /// Number of connections that were closed because of an invalid message.
    pub refused: u64,
    /// Number of connections that were closed because of the contents of a ring.
    pub faults: u64,
    /// 1 while a front end is connected, else 0.
    pub is_connected: u64,
}

const CONNECTIONS: usize = 0;
const REFUSED: usize = 1;
const FAULTS: usize = 2;
const IS_CONNECTED: usize = 3;

impl Port {
    /// Creates the socket, or begins to connect to it, and starts the control thread.
    ///
    /// # Errors
    /// The socket cannot be created: another process listens there, the path is too long or names
    /// another kind of file, or the process has too many open files.
    pub fn new(config: &PortConfig) -> io::Result<Port> {
        let listener = match config.role {
            Role::Server => Some(listen(&config.path)?),
            Role::Client => None,
        };
        let kicks = Arc::new(Kicks::new()?);
        let changed = EventFd::new()?;
        kicks.add(&changed, 0)?;
        let rings = config.offer.rings;
        let progress = Arc::new(Progress::new(&config.path, rings));
        let shared = Arc::new(Shared {
            offer: config.offer,
            device: Mutex::new(Device::new(rings, progress, Arc::clone(&kicks))),
            changed,
            kicks,
            stop: EventFd::new()?,
            counts: Default::default(),
        });
        let control = Control {
            shared: Arc::clone(&shared),
            listener,
            path: config.path.clone(),
        };
        let thread = thread::Builder::new()
            .name("vhost-user".to_owned())
            .spawn(move || control.run())?;
        Ok(Port {
            shared,
            thread: Some(thread),
            made: (config.role == Role::Server).then(|| config.path.clone()),
        })
    }

    /// Locks the device; `None` while the control thread changes it. The data path then skips the
    /// visit, and is woken when the change is complete.
    #[must_use]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Device>> {
        match self.shared.device.try_lock() {
            Ok(device) => Some(device),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns a descriptor that becomes readable when a driver kicks or the device has changed. If
    /// a driver does not kick, it also becomes readable 250 µs after [`Port::clear_events`]. The
    /// caller must call [`Port::clear_events`] after each wake-up.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.shared.kicks.as_fd()
    }

    /// Clears the events that have woken the data path, so that the next one wakes it again.
    pub fn clear_events(&self) {
        self.shared.kicks.clear_events();
    }

    /// Returns the process id of the front end that is connected; `None` if none is, or while the
    /// device is changed.
    #[must_use]
    pub fn peer_pid(&self) -> Option<i32> {
        let device = self.try_lock()?;
        Some(peer_credentials(device.connection()?).ok()?.pid)
    }

    /// Returns the counters since the port was created.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |at: usize| self.shared.counts[at].load(Ordering::Relaxed);
        Counts {
            connections: count(CONNECTIONS),
            refused: count(REFUSED),
            faults: count(FAULTS),
            is_connected: count(IS_CONNECTED),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.stop.signal();
        // The thread may wait for the rest of a message, or for room for an answer. Closing the
        // connection ends either wait.
        let device = self.shared.device.lock();
        let device = device.unwrap_or_else(PoisonError::into_inner);
        device.disconnect();
        drop(device);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens on a path. Replaces the socket file of a process that has ended.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let text = format!(
                "{}: the file exists and is not a socket; remove it or choose \
                another path",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let deadline = Instant::now() + carina_sys::SUCCESSION;
        while UnixStream::connect(path).is_ok() {
            if Instant::now() < deadline {
                // The other process may be about to end.
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            let text = format!("{}: another process listens there", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        fs::remove_file(path).map_err(at)?;
    }
    let listener = UnixListener::bind(path).map_err(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Control {
    shared: Arc<Shared>,
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl Control {
    fn run(self) {
        while let Some(socket) = self.next_connection() {
            let was_cut = self.serve(socket);
            // The pause bounds the cost of a front end that reconnects at once and breaks the rules
            // again.
            let pause = if was_cut { CUT_PAUSE } else { SHORT_PAUSE };
            if self.stopped_within(pause) {
                return;
            }
        }
    }

    fn stopped_within(&self, time: Duration) -> bool {
        let time = u64::try_from(time.as_nanos()).ok();
        self.shared.stop.wait(time).unwrap_or(true)
    }

    fn next_connection(&self) -> Option<UnixStream> {
        loop {
            if let Some(listener) = &self.listener {
                if !self.readable(listener.as_fd())? {
                    return None;
                }
                // It is no error if the connection has already ended.
                if let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(false).ok()?;
                    return Some(socket);
                }
            } else if let Ok(socket) = UnixStream::connect(&self.path) {
                return Some(socket);
            }
            let pause = match self.listener {
                Some(_) => SHORT_PAUSE,
                None => CONNECT_PAUSE,
            };
            if self.stopped_within(pause) {
                return None;
            }
        }
    }

    /// Waits until `fd` is readable or the port ends. Returns false if the port ends, `None` if the
    /// wait fails.
    fn readable(&self, fd: BorrowedFd<'_>) -> Option<bool> {
        let mut both = [
            PollFd::new(&fd, PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN),
        ];
        loop {
            match poll(&mut both, None::<&Timespec>) {
                Ok(_) => return Some(both[1].revents().is_empty()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Handles the messages of one front end until it disconnects. Returns true if it was
    /// disconnected for a violation.
    fn serve(&self, socket: UnixStream) -> bool {
        let path = self.path.display();
        let connection = socket.try_clone().and_then(|other| {
            let connection = Connection::new(socket, Arc::clone(&self.shared))?;
            self.device().connected(other);
            Ok(connection)
        });
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(socket = %path, %error, "the connection of a front end could not \
                    be set up");
                return true;
            }
        };
        self.count(CONNECTIONS);
        self.shared.counts[IS_CONNECTED].store(1, Ordering::Relaxed);
        tracing::info!(socket = %path, "front end connected");
        let mut was_cut = false;
        while self.readable(connection.as_fd()) == Some(true) {
            match connection.handle() {
                Outcome::Handled => self.check_memory(),
                Outcome::Closed => break,
                Outcome::Refused(error) => {
                    was_cut = true;
                    self.count(REFUSED);
                    tracing::warn!(socket = %path, %error, "front end disconnected, because it \
                        broke the protocol");
                    break;
                }
            }
        }
        let mut device = self.device();
        if let Some(fault) = device.take_fault() {
            was_cut = true;
            self.count(FAULTS);
            tracing::warn!(socket = %path, %fault, "front end disconnected, because its guest \
                broke a ring");
        }
        device.disconnect();
        device.reset();
        drop(device);
        self.shared.counts[IS_CONNECTED].store(0, Ordering::Relaxed);
        self.shared.changed.signal();
        tracing::info!(socket = %path, "front end disconnected");
        was_cut
    }

    /// Disconnects the front end if a page of its memory was lost while its rings were set up.
    fn check_memory(&self) {
        let mut device = self.device();
        if device.is_memory_lost() {
            device.cut_off(Fault::MemoryLost);
        }
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        let lock = self.shared.device.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, at: usize) {
        self.shared.counts[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl Device {
    fn disconnect(&self) {
        if let Some(connection) = self.connection() {
            // The connection may have ended already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Interval between checks whether another process still listens on the socket's path.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Pause after a connection that ended with a violation.
const CUT_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a connection that ended without a violation.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// Pause between attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
