//! The bodies that cross `control.sock`, and a blocking client for it.
//!
//! The paths are listed in `docs/reference/control-api.md`. A refusal is [`ErrorReply`] with a
//! fitting HTTP status.

mod capture;
mod client;
mod dif;
mod medium;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::capture::{CaptureCreate, CaptureEnd, CaptureInfo};
pub use self::client::reply::read_reply;
pub use self::client::{Client, ClientError, Server, escape};
pub use self::dif::{
    Catalogue, Dialect, DifCreate, DifExtend, DifRole, MemberInfo, MemberState, N1Info, N1State,
    ParamInfo, PolicyInForce, PolicyInfo, RibObject, RibWrite, UnknownDialect,
};
pub use self::medium::{ArpDialect, FaultSpec, Framing, PeerAddress};
use crate::ipc::Mode;
use crate::{AppName, DifName, ErrorBody, FlowSpec, IpcpId, LocalName, PortId};

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// What was refused and why.
    pub error: ErrorBody,
}

/// `GET /v1/node`: the node itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The name that this system gives to its peers.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process identifier.
    pub pid: u32,
    /// Time since the node started, in milliseconds.
    pub uptime_ms: u64,
    /// The run directory.
    pub run_dir: PathBuf,
    /// Number of IPCPs.
    pub ipcps: u32,
    /// Number of registrations.
    pub apps: u32,
    /// Number of flows.
    pub flows: u32,
    /// Number of VMs.
    pub vms: u32,
}

/// Types of IPC processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpcpType {
    /// Flows between applications of one system.
    Loopback,
    /// Shim over a hypervisor's shared memory.
    Hv,
    /// Shim over an Ethernet interface or one VLAN of it.
    Eth,
    /// Shim over UDP.
    Udp,
    /// Shim over TCP.
    Tcp,
    /// A member of a normal DIF, over N-1 DIFs; made by `POST /v1/difs`.
    Normal,
}

/// The side of an hv IPCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HvSide {
    /// The system that runs the hypervisor.
    #[default]
    Host,
    /// The system inside the VM.
    Guest,
}

/// `POST /v1/ipcps`, and `[[ipcp]]` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpcpCreate {
    /// Its name in this system.
    pub name: LocalName,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// The DIF it is a member of.
    pub dif: DifName,
    /// Side of an `hv` IPCP; the host side is made by `POST /v1/vms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<HvSide>,
    /// Guest side: PCI address of the device, for example `0000:00:04.0`; absent to take the
    /// lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Guest side without a VM: path of the socket on which the node of the host side listens, in
    /// place of a PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// `eth`: the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `eth`: the port of a graph in place of an interface: its `kind` and keys, as in the file of
    /// a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<serde_json::Map<String, serde_json::Value>>,
    /// `eth` with a port: the station's MAC address; absent for that of the port's interface, or
    /// one made by chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `eth`: the VLAN id, 1 to 4094, which is the name of the DIF unless that is free text; absent
    /// or 0 for frames without tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// `eth`: how names are written in ARP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp: Option<ArpDialect>,
    /// `udp`, `tcp`: the address to listen on, such as `0.0.0.0:3359` or `[::]:3359`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// `udp`, `tcp`: how SDUs are framed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// `udp`, `tcp`: where applications are; others are looked for in `/etc/hosts` and the DNS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerAddress>,
    /// `eth`, `udp`: the longest SDU in bytes, where it is less than what the network carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdu_max: Option<usize>,
    /// `eth`, `udp`, `tcp`: how long a name is asked for, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `eth`, `udp`: impairment of everything sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
}

impl IpcpCreate {
    /// An IPCP with nothing but what every one has.
    #[must_use]
    pub fn new(name: LocalName, kind: IpcpType, dif: DifName) -> Self {
        Self {
            name,
            kind,
            dif,
            side: None,
            pci: None,
            socket: None,
            interface: None,
            port: None,
            mac: None,
            vlan: None,
            arp: None,
            listen: None,
            framing: None,
            peers: Vec::new(),
            sdu_max: None,
            timeout_ms: None,
            fault: None,
        }
    }
}

/// State of an IPCP's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Flows can be allocated.
    Up,
    /// No peer, or none that answers.
    Down,
}

/// `GET /v1/ipcps`: one IPC process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcpInfo {
    /// Its identifier.
    pub id: IpcpId,
    /// Its name in this system.
    pub name: LocalName,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// The DIF it is a member of.
    pub dif: DifName,
    /// Side of an `hv` IPCP.
    #[serde(default)]
    pub side: Option<HvSide>,
    /// State of its link.
    pub state: LinkState,
    /// Why it is down, when a reason is known.
    #[serde(default)]
    pub reason: Option<String>,
    /// The name that the system at the other end gave; over IP the configured peers, and over
    /// Ethernet the interface.
    #[serde(default)]
    pub peer: Option<String>,
    /// The small integer that names the VMPI device in this system.
    #[serde(default)]
    pub vmpi_id: Option<u16>,
    /// The data-plane thread that it runs on, from 0; none for one that moves no SDUs.
    #[serde(default)]
    pub worker: Option<u16>,
    /// The VM behind it.
    #[serde(default)]
    pub vm: Option<LocalName>,
    /// Number of flows over it.
    pub flows: u32,
    /// Names registered at the other end.
    #[serde(default)]
    pub peer_names: Vec<AppName>,
    /// What is known of a member of a normal DIF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberInfo>,
}

/// `GET /v1/apps`: one registration, of this system or of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppInfo {
    /// The name.
    pub name: AppName,
    /// The DIFs in which it is registered.
    pub difs: Vec<DifName>,
    /// The system that has it: `None` for this one, else the IPCP through which it is reached.
    #[serde(default)]
    pub via: Option<LocalName>,
    /// Process of a local application.
    #[serde(default)]
    pub pid: Option<u32>,
    /// User of a local application.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Flow requests that it has not answered.
    #[serde(default)]
    pub pending: u32,
}

/// State of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Waiting for an answer.
    Allocating,
    /// Carrying SDUs.
    Up,
    /// One end is gone; the other may still read what is queued.
    Closing,
}

/// `GET /v1/flows`: one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Its identifier; `DELETE /v1/flows/{port}` takes it.
    pub port: PortId,
    /// Name of the end in this system; of the end that asked when both are.
    pub local: AppName,
    /// Name of the other end.
    pub remote: AppName,
    /// The DIF that carries it.
    pub dif: DifName,
    /// The IPCP that carries it.
    pub ipcp: LocalName,
    /// Its state.
    pub state: FlowState,
    /// What was asked of it.
    pub spec: FlowSpec,
    /// How the local end moves SDUs.
    pub mode: Mode,
    /// Both ends are in this system and share memory; the node is not in the path.
    pub direct: bool,
    /// Process of the local end.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The IPCP of this system whose N-1 flow it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<LocalName>,
}

/// `GET /v1/difs`: one DIF as this system sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifInfo {
    /// Its name.
    pub name: DifName,
    /// The type of its IPCPs.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// What the members of a normal DIF speak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// This system's members.
    pub ipcps: Vec<LocalName>,
    /// Names known to be registered in it, here or at a peer.
    pub names: Vec<AppName>,
}

/// What carries the VMPI between a VM and its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmpiKind {
    /// Memory that both map: QEMU's ivshmem-doorbell.
    #[default]
    Ivshmem,
    /// The virtqueues of QEMU's virtio-net-pci, which the VM's node drives.
    Virtqueue,
}

/// `POST /v1/vms`, and `[[vm]]` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmCreate {
    /// Name of the VM; its IPCP has the same.
    pub name: LocalName,
    /// Bytes of the shared region: a power of two, 64 KiB to 1 GiB; absent for 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_bytes: Option<u64>,
    /// The DIF between host and VM; absent for `hv.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// What carries the VMPI; absent for ivshmem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmpi: Option<VmpiKind>,
    /// Over virtqueues, without a VM: path of a socket on which this node listens for the node of
    /// another process or container of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// `GET /v1/vms`: one VM port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmInfo {
    /// Name of the VM and of its IPCP.
    pub name: LocalName,
    /// The DIF between host and VM.
    pub dif: DifName,
    /// What carries the VMPI.
    #[serde(default)]
    pub vmpi: VmpiKind,
    /// Bytes of the shared region.
    pub region_bytes: u64,
    /// The socket on which a QEMU listens and to which the node connects, again after a restart:
    /// `-chardev socket,path=..,server=on,wait=on`. Preferred.
    pub qemu_socket: PathBuf,
    /// The socket on which the node listens: over ivshmem a QEMU may connect to it, over virtqueues
    /// the node of a process or container that is no VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_socket: Option<PathBuf>,
    /// Process of the attached QEMU.
    #[serde(default)]
    pub qemu_pid: Option<u32>,
    /// State of the link to the node in the VM.
    pub state: LinkState,
    /// The small integer that names the VMPI device in this system.
    pub vmpi_id: u16,
    /// Arguments to add to a QEMU command line; QEMU listens then.
    pub qemu_args: Vec<String>,
}

/// `GET /v1/events?since=N&wait_ms=M`: what happened after event `N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Events in order, oldest first.
    pub events: Vec<Event>,
    /// The `since` of the next call.
    pub next: u64,
    /// Events after `since` that are no longer kept.
    pub lost: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number, counted from 1 at the start of the node.
    pub seq: u64,
    /// Time since the start of the node, in milliseconds.
    pub at_ms: u64,
    /// What happened.
    pub kind: EventKind,
    /// The IPCP, VM, application name or port concerned.
    pub subject: String,
    /// Details for people.
    #[serde(default)]
    pub detail: String,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An IPCP was made.
    IpcpCreated,
    /// An IPCP was destroyed.
    IpcpDestroyed,
    /// A link came up.
    LinkUp,
    /// A link went down.
    LinkDown,
    /// An application registered here.
    AppRegistered,
    /// An application unregistered here or died.
    AppUnregistered,
    /// A name appeared at a peer.
    PeerRegistered,
    /// A name vanished at a peer.
    PeerUnregistered,
    /// A flow was allocated.
    FlowAllocated,
    /// A flow was refused.
    FlowRefused,
    /// A flow ended.
    FlowClosed,
    /// QEMU attached to a VM's socket.
    VmAttached,
    /// QEMU went away.
    VmDetached,
    /// Something works, but not as well as it could; the detail says why.
    Degraded,
    /// A configuration was applied.
    Applied,
    /// An IPCP became a member of its DIF.
    Enrolled,
    /// An attempt to become one failed.
    EnrollFailed,
    /// An IPCP is no member any more.
    LeftDif,
    /// A member is a neighbour now.
    NeighbourUp,
    /// It is not any more.
    NeighbourDown,
    /// Something a person should know.
    Notice,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

/// `POST /v1/apply`: what the configuration changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// IPCPs and VMs made.
    pub created: Vec<LocalName>,
    /// IPCPs and VMs destroyed.
    pub destroyed: Vec<LocalName>,
    /// Members of normal DIFs that have got further N-1 DIFs.
    #[serde(default)]
    pub extended: Vec<LocalName>,
    /// Members of normal DIFs that have lost N-1 DIFs.
    #[serde(default)]
    pub retracted: Vec<LocalName>,
    /// IPCPs and VMs that were as the configuration says.
    pub unchanged: Vec<LocalName>,
    /// Number of access rules now in force.
    pub rules: u32,
}
