//! The port of a VM: its VMPI device and the sockets of its QEMU.

use std::io;
use std::path::Path;

use carina_api::control::{VmCreate, VmpiKind};
use carina_api::qemu::vmpi_args;
use carina_api::{DifName, LocalName};
use carina_vmpi::ll::{HostPort, ivshmem, virtqueue};
use thiserror::Error;

/// What an IPCP has when a VM is behind it.
pub struct VmPort {
    pub port: HostPort,
    pub create: VmCreate,
    /// The process of QEMU, as of the last poll.
    pub qemu: Option<i32>,
}

impl VmPort {
    /// Whether this port is what a configuration asks for.
    pub fn matches_spec(&self, wanted: &VmCreate) -> bool {
        let dif = |create: &VmCreate| create.dif.clone().or_else(|| default_dif(&create.name));
        let region = |create: &VmCreate| region_bytes(create.region_bytes);
        let vmpi = |create: &VmCreate| create.vmpi.unwrap_or_default();
        self.create.name == wanted.name
            && vmpi(&self.create) == vmpi(wanted)
            && self.create.socket == wanted.socket
            && dif(&self.create) == dif(wanted)
            && region(&self.create) == region(wanted)
    }
}

/// Opens the port of a VM in the directory of VMs.
///
/// # Errors
/// As the port of its kind.
pub fn open_port(dir: &Path, create: &VmCreate, region_bytes: usize) -> io::Result<HostPort> {
    let name = create.name.as_str();
    Ok(match create.vmpi.unwrap_or_default() {
        VmpiKind::Ivshmem => HostPort::Ivshmem(ivshmem::HostPort::open(dir, name, region_bytes)?),
        VmpiKind::Virtqueue => {
            let socket = create.socket.as_deref();
            HostPort::Virtqueue(virtqueue::HostPort::open(dir, name, region_bytes, socket)?)
        }
    })
}

/// The arguments with which QEMU listens for the node; none where no VM is to be there.
pub fn qemu_args(vm: &VmPort) -> Vec<String> {
    if vm.create.socket.is_some() {
        return Vec::new();
    }
    let kind = vm.create.vmpi.unwrap_or_default();
    vmpi_args(vm.create.name.as_str(), kind, vm.port.qemu_socket())
}

pub fn default_dif(name: &LocalName) -> Option<DifName> {
    DifName::new(format!("hv.{name}")).ok()
}

/// A socket belongs to another device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("`socket` belongs to `vmpi = \"virtqueue\"`: memory of ivshmem is made by a QEMU")]
pub struct SocketError;

/// Checks that a port with a socket is one over virtqueues.
///
/// # Errors
/// [`SocketError`].
pub fn check_socket(create: &VmCreate) -> Result<(), SocketError> {
    let is_queues = create.vmpi == Some(VmpiKind::Virtqueue);
    if create.socket.is_none() || is_queues {
        Ok(())
    } else {
        Err(SocketError)
    }
}

/// The size that a VMPI region cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "region_bytes is {0}; it must be a power of two from {REGION_BYTES_MIN} to {REGION_BYTES_MAX}"
)]
pub struct RegionBytesError(u64);

/// Checks the size of a VMPI region and gives its default.
///
/// # Errors
/// [`RegionBytesError`].
pub fn region_bytes(bytes: Option<u64>) -> Result<usize, RegionBytesError> {
    let bytes = bytes.unwrap_or(REGION_BYTES_DEFAULT);
    if !bytes.is_power_of_two() || !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
        return Err(RegionBytesError(bytes));
    }
    Ok(bytes as usize)
}

/// Bytes of a VMPI region unless configured.
const REGION_BYTES_DEFAULT: u64 = 16 << 20;
const REGION_BYTES_MIN: u64 = 64 << 10;
const REGION_BYTES_MAX: u64 = 1 << 30;
