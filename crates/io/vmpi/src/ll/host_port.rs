//! The host's end of one VM, whatever carries its records.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::{VmpiImpl, ivshmem, virtqueue};

/// The host's end of one VM, driven by one control thread: watch the descriptor of [`AsFd`], call
/// [`HostPort::on_readable`] when it is readable and [`HostPort::on_tick`] about every 100 ms.
///
/// Dropping it leaves what the next node needs; [`HostPort::destroy`] removes it.
#[derive(Debug)]
pub enum HostPort {
    /// A region behind QEMU's ivshmem-doorbell.
    Ivshmem(ivshmem::HostPort),
    /// The virtqueues of QEMU's virtio-net-pci.
    Virtqueue(virtqueue::HostPort),
}

/// Does the same with either.
macro_rules! either {
    ($port:expr, $inner:ident => $what:expr) => {
        match $port {
            HostPort::Ivshmem($inner) => $what,
            HostPort::Virtqueue($inner) => $what,
        }
    };
}

impl HostPort {
    /// The data plane's end. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel's refusal of memory.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        either!(self, port => port.device())
    }

    /// Handles what happened on the sockets. Never blocks and never fails: what a QEMU does wrong
    /// costs its own connection.
    pub fn on_readable(&mut self) {
        either!(self, port => port.on_readable());
    }

    /// Looks for a QEMU that listens.
    pub fn on_tick(&mut self, now_ns: u64) {
        either!(self, port => port.on_tick(now_ns));
    }

    /// The pid of the QEMU that is attached, if there is one.
    pub fn qemu_pid(&self) -> Option<i32> {
        either!(self, port => port.qemu_pid())
    }

    /// Bytes of the region, or of memory of that size.
    pub fn region_bytes(&self) -> usize {
        either!(self, port => port.region_bytes())
    }

    /// The socket on which a QEMU may listen.
    pub fn qemu_socket(&self) -> &Path {
        either!(self, port => port.qemu_socket())
    }

    /// The socket on which this end listens, where there is one.
    pub fn listen_socket(&self) -> Option<&Path> {
        match self {
            HostPort::Ivshmem(port) => Some(port.listen_socket()),
            HostPort::Virtqueue(port) => port.listen_socket(),
        }
    }

    /// Removes all that it made: the VM is not to come back.
    pub fn destroy(self) {
        either!(self, port => port.destroy());
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, port => port.as_fd())
    }
}
