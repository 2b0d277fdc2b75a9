//! The port of a VM: its VMPI region and its ivshmem sockets.

use carina_api::control::VmCreate;
use carina_api::{DifName, LocalName};
use carina_vmpi::ll::ivshmem::HostPort;
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
        self.create.name == wanted.name
            && dif(&self.create) == dif(wanted)
            && region(&self.create) == region(wanted)
    }
}

/// The arguments with which QEMU listens for the node.
pub fn qemu_args(vm: &VmPort) -> Vec<String> {
    let id = format!("carina-{}", vm.create.name);
    // A comma in a QEMU argument is written twice.
    let path = vm
        .port
        .qemu_socket()
        .display()
        .to_string()
        .replace(',', ",,");
    vec![
        "-chardev".into(),
        format!("socket,path={path},id={id},server=on,wait=on"),
        "-device".into(),
        format!("ivshmem-doorbell,vectors=32,chardev={id}"),
    ]
}

pub fn default_dif(name: &LocalName) -> Option<DifName> {
    DifName::new(format!("hv.{name}")).ok()
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
