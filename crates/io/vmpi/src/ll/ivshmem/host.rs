//! The host's end of one VM over ivshmem: the region, the ivshmem server, and the watch over QEMU.
//!
//! QEMU can attach in two ways:
//!
//! - QEMU listens on `NAME.qemu` and the node connects. A restarted node connects again and gives
//!   QEMU new doorbells for both directions. The doorbell toward the guest becomes the device's
//!   next interrupt vector, and the guest's node changes to that vector.
//! - QEMU connects to `NAME.ivshmem`. QEMU cannot connect a second time, so after a restart of the
//!   node both sides poll until the VM restarts.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use carina_sys::{Epoll, EventFd, Interest, Memory, Ready, peer_credentials};

use super::server::{HOST_ID_FIRST, send_new_host, send_welcome};
use crate::hl::Side;
use crate::ll::device::{Device, Doorbells};
use crate::ll::layout::Layout;
use crate::ll::qemu::{Form, Process, State, StateFile, check_file_name, remove_file};
use crate::ll::station::{FLAG_TAKES_DOORBELL, Half};
use crate::ll::{HEARTBEAT_NS, VmpiImpl};

/// The host's end of one VM over ivshmem. [`crate::ll::HostPort`] says how a thread drives it.
///
/// Dropping the port leaves region and state for the next node; [`HostPort::destroy`] removes them.
#[derive(Debug)]
pub struct HostPort {
    paths: Paths,
    layout: Layout,
    memory: Memory,
    shared: Arc<Shared>,
    epoll: Epoll,
    listener: UnixListener,
    client: Option<UnixStream>,
    state_file: StateFile,
    state: Option<State>,
    pidfd: Option<OwnedFd>,
    tick_ns: u64,
    refused: u64,
}

/// Time between two attempts to connect to QEMU.
const CONNECT_NS: u64 = 100_000_000;

const LISTENER: u64 = 0;
const CLIENT: u64 = 1;
const PIDFD: u64 = 2;

impl HostPort {
    /// Opens the port of the VM `name` in `dir`. The directory must be on a tmpfs and accessible to
    /// this user only. If the QEMU of an existing region still runs, the port adopts that region
    /// with the size that it has; otherwise it creates a new region of `region_bytes`.
    ///
    /// # Errors
    /// `InvalidInput` if name or size are not allowed; errors of the file system.
    pub fn open(dir: &Path, name: &str, region_bytes: usize) -> io::Result<HostPort> {
        check_file_name(name)?;
        let paths = Paths::new(dir, name);
        let asked = layout_of(region_bytes)?;
        let state_file = StateFile::new(paths.state.clone());
        let state = state_file
            .read()
            .filter(|state| !matches!(state.form, Form::Virtqueue | Form::Vsock))
            .filter(|state| state.qemu.is_running());
        let kept = state.and_then(|state| Some((state, paths.existing_region()?)));
        let (state, layout) = match kept {
            Some((state, layout)) => (Some(state), layout),
            None => {
                state_file.remove();
                remove_file(&paths.region);
                (None, asked)
            }
        };
        let memory = Memory::file(&paths.region, layout.region_bytes())?;
        remove_file(&paths.listen);
        let listener = UnixListener::bind(&paths.listen).map_err(|e| at(&paths.listen, &e))?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::Read)?;
        let mut port = HostPort {
            paths,
            layout,
            memory,
            shared: Arc::new(Shared::new()?),
            epoll,
            listener,
            client: None,
            state_file,
            state,
            pidfd: None,
            tick_ns: 0,
            refused: 0,
        };
        if let Some(state) = state {
            port.watch(state.qemu);
        }
        Ok(port)
    }

    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses to map the region.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let doorbells = HostBells {
            shared: Arc::clone(&self.shared),
            guest_listens: false,
            next_trial_ns: 0,
        };
        Ok(Box::new(Device::open(
            Side::Host,
            self.memory.as_fd(),
            self.layout,
            doorbells,
        )?))
    }

    /// Handles events on the port's sockets. It never blocks and never fails: a QEMU that
    /// misbehaves loses only its own connection.
    pub fn on_readable(&mut self) {
        let mut ready: Vec<Ready> = Vec::new();
        if self.epoll.wait(&mut ready, Some(0)).is_err() {
            return;
        }
        for event in ready {
            match event.token {
                LISTENER => self.accept(),
                CLIENT => self.read_client(),
                _ => self.detach(),
            }
        }
    }

    /// Connects to QEMU's socket if QEMU listens; tries at most every 100 ms.
    pub fn on_tick(&mut self, now_ns: u64) {
        if self.client.is_some() || now_ns < self.tick_ns {
            return;
        }
        self.tick_ns = now_ns + CONNECT_NS;
        let is_over = self.state.is_some_and(|state| !state.qemu.is_running());
        if self.pidfd.is_none() && is_over {
            self.detach();
        }
        if let Some(socket) = connect(&self.paths.qemu) {
            self.meet(socket, Form::QemuListens);
        }
    }

    /// Returns the process id of the QEMU that uses the region; `None` if none does.
    pub fn qemu_pid(&self) -> Option<i32> {
        self.state.map(|state| state.qemu.pid)
    }

    /// Returns the size of the shared region in bytes.
    pub fn region_bytes(&self) -> usize {
        self.layout.region_bytes()
    }

    /// Returns the path of the socket on which QEMU may listen (`-chardev
    /// socket,server=on,wait=on`). Prefer it to [`HostPort::listen_socket`].
    pub fn qemu_socket(&self) -> &Path {
        &self.paths.qemu
    }

    /// Returns the path of the socket to which QEMU may connect.
    pub fn listen_socket(&self) -> &Path {
        &self.paths.listen
    }

    /// Returns the number of connections that the port refused or closed because the other end did
    /// not behave like QEMU.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Removes the region, the state and the sockets, for a VM that is not to attach again.
    pub fn destroy(self) {
        self.shared.set_detached();
        for path in [&self.paths.region, &self.paths.listen, &self.paths.qemu] {
            remove_file(path);
        }
        self.state_file.remove();
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let is_taken = self.client.is_some() || self.state.is_some_and(|s| s.qemu.is_running());
            if is_taken || socket.set_nonblocking(true).is_err() {
                // QEMU sees the closed socket and reports that there is no server.
                self.refused += 1;
                continue;
            }
            self.meet(socket, Form::QemuConnected);
        }
    }

    /// Serves a new connection. If that fails, the port drops the connection.
    fn meet(&mut self, socket: UnixStream, form: Form) {
        let Some(qemu) = peer_credentials(&socket)
            .ok()
            .and_then(|c| Process::running(c.pid))
        else {
            self.refused += 1;
            return;
        };
        let known = self
            .state
            .filter(|state| state.qemu == qemu && form == Form::QemuListens);
        let host_id = known.map_or(HOST_ID_FIRST, |state| state.next_peer_id);
        let Some(next_peer_id) = host_id.checked_add(1) else {
            self.refused += 1;
            return;
        };
        // The state is written before the id is sent: if the node dies in between, the id counts as
        // used.
        let state = State {
            qemu,
            next_peer_id,
            form,
        };
        let served = self.state_file.write(&state).and_then(|()| match known {
            Some(_) => send_new_host(
                &socket,
                host_id,
                self.shared.host_doorbell.as_fd(),
                self.shared.guest_doorbell.as_fd(),
            ),
            None => send_welcome(
                &socket,
                self.memory.as_fd(),
                host_id,
                self.shared.host_doorbell.as_fd(),
                self.shared.guest_doorbell.as_fd(),
            ),
        });
        self.state = Some(state);
        if served
            .and_then(|()| self.epoll.add(&socket, CLIENT, Interest::Read))
            .is_err()
        {
            self.refused += 1;
            return;
        }
        self.client = Some(socket);
        self.watch(qemu);
        self.shared
            .host_id
            .store(u32::from(host_id), Ordering::Relaxed);
        // Each earlier host of this QEMU has used one id and one vector.
        self.shared
            .vector
            .store(u32::from(host_id - HOST_ID_FIRST), Ordering::Relaxed);
        self.shared
            .guest_takes_doorbell
            .store(true, Ordering::Relaxed);
        self.shared
            .host_takes_doorbell
            .store(true, Ordering::Relaxed);
    }

    /// Reads from the connection to QEMU. A client of the ivshmem protocol never sends, so anything
    /// that arrives ends the connection.
    fn read_client(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        match client.read(&mut [0; 64]) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Ok(n) if n > 0 => {
                self.refused += 1;
                self.hang_up();
            }
            _ => self.hang_up(),
        }
    }

    fn hang_up(&mut self) {
        if let Some(client) = self.client.take() {
            let _ = self.epoll.del(&client);
        }
        if self.state.is_some_and(|state| !state.qemu.is_running()) {
            self.detach();
        }
    }

    /// Records that QEMU has ended.
    fn detach(&mut self) {
        if let Some(client) = self.client.take() {
            let _ = self.epoll.del(&client);
        }
        if let Some(pidfd) = self.pidfd.take() {
            let _ = self.epoll.del(&pidfd);
        }
        self.state = None;
        self.state_file.remove();
        self.shared.set_detached();
    }

    /// Watches the process by its pidfd, so that its end is noticed even if no socket reports it.
    fn watch(&mut self, qemu: Process) {
        self.shared.qemu.store(qemu.pid, Ordering::Relaxed);
        self.shared.is_attached.store(true, Ordering::Relaxed);
        if let Some(old) = self.pidfd.take() {
            let _ = self.epoll.del(&old);
        }
        let Some(pidfd) = qemu.pidfd() else {
            // The kernel is too old, or the process has just ended. The socket then reports the
            // end.
            return;
        };
        if !qemu.is_running() {
            self.detach();
        } else if self.epoll.add(&pidfd, PIDFD, Interest::Read).is_ok() {
            self.pidfd = Some(pidfd);
        }
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for HostPort {
    fn drop(&mut self) {
        remove_file(&self.paths.listen);
    }
}

#[derive(Debug)]
struct Paths {
    region: PathBuf,
    state: PathBuf,
    listen: PathBuf,
    qemu: PathBuf,
}

impl Paths {
    fn new(dir: &Path, name: &str) -> Paths {
        let path = |extension| dir.join(format!("{name}.{extension}"));
        Paths {
            region: path("region"),
            state: path("state"),
            listen: path("ivshmem"),
            qemu: path("qemu"),
        }
    }

    fn existing_region(&self) -> Option<Layout> {
        let metadata = std::fs::symlink_metadata(&self.region).ok()?;
        let bytes = usize::try_from(metadata.len())
            .ok()
            .filter(|_| metadata.is_file())?;
        Layout::new(bytes).ok()
    }
}

/// State that the control thread and the data plane share.
#[derive(Debug)]
struct Shared {
    host_doorbell: EventFd,
    guest_doorbell: EventFd,
    host_id: AtomicU32,
    vector: AtomicU32,
    is_attached: AtomicBool,
    /// Process id of the QEMU that was attached last; 0 before the first.
    qemu: AtomicI32,
    host_takes_doorbell: AtomicBool,
    guest_takes_doorbell: AtomicBool,
}

impl Shared {
    fn new() -> io::Result<Shared> {
        Ok(Shared {
            host_doorbell: EventFd::new()?,
            guest_doorbell: EventFd::new()?,
            host_id: AtomicU32::new(0),
            vector: AtomicU32::new(0),
            is_attached: AtomicBool::new(false),
            qemu: AtomicI32::new(0),
            host_takes_doorbell: AtomicBool::new(false),
            guest_takes_doorbell: AtomicBool::new(false),
        })
    }

    fn set_detached(&self) {
        for flag in [
            &self.is_attached,
            &self.host_takes_doorbell,
            &self.guest_takes_doorbell,
        ] {
            flag.store(false, Ordering::Relaxed);
        }
        // Wakes a sleeping data plane, so that it notices at once.
        self.host_doorbell.signal();
    }
}

struct HostBells {
    shared: Arc<Shared>,
    /// The guest has shown that it received a ring at this host's vector.
    guest_listens: bool,
    next_trial_ns: u64,
}

impl Doorbells for HostBells {
    fn ring(&self, _peer_doorbell: u32) {
        self.shared.guest_doorbell.signal();
    }

    fn can_ring(&self) -> bool {
        self.guest_listens
    }

    /// Returns the vector at which this host rings. While a guest that takes doorbells has not
    /// shown that vector yet, the host also rings on trial with each heartbeat.
    fn tune(&mut self, now_ns: u64, peer: &Half) -> u32 {
        let vector = self.shared.vector.load(Ordering::Relaxed);
        let has_doorbell = self.shared.guest_takes_doorbell.load(Ordering::Relaxed);
        self.guest_listens = has_doorbell && peer.vector == vector;
        let is_deaf = has_doorbell && !self.guest_listens && peer.flags & FLAG_TAKES_DOORBELL != 0;
        if is_deaf && now_ns >= self.next_trial_ns {
            self.next_trial_ns = now_ns + HEARTBEAT_NS;
            self.shared.guest_doorbell.signal();
        }
        vector
    }

    fn own(&self) -> Option<&EventFd> {
        Some(&self.shared.host_doorbell)
    }

    fn can_be_rung(&self) -> bool {
        self.shared.host_takes_doorbell.load(Ordering::Relaxed)
    }

    fn doorbell(&self) -> u32 {
        self.shared.host_id.load(Ordering::Relaxed)
    }

    fn is_attached(&self) -> bool {
        self.shared.is_attached.load(Ordering::Relaxed)
    }

    fn vm(&self) -> Option<i32> {
        Some(self.shared.qemu.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }
}

fn connect(path: &Path) -> Option<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let address = SocketAddrUnix::new(path).ok()?;
    // The socket is non-blocking from the start: a listener with a full queue must not block the
    // control thread.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket.into())
}

fn layout_of(region_bytes: usize) -> io::Result<Layout> {
    Layout::new(region_bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
