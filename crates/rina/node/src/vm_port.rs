//! The port of a VM: its VMPI device, and the sockets of its QEMU.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use carina_api::control::{VmCreate, VmInternet, VmIp, VmpiKind};
use carina_api::qemu::vmpi_args;
use carina_api::{AppName, DifName, LocalName};
use carina_gateway::Internet;
use carina_ip::{Address, VmLink};
use carina_vmpi::ll::{HostPort, ivshmem, virtqueue, vsock, xen};
use thiserror::Error;

/// State of an hv IPCP that leads to a VM.
pub(crate) struct VmPort {
    pub port: HostPort,
    pub create: VmCreate,
    /// What programs in the VM reach through this host's network (`internet`); `None`: nothing.
    pub internet: Option<Internet>,
    /// The IP link to the VM, if the VM has addresses.
    pub ip: Option<VmLink>,
    /// Process id of the VM's QEMU at the last poll; `None` if it did not run.
    pub qemu: Option<i32>,
}

impl VmPort {
    /// True when this port fits a configuration.
    pub(crate) fn matches_spec(&self, wanted: &VmCreate) -> bool {
        let dif = |create: &VmCreate| create.dif.clone().or_else(|| default_dif(&create.name));
        let vmpi = |create: &VmCreate| create.vmpi.unwrap_or_default();
        self.create.name == wanted.name
            && vmpi(&self.create) == vmpi(wanted)
            && self.create.socket == wanted.socket
            && self.create.internet == wanted.internet
            && (&self.create.ip, self.create.nat) == (&wanted.ip, wanted.nat)
            && dif(&self.create) == dif(wanted)
            && region_bytes(&self.create) == region_bytes(wanted)
    }
}

/// The door of a VM to the network of this host; `None` without rules.
///
/// # Errors
/// A rule is wrong, or the name of the VM is too long for the name of the door.
pub(crate) fn internet_of(create: &VmCreate, dif: &DifName) -> Result<Option<Internet>, String> {
    if create.internet.is_empty() {
        return Ok(None);
    }
    let name = AppName::new(format!("internet.{}", create.name));
    let name = name.map_err(|error| error.to_string())?;
    let door = Internet::new(name, Some(dif.clone()), &create.internet);
    door.map(Some).map_err(|error| error.to_string())
}

/// The IP link to a VM; `None` for a VM without addresses.
///
/// # Errors
/// An address is wrong, or `nat` is set for a VM without addresses.
pub(crate) fn ip_of(create: &VmCreate, dif: &DifName) -> Result<Option<VmLink>, String> {
    if create.ip.is_empty() {
        let wrong = "nat is set, but ip is not: give the VM an address, such as 10.9.1.2/24";
        return if create.nat {
            Err(wrong.to_owned())
        } else {
            Ok(None)
        };
    }
    let addresses = create.ip.iter().map(|text| text.parse::<Address>());
    let addresses = addresses.collect::<Result<Vec<_>, _>>();
    let link = addresses.and_then(|all| VmLink::new(dif.clone(), all, create.nat));
    link.map(Some).map_err(|error| error.to_string())
}

/// The IP link to a VM, for `control.sock`. `error`: why its interface does not exist.
pub(crate) fn ip_info(create: &VmCreate, link: &VmLink, error: Option<String>) -> VmIp {
    let host = link.host_addresses().into_iter();
    VmIp {
        addresses: create.ip.clone(),
        host: host.map(|address| address.to_string()).collect(),
        tun: link.of_host(create.name.as_str()).tun,
        nat: create.nat,
        error,
    }
}

/// What passed through the door of a VM, for `control.sock`.
pub(crate) fn internet_info(create: &VmCreate, door: &Internet) -> VmInternet {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &door.counters;
    VmInternet {
        name: door.name.clone(),
        rules: create.internet.clone(),
        connected: count(&counters.connected),
        outside_rules: count(&counters.outside_rules),
        malformed: count(&counters.malformed),
        over_limit: count(&counters.over_limit),
        unreachable: count(&counters.unreachable),
    }
}

/// Opens the port of a VM; its files are in the directory of VMs.
///
/// # Errors
/// Those of the port's kind.
pub(crate) fn open_port(
    dir: &Path,
    create: &VmCreate,
    region_bytes: usize,
) -> io::Result<HostPort> {
    let name = create.name.as_str();
    Ok(match create.vmpi.unwrap_or_default() {
        VmpiKind::Ivshmem => HostPort::Ivshmem(ivshmem::HostPort::open(dir, name, region_bytes)?),
        VmpiKind::IvshmemPlain => {
            HostPort::IvshmemPlain(ivshmem::PlainPort::open(dir, name, region_bytes)?)
        }
        VmpiKind::Virtqueue => {
            let socket = create.socket.as_deref();
            HostPort::Virtqueue(virtqueue::HostPort::open(dir, name, region_bytes, socket)?)
        }
        VmpiKind::Vsock => {
            let path = create.socket.as_deref();
            HostPort::Vsock(vsock::HostPort::open(dir, name, path)?)
        }
        VmpiKind::Xen => HostPort::Xen(xen::HostPort::open(name, region_bytes)?),
    })
}

/// The arguments for QEMU to connect to this port; empty for a port whose other end is no VM.
pub(crate) fn qemu_args(vm: &VmPort) -> Vec<String> {
    if vm.create.socket.is_some() {
        return Vec::new();
    }
    let kind = vm.create.vmpi.unwrap_or_default();
    vmpi_args(vm.create.name.as_str(), kind, vm.port.qemu_socket())
}

pub(crate) fn default_dif(name: &LocalName) -> Option<DifName> {
    DifName::new(format!("hv.{name}")).ok()
}

/// Error: `socket` is set for a device that has no socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "`socket` belongs to `vmpi = \"virtqueue\"` and `vmpi = \"vsock\"`: with ivshmem, QEMU makes the \
     shared memory"
)]
pub(crate) struct SocketError;

/// Checks that only a port with virtqueues or vsock has a socket.
///
/// # Errors
/// [`SocketError`].
pub(crate) fn check_socket(create: &VmCreate) -> Result<(), SocketError> {
    let may_have = matches!(create.vmpi, Some(VmpiKind::Virtqueue | VmpiKind::Vsock));
    if create.socket.is_none() || may_have {
        Ok(())
    } else {
        Err(SocketError)
    }
}

/// Error: the size is not valid for a VMPI region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "region_bytes is {0}; it must be a power of two from {REGION_BYTES_MIN} to {REGION_BYTES_MAX}"
)]
pub(crate) struct RegionBytesError(u64);

/// Checks the size of a VMPI region. Returns the size that was configured, or the default.
///
/// # Errors
/// [`RegionBytesError`].
pub(crate) fn region_bytes(create: &VmCreate) -> Result<usize, RegionBytesError> {
    let default = match create.vmpi {
        Some(VmpiKind::Xen) => xen::REGION_BYTES as u64,
        _ => REGION_BYTES_DEFAULT,
    };
    let bytes = create.region_bytes.unwrap_or(default);
    if !bytes.is_power_of_two() || !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&bytes) {
        return Err(RegionBytesError(bytes));
    }
    Ok(bytes as usize)
}

/// Default size of a VMPI region in bytes.
const REGION_BYTES_DEFAULT: u64 = 16 << 20;
const REGION_BYTES_MIN: u64 = 64 << 10;
const REGION_BYTES_MAX: u64 = 1 << 30;
