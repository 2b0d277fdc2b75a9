//! The host's end of the VMPI of one VM, over ivshmem, ivshmem-plain, virtqueues or grants of Xen.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::{VmpiImpl, ivshmem, virtqueue, vsock, xen};

/// The host's end of the VMPI of one VM. One control thread drives it: the thread watches the
/// descriptor of [`AsFd`], calls [`HostPort::on_readable`] when it is readable, and
/// [`HostPort::on_tick`] about every 100 ms.
///
/// Dropping the port leaves the state that the next node needs to continue; [`HostPort::destroy`]
/// removes it.
#[derive(Debug)]
pub enum HostPort {
    /// A region behind QEMU's ivshmem-doorbell device.
    Ivshmem(ivshmem::HostPort),
    /// A region behind QEMU's ivshmem-plain device, or `--ivshmem` of Cloud Hypervisor.
    IvshmemPlain(ivshmem::PlainPort),
    /// The virtqueues of QEMU's virtio-net-pci device.
    Virtqueue(virtqueue::HostPort),
    /// A stream through the VM's vsock device.
    Vsock(vsock::HostPort),
    /// Memory that a domain of Xen grants.
    Xen(xen::HostPort),
}

/// Evaluates the same expression for the port of either kind.
macro_rules! either {
    ($port:expr, $inner:ident => $what:expr) => {
        match $port {
            HostPort::Ivshmem($inner) => $what,
            HostPort::IvshmemPlain($inner) => $what,
            HostPort::Virtqueue($inner) => $what,
            HostPort::Vsock($inner) => $what,
            HostPort::Xen($inner) => $what,
        }
    };
}

impl HostPort {
    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses memory.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        either!(self, port => port.device())
    }

    /// Handles events on the port's sockets. It never blocks and never fails: a QEMU that
    /// misbehaves loses only its own connection.
    pub fn on_readable(&mut self) {
        either!(self, port => port.on_readable());
    }

    /// Checks whether a QEMU has started to listen or has connected. The control thread calls it
    /// about every 100 ms.
    pub fn on_tick(&mut self, now_ns: u64) {
        either!(self, port => port.on_tick(now_ns));
    }

    /// Whether the VM runs, as far as this port can see.
    pub fn is_in_use(&self) -> bool {
        match self {
            HostPort::Xen(port) => port.domain().is_some(),
            _ => self.qemu_pid().is_some(),
        }
    }

    /// Returns the process id of the QEMU that is attached; `None` if none is.
    pub fn qemu_pid(&self) -> Option<i32> {
        either!(self, port => port.qemu_pid())
    }

    /// Returns the size of the shared region in bytes; for virtqueues, the size of a region with
    /// rings as large as the pipes.
    pub fn region_bytes(&self) -> usize {
        either!(self, port => port.region_bytes())
    }

    /// Returns the path of the socket on which QEMU may listen for the node; for ivshmem-plain, the
    /// file that the VM maps; for Xen, the device that maps grants.
    pub fn qemu_socket(&self) -> &Path {
        match self {
            HostPort::Ivshmem(port) => port.qemu_socket(),
            HostPort::IvshmemPlain(port) => port.region(),
            HostPort::Virtqueue(port) => port.qemu_socket(),
            HostPort::Vsock(port) => port.qemu_socket(),
            HostPort::Xen(port) => port.qemu_socket(),
        }
    }

    /// Returns the path of the socket on which this end listens; `None` if it does not listen.
    pub fn listen_socket(&self) -> Option<&Path> {
        match self {
            HostPort::Ivshmem(port) => Some(port.listen_socket()),
            HostPort::IvshmemPlain(_) => None,
            HostPort::Virtqueue(port) => port.listen_socket(),
            HostPort::Vsock(port) => Some(port.listen_socket()),
            HostPort::Xen(_) => None,
        }
    }

    /// Removes the port's files and sockets, for a VM that is not to attach again.
    pub fn destroy(self) {
        either!(self, port => port.destroy());
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, port => port.as_fd())
    }
}
