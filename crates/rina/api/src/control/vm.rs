//! VM ports: what a node offers to a VM, and how the VM uses it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::LinkState;
use crate::{AppName, DifName, LocalName};

/// The mechanism that carries the VMPI between a VM and its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmpiKind {
    /// Memory that VM and host both map: QEMU's device `ivshmem-doorbell` (default).
    #[default]
    Ivshmem,
    /// Memory that VM and host both map, without wake-ups, so that both poll: QEMU's device
    /// `ivshmem-plain`, or `--ivshmem` of Cloud Hypervisor.
    #[serde(rename = "ivshmem-plain")]
    IvshmemPlain,
    /// The virtqueues of QEMU's device `virtio-net-pci`, which the node in the VM drives.
    Virtqueue,
    /// A stream of AF_VSOCK in the VM, which its vsock device carries to a Unix socket of the host.
    Vsock,
    /// Memory that the node in a domain of Xen grants to the domain of the host's node. The domain
    /// has the name of the VM.
    Xen,
}

/// Body of `POST /v1/vms`, and a table `[[vm]]` of the configuration: a VM port to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmCreate {
    /// Name of the VM, and of the `hv` IPCP that serves it.
    pub name: LocalName,
    /// Size of the memory region that VM and host share, in bytes: a power of two from 64 KiB to 1
    /// GiB. Default: 16 MiB. With `vmpi = "xen"` 2 MiB, which cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_bytes: Option<u64>,
    /// Name of the DIF between host and VM. Default: `hv.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The mechanism that carries the VMPI. Default: ivshmem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmpi: Option<VmpiKind>,
    /// With `vmpi = "virtqueue"` and no VM: path of a socket on which this node listens for a node
    /// in another process or container of this host. With `vmpi = "vsock"` and a VM of Firecracker
    /// or Cloud Hypervisor: the path of its vsock device; the node listens on `PATH_1110`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// What programs in the VM reach in the network of the host, through an HTTP proxy under the
    /// name `internet.NAME`: rules such as `www.example.com:80` or `*`. Default: nothing, no proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub internet: Vec<String>,
    /// Addresses that the VM has without a network card, such as `10.9.1.2/24`: the node has an
    /// interface for the VM, over which the VM reaches this host. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip: Vec<String>,
    /// Whether packets of the VM leave this host with an address of this host (NAT). Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nat: bool,
}

/// The IP link between this host and a VM, in [`VmInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmIp {
    /// Addresses of the VM, each with the length of its link's prefix, as the VM port's `ip` gives
    /// them.
    pub addresses: Vec<String>,
    /// Addresses of this host on the link.
    pub host: Vec<String>,
    /// Name of the interface on this host.
    pub tun: String,
    /// Whether packets of the VM leave this host with an address of this host.
    pub nat: bool,
    /// Why the node could not make the interface at the last attempt; `None` while the interface
    /// exists, and before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What the programs of a VM have reached in the network of the host, in [`VmInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmInternet {
    /// Name of the proxy in the DIF of the VM.
    pub name: AppName,
    /// The hosts and ports that programs in the VM may reach, as the VM port's `internet` gives
    /// them.
    pub rules: Vec<String>,
    /// Number of connections to servers that the proxy has made.
    pub connected: u64,
    /// Requests refused because their destination is outside the rules.
    pub outside_rules: u64,
    /// Requests refused because they are not valid for a proxy.
    pub malformed: u64,
    /// Requests refused because there were too many at a time.
    pub over_limit: u64,
    /// Requests whose server is unknown, refuses or does not answer.
    pub unreachable: u64,
}

/// An entry of `GET /v1/vms`: one VM port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmInfo {
    /// Name of the VM and of its IPCP.
    pub name: LocalName,
    /// Name of the DIF between host and VM.
    pub dif: DifName,
    /// The mechanism that carries the VMPI between the VM and its host.
    #[serde(default)]
    pub vmpi: VmpiKind,
    /// Size of the memory region that VM and host share, in bytes.
    pub region_bytes: u64,
    /// The socket on which QEMU listens, given as `-chardev socket,path=..,server=on,wait=on`. The
    /// node connects to it, also after a restart of the node. Prefer it to `listen_socket`. With
    /// ivshmem-plain: the file that the VM maps.
    pub qemu_socket: PathBuf,
    /// The socket on which the node listens. With ivshmem, a QEMU may connect to it; with
    /// virtqueues, a node in another process or container of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_socket: Option<PathBuf>,
    /// Process id of the QEMU that is attached to the VM port; `None` if none is.
    #[serde(default)]
    pub qemu_pid: Option<u32>,
    /// State of the VMPI link to the node in the VM.
    pub state: LinkState,
    /// What the programs of the VM have reached, if `internet` was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internet: Option<VmInternet>,
    /// The IP link to the VM, if `ip` was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<VmIp>,
    /// Number of the VMPI device, unique on this system.
    pub vmpi_id: u16,
    /// Arguments to add to a QEMU command line, with which QEMU listens on `qemu_socket`.
    pub qemu_args: Vec<String>,
}
