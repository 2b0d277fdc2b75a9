//! The host's end of one VM over virtqueues: the vhost-user back end, and the watch over QEMU.
//!
//! QEMU listens on `NAME.qemu` and the port connects. It connects again whenever the connection has
//! ended: after a restart of the node, or when a new QEMU has replaced one that ended. Without a
//! VM, the port listens, and the node of another process or container of this host connects.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carina_vhost_user::{Port, PortConfig, Role};

use super::{OFFER, back_end};
use crate::ll::VmpiImpl;
use crate::ll::layout::Layout;
use crate::ll::qemu::{Form, Process, State, StateFile, check_file_name, remove_file};
use crate::ll::watch::Watch;

/// The host's end of VMPI with one VM, over virtqueues. Without a VM: over a socket to the node of
/// another process or container. [`crate::ll::HostPort`] says
/// which methods a thread must call, and when.
#[derive(Debug)]
pub struct HostPort {
    port: Arc<Port>,
    layout: Layout,
    socket: PathBuf,
    role: Role,
    state_file: StateFile,
    qemu: Watch,
}

impl HostPort {
    /// Opens the port of the VM `name` in `dir`, a directory that must be accessible to this user
    /// only. Each pipe has a quarter of `region_bytes`, like a ring of a region. With `listens_at`
    /// there is no VM: the port listens on that socket for the front end of another process.
    ///
    /// # Errors
    /// `InvalidInput` if name or size are not allowed; errors of the system.
    pub fn open(
        dir: &Path,
        name: &str,
        region_bytes: usize,
        listens_at: Option<&Path>,
    ) -> io::Result<HostPort> {
        check_file_name(name)?;
        let layout = Layout::new(region_bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (socket, role) = match listens_at {
            Some(socket) => (socket.to_owned(), Role::Server),
            None => (dir.join(format!("{name}.qemu")), Role::Client),
        };
        let config = PortConfig {
            path: socket.clone(),
            role,
            offer: OFFER,
        };
        let state_file = StateFile::new(dir.join(format!("{name}.state")));
        let mut port = HostPort {
            port: Arc::new(Port::new(&config)?),
            layout,
            socket,
            role,
            state_file,
            qemu: Watch::new()?,
        };
        match port.state_file.read() {
            Some(state) if state.form == Form::Virtqueue => port.watch(state.qemu),
            _ => port.state_file.remove(),
        }
        Ok(port)
    }

    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses memory.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        back_end(Arc::clone(&self.port), self.layout.capacity())
    }

    /// Handles the event that the QEMU process has ended.
    pub fn on_readable(&mut self) {
        if self.qemu.on_readable() {
            self.state_file.remove();
        }
    }

    /// Checks whether a QEMU is connected. The control thread calls it about every 100 ms.
    pub fn on_tick(&mut self, _now_ns: u64) {
        if self.qemu.pid().is_some() {
            if self.qemu.on_tick() {
                self.state_file.remove();
            }
            return;
        }
        let Some(qemu) = self.port.peer_pid().and_then(Process::running) else {
            return;
        };
        let state = State {
            qemu,
            next_peer_id: 0,
            form: Form::Virtqueue,
        };
        // If the write fails, the next node does not know of the VM. It creates the port again, and
        // the VM stays attached.
        let _ = self.state_file.write(&state);
        self.watch(qemu);
    }

    /// Returns the process id of the QEMU that is connected, or was connected and still runs;
    /// `None` if none does.
    pub fn qemu_pid(&self) -> Option<i32> {
        self.qemu.pid()
    }

    /// Returns four times the size of a pipe, in bytes.
    pub fn region_bytes(&self) -> usize {
        self.layout.region_bytes()
    }

    /// Returns the path of the socket on which QEMU listens, or this end.
    pub fn qemu_socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the path of the socket on which this end listens; `None` if QEMU listens.
    pub fn listen_socket(&self) -> Option<&Path> {
        (self.role == Role::Server).then_some(&*self.socket)
    }

    /// Removes the state and the sockets of the port, for a VM that is not to attach again.
    pub fn destroy(self) {
        self.state_file.remove();
        remove_file(&self.socket);
    }

    fn watch(&mut self, qemu: Process) {
        if !self.qemu.begin(qemu) {
            self.state_file.remove();
        }
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.qemu.as_fd()
    }
}
