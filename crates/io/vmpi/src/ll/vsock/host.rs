//! The host's end of one VM over a stream: the Unix socket to which the VM's device connects.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::{fs, time};

use carina_sys::Epoll;

use super::connector::{Connector, PORT_DEFAULT};
use super::device::StreamDevice;
use crate::hl::Side;
use crate::ll::VmpiImpl;
use crate::ll::qemu::{Form, Process, State, StateFile, check_file_name, remove_file};

/// The host's end of one VM over a stream. [`crate::ll::HostPort`] says how a thread drives it.
#[derive(Debug)]
pub struct HostPort {
    listener: UnixListener,
    listens_at: PathBuf,
    qemu_socket: PathBuf,
    state_file: StateFile,
    state: Option<State>,
    /// Process id at the other end of the connection that the data plane took last.
    peer: Arc<AtomicI32>,
    epoll: Epoll,
}

impl HostPort {
    /// Opens the port of the VM `name`. The VM's device connects to `PATH_1110`, where PATH is
    /// `path`, or `NAME.vsock` in `dir`.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not allowed; another process listens on the socket; errors of
    /// the system.
    pub fn open(dir: &Path, name: &str, path: Option<&Path>) -> io::Result<HostPort> {
        check_file_name(name)?;
        let own = dir.join(format!("{name}.vsock"));
        let mut listens_at = path.unwrap_or(&own).as_os_str().to_owned();
        listens_at.push(format!("_{PORT_DEFAULT}"));
        let listens_at = PathBuf::from(listens_at);
        let state_file = StateFile::new(dir.join(format!("{name}.state")));
        let state = state_file.read();
        let state = state.filter(|state| state.form == Form::Vsock && state.qemu.is_running());
        if state.is_none() {
            state_file.remove();
        }
        Ok(HostPort {
            state_file,
            state,
            peer: Arc::default(),
            listener: listen(&listens_at)?,
            listens_at,
            qemu_socket: dir.join(format!("{name}.qemu")),
            epoll: Epoll::new()?,
        })
    }

    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses memory.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let connector = Connector::Host {
            listener: self.listener.try_clone()?,
            peer: Arc::clone(&self.peer),
        };
        Ok(Box::new(StreamDevice::new(Side::Host, connector)?))
    }

    /// Does nothing: the data plane serves the socket itself.
    pub fn on_readable(&mut self) {}

    /// Checks whether the VM's device is still there. The control thread calls it about every
    /// 100 ms.
    pub fn on_tick(&mut self, _now_ns: u64) {
        if self.state.is_some_and(|state| !state.qemu.is_running()) {
            self.state = None;
            self.state_file.remove();
        }
        let pid = self.peer.load(Ordering::Relaxed);
        let is_known = self.state.is_some_and(|state| state.qemu.pid == pid);
        if pid == 0 || is_known {
            return;
        }
        let Some(qemu) = Process::running(pid) else {
            return;
        };
        let state = State {
            qemu,
            next_peer_id: 0,
            form: Form::Vsock,
        };
        // If the write fails, the next node does not know of the VM. It creates the port again, and
        // the VM attaches again.
        let _ = self.state_file.write(&state);
        self.state = Some(state);
    }

    /// Returns the id of the process that serves the VM's vsock device, such as the VMM. `None` if
    /// it has ended or the VM has not attached yet.
    pub fn qemu_pid(&self) -> Option<i32> {
        self.state.map(|state| state.qemu.pid)
    }

    /// Returns 0, because no memory is shared.
    pub fn region_bytes(&self) -> usize {
        0
    }

    /// Returns the path of the socket on which QEMU listens for the process that serves the VM's
    /// vsock device.
    pub fn qemu_socket(&self) -> &Path {
        &self.qemu_socket
    }

    /// Returns the path of the socket on which this end listens.
    pub fn listen_socket(&self) -> &Path {
        &self.listens_at
    }

    /// Removes the sockets of the port, for a VM that is not to attach again.
    pub fn destroy(self) {
        self.state_file.remove();
        remove_file(&self.listens_at);
        remove_file(&self.qemu_socket);
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Listens on a path. Replaces the socket of a process that has ended.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let text = format!("{}: the file exists and is not a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let deadline = time::Instant::now() + carina_sys::SUCCESSION;
        while UnixStream::connect(path).is_ok() {
            if time::Instant::now() >= deadline {
                let text = format!("{}: another process listens there", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            // The other process may be about to end.
            std::thread::sleep(LOOK_AGAIN);
        }
        fs::remove_file(path).map_err(at)?;
    }
    let listener = UnixListener::bind(path).map_err(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Interval between checks whether another process still listens on the socket's path.
const LOOK_AGAIN: time::Duration = time::Duration::from_millis(200);
