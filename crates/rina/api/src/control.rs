//! Bodies of requests and responses on `control.sock`, and a blocking client for that socket.
//!
//! `docs/reference/control-api.md` lists the paths. When the node refuses a request, the response
//! has an HTTP error status and an [`ErrorReply`] as its body.

mod capture;
mod client;
mod dif;
mod events;
mod medium;
mod vm;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::capture::{CaptureCreate, CaptureEnd, CaptureInfo};
pub use self::client::reply::{LINES, StreamReply, read_reply, read_stream};
pub use self::client::{Client, ClientError, Server, escape};
pub use self::dif::{
    Catalogue, Dialect, DifCreate, DifExtend, DifRole, MemberInfo, MemberState, N1Info, N1State,
    ParamInfo, PolicyInForce, PolicyInfo, RibObject, RibWrite, UnknownDialect,
};
pub use self::events::{Event, EventKind, Events};
pub use self::medium::{ArpDialect, FaultSpec, Framing, PeerAddress};
pub use self::vm::{VmCreate, VmInfo, VmInternet, VmIp, VmpiKind};
use crate::ipc::Mode;
use crate::{AppName, DifName, ErrorBody, FlowSpec, IpcpId, LocalName, PortId};

/// The body of every response that refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// What the node refused, and why.
    pub error: ErrorBody,
}

/// Response of `GET /v1/node`: describes the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The name of this system, by which the node introduces itself to its peers.
    pub name: String,
    /// Version of the program that runs the node.
    pub version: String,
    /// Process id of the node.
    pub pid: u32,
    /// Time since the node started, in milliseconds.
    pub uptime_ms: u64,
    /// Path of the run directory of the node.
    pub run_dir: PathBuf,
    /// Number of IPCPs that the node runs.
    pub ipcps: u32,
    /// Number of applications that are registered at the node.
    pub apps: u32,
    /// Number of flows that end at the node.
    pub flows: u32,
    /// Number of VM ports that the node serves.
    pub vms: u32,
}

/// Types of IPC processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpcpType {
    /// `loopback`: flows between applications of one system, without a medium.
    Loopback,
    /// `hv`: shim over memory shared between a VM and its host.
    Hv,
    /// `eth`: shim over an Ethernet interface, or over one VLAN of an interface.
    Eth,
    /// `udp`: shim over UDP.
    Udp,
    /// `tcp`: shim over TCP.
    Tcp,
    /// A member of a normal DIF, over N-1 DIFs. `POST /v1/difs` creates it, not `POST /v1/ipcps`.
    Normal,
}

/// The side of an `hv` IPCP: host or guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HvSide {
    /// The system that runs the VM.
    #[default]
    Host,
    /// The system inside the VM.
    Guest,
}

/// Body of `POST /v1/ipcps`, and a table `[[ipcp]]` of the configuration: describes a shim IPCP to
/// create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpcpCreate {
    /// Name of the IPCP, unique on this system.
    pub name: LocalName,
    /// Type of the IPCP; it decides which of the other keys are allowed.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// Name of the DIF of which the IPCP becomes a member.
    pub dif: DifName,
    /// `hv`: must be `guest`, because `POST /v1/vms` creates the host side. `None` for other types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<HvSide>,
    /// Guest side of `hv`: PCI address of the VMPI device, for example `0000:00:04.0`. Default: the
    /// free device with the lowest address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Guest side of `hv` without a VM: path of the socket on which the node of the host side
    /// listens. It replaces the PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Guest side of `hv` over AF_VSOCK: port of the host at which its node is reached, usually
    /// 1110. It replaces the PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsock: Option<u32>,
    /// `eth`: name of the network interface on which the IPCP sends and receives. Either this or
    /// `port` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `eth`: a port of the data plane of frames, in place of an interface. The table has the
    /// port's `kind` and its keys, as in the file of a graph. `None` to use `interface`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<serde_json::Map<String, serde_json::Value>>,
    /// `eth` with `port`: own MAC address of the IPCP. Default: the address of the port's
    /// interface, or a random address if the port has no interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// `eth`: VLAN id from 1 to 4094, or 0 for frames without a VLAN tag. Default: the name of the
    /// DIF if it is a number, else no tag. If the name is a number, the VLAN id must be that number
    /// or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// `eth`: how application names are written in ARP packets. Default: native.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp: Option<ArpDialect>,
    /// `udp`, `tcp`: the address to listen on, such as `[::]:3359`. Default: `0.0.0.0:3359`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// `udp`, `tcp`: how SDUs are framed in datagrams or in the byte stream. Default: native.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// `udp`, `tcp`: addresses of remote applications. Other names are looked up in `/etc/hosts`
    /// and DNS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerAddress>,
    /// `eth`, `udp`: longest SDU in bytes. Default: the longest that the network carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdu_max: Option<usize>,
    /// `eth`, `udp`, `tcp`: how long the shim tries to resolve a name, in milliseconds. Default:
    /// 5000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `eth`, `udp`: loss, delay and other faults applied to everything that the IPCP sends.
    /// Default: no faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
}

impl IpcpCreate {
    /// Makes a request that sets the mandatory keys only; every optional key is absent.
    #[must_use]
    pub fn new(name: LocalName, kind: IpcpType, dif: DifName) -> Self {
        Self {
            name,
            kind,
            dif,
            side: None,
            pci: None,
            socket: None,
            vsock: None,
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

/// Whether an IPCP can reach its peer, so that flows can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// The peer answers, or none is needed: flows can be allocated.
    Up,
    /// There is no peer, or the peer does not answer.
    Down,
}

/// An entry of `GET /v1/ipcps`: one IPC process of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcpInfo {
    /// Number of the IPCP on this system.
    pub id: IpcpId,
    /// Name of the IPCP, unique on this system.
    pub name: LocalName,
    /// Type of the IPCP.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// Name of the DIF of which the IPCP is a member.
    pub dif: DifName,
    /// Side of an `hv` IPCP: host or guest; `None` for other types.
    #[serde(default)]
    pub side: Option<HvSide>,
    /// Whether the link to the IPCP's peer is up.
    pub state: LinkState,
    /// Why the link is down; `None` if it is up, or if the reason is not known.
    #[serde(default)]
    pub reason: Option<String>,
    /// The other end. `hv`: the name by which the peer's node introduced itself. `udp`, `tcp`: the
    /// configured peers. `eth`: the interface. `None` if there is no such text.
    #[serde(default)]
    pub peer: Option<String>,
    /// `hv`: number of the VMPI device, unique on this system; `None` for other types.
    #[serde(default)]
    pub vmpi_id: Option<u16>,
    /// Number of the data-plane thread that runs the IPCP, from 0. `None` for an IPCP that moves no
    /// SDUs.
    #[serde(default)]
    pub worker: Option<u16>,
    /// `hv`: name of the VM at the other end; `None` for other types, and in a guest.
    #[serde(default)]
    pub vm: Option<LocalName>,
    /// Number of flows that the IPCP carries now.
    pub flows: u32,
    /// Application names registered at the peer.
    #[serde(default)]
    pub peer_names: Vec<AppName>,
    /// State of the membership, for a member of a normal DIF; `None` for a shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberInfo>,
}

/// An entry of `GET /v1/apps`: one registered application, of this system or of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppInfo {
    /// Name of the registered application.
    pub name: AppName,
    /// The DIFs in which the application name is registered.
    pub difs: Vec<DifName>,
    /// The IPCP through which the application is reached; `None` for an application of this system.
    #[serde(default)]
    pub via: Option<LocalName>,
    /// Process id of the application; `None` for one of another system.
    #[serde(default)]
    pub pid: Option<u32>,
    /// User id of the application's process; `None` for one of another system.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Number of flow requests that the application has not answered yet.
    #[serde(default)]
    pub pending: u32,
}

/// State of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// The remote application has not answered the request yet.
    Allocating,
    /// The flow is open and carries SDUs.
    Up,
    /// One end has closed the flow or failed. The other end may still read queued SDUs.
    Closing,
}

/// An entry of `GET /v1/flows`: one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Port-id of the flow. `DELETE /v1/flows/{port}` deallocates it.
    pub port: PortId,
    /// Name of the application at the local end. If both ends are local: the application that
    /// allocated the flow.
    pub local: AppName,
    /// Name of the application at the other end of the flow.
    pub remote: AppName,
    /// Name of the DIF that carries the flow.
    pub dif: DifName,
    /// Name of this system's IPCP that carries the flow.
    pub ipcp: LocalName,
    /// State of the flow: requested, open or closing.
    pub state: FlowState,
    /// The flow specification that the allocating application requested.
    pub spec: FlowSpec,
    /// How the local application exchanges SDUs with the node.
    pub mode: Mode,
    /// Whether both ends are on this system and share memory, so that the node moves no SDUs.
    pub direct: bool,
    /// Process id of the local application, if an application has the local end.
    #[serde(default)]
    pub pid: Option<u32>,
    /// For an N-1 flow: name of the IPCP of this system that uses it; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<LocalName>,
}

/// An entry of `GET /v1/difs`: one DIF, as this system sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifInfo {
    /// Name of the DIF that this entry describes.
    pub name: DifName,
    /// Type of the IPCPs in the DIF, such as `eth` or `normal`.
    #[serde(rename = "type")]
    pub kind: IpcpType,
    /// Dialect of a normal DIF; `None` for a shim DIF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Names of this system's IPCPs that are members of the DIF.
    pub ipcps: Vec<LocalName>,
    /// Application names known to be registered in the DIF, by this system or by a peer.
    pub names: Vec<AppName>,
}

/// Response of `POST /v1/apply`: what applying the configuration changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Names of the IPCPs and VMs that were created.
    pub created: Vec<LocalName>,
    /// Names of the IPCPs and VMs that were destroyed.
    pub destroyed: Vec<LocalName>,
    /// Names of the members of normal DIFs to which N-1 DIFs were added.
    #[serde(default)]
    pub extended: Vec<LocalName>,
    /// Names of the members of normal DIFs from which N-1 DIFs were removed.
    #[serde(default)]
    pub retracted: Vec<LocalName>,
    /// Names of the IPCPs and VMs that already matched the configuration.
    pub unchanged: Vec<LocalName>,
    /// Number of access rules that are in force after the change.
    pub rules: u32,
}
