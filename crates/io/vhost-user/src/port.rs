//! A socket of vhost-user, and the thread that waits on it.

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

/// Which end makes the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This one; front ends connect, one at a time.
    Server,
    /// The front end; this end connects, and connects again when the connection ends.
    Client,
}

/// Where front ends are met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Path of the socket.
    pub path: PathBuf,
    /// Which end makes it.
    pub role: Role,
    /// What is offered.
    pub offer: Offer,
}

/// A device of vhost-user, with its socket. Ends with this value, and so does the connection.
#[derive(Debug)]
pub struct Port {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The socket file of a server.
    made: Option<PathBuf>,
}

/// What happened at a port since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Front ends that connected.
    pub connections: u64,
    /// Connections that were cut because a message was wrong.
    pub refused: u64,
    /// Connections that were cut because of what a driver wrote into its rings.
    pub faults: u64,
    /// 1 while a front end is connected.
    pub is_connected: u64,
}

const CONNECTIONS: usize = 0;
const REFUSED: usize = 1;
const FAULTS: usize = 2;
const IS_CONNECTED: usize = 3;

impl Port {
    /// Makes the socket, or begins to connect to it, and starts the thread.
    ///
    /// # Errors
    /// The socket cannot be made: another process listens there, the path is too long or is
    /// something else, or the process has too many open files.
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

    /// The device, unless the control thread changes it: then the visit is left out, and the data
    /// path is woken when the change is made.
    #[must_use]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Device>> {
        match self.shared.device.try_lock() {
            Ok(device) => Some(device),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A descriptor that becomes readable when a driver kicks, or the device has changed; if a
    /// driver does not kick, 250 µs after [`Port::silence`] too, which is due after it was.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.shared.kicks.as_fd()
    }

    /// Takes note of kicks, so that the next one wakes again.
    pub fn silence(&self) {
        self.shared.kicks.silence();
    }

    /// The process of the front end that is connected. None also while the device is changed.
    #[must_use]
    pub fn peer_pid(&self) -> Option<i32> {
        let device = self.try_lock()?;
        Some(peer_credentials(device.connection()?).ok()?.pid)
    }

    /// What happened so far.
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
        // A thread that waits for half a message, or for room for an answer, is waiting on a
        // socket that ends here.
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

/// Listens at a path, in place of a process that has gone.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let text = format!("{}: is there and is not a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let deadline = Instant::now() + carina_sys::SUCCESSION;
        while UnixStream::connect(path).is_ok() {
            if Instant::now() < deadline {
                // It may be ending.
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
            // A front end that comes back at once and does the same again costs little.
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
                // One that has gone already is not an error.
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

    /// Waits for a message, or a connection; false when the port ends.
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

    /// Answers one front end until it goes; true when it was cut off.
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
                tracing::warn!(socket = %path, %error, "front end is not served");
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
                    tracing::warn!(socket = %path, %error, "front end is cut off");
                    break;
                }
            }
        }
        let mut device = self.device();
        if let Some(fault) = device.take_fault() {
            was_cut = true;
            self.count(FAULTS);
            tracing::warn!(socket = %path, %fault, "guest is cut off");
        }
        device.disconnect();
        device.reset();
        drop(device);
        self.shared.counts[IS_CONNECTED].store(0, Ordering::Relaxed);
        self.shared.changed.signal();
        tracing::info!(socket = %path, "front end disconnected");
        was_cut
    }

    /// Cuts the front end off if a page of its memory was not to be had while its rings were set
    /// up.
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
            // It may have ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Between a connection that was cut and the next.
/// How often a process is looked for that listens where this one is to.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const CUT_PAUSE: Duration = Duration::from_secs(1);
/// Between other connections.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// Between attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
