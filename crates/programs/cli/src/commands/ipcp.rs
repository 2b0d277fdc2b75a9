//! `carina ipcp`: creates, destroys and lists IPC processes.

use std::path::PathBuf;

use carina_api::control::{
    ArpDialect, Framing, HvSide, IpcpCreate, IpcpType, LinkState, PeerAddress,
};
use carina_api::{DifName, LocalName};
use carina_text::table::Table;
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value};

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Create, destroy and list IPC processes (IPCPs), the members of DIFs on this system
#[derive(Debug, Subcommand)]
pub(crate) enum IpcpCommand {
    /// Create an IPCP over shared memory, Ethernet, UDP or TCP, or a loopback within this system
    #[command(
        after_help = "Examples:\n  carina ipcp create lo --type loopback --dif local\n  \
        carina ipcp create hv0 --type hv --side guest --dif hv.a\n  \
        carina ipcp create hv0 --type hv --side guest --dif hv.c --socket /run/c/vmpi\n  \
        carina ipcp create hv0 --type hv --side guest --dif hv.a --vsock 1110\n  \
        carina ipcp create e10 --type eth --interface eth0 --dif 10\n  \
        carina ipcp create e --type eth --interface eth0 --dif lan --arp rlite\n  \
        carina ipcp create x --type eth --port kind=af_xdp,interface=eth1 --dif lan\n  \
        carina ipcp create u --type udp --dif inet --peer b.ipcp=192.0.2.7"
    )]
    Create(Box<CreateArgs>),
    /// Destroy an IPCP; the flows that use it end
    #[command(after_help = "Example:\n  carina ipcp destroy hv0")]
    Destroy {
        /// Name of the IPCP, as `carina ipcp list` shows it
        name: LocalName,
    },
    /// List the IPCPs of this system with type, DIF and state
    #[command(after_help = "Example:\n  carina ipcp list --json")]
    List,
}

/// Options of `carina ipcp create`: name, medium and DIF of the new IPCP.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Name of the new IPCP, unique in this system, such as eth0
    name: LocalName,
    /// Medium of the IPCP: loopback (this system alone), hv (memory shared with a VM), eth, udp or
    /// tcp
    #[arg(long = "type", value_enum)]
    kind: Kind,
    /// Name of the DIF that the IPCP provides to this system, such as lan; no enrollment is needed
    #[arg(long)]
    dif: DifName,
    /// Type hv: which end of the shared memory this system is: the VM's host, or the guest in the
    /// VM
    #[arg(long, value_enum)]
    side: Option<Side>,
    /// Type hv in a guest: PCI address of the shared-memory device, such as 0000:00:04.0 [default:
    /// the first device that is free]
    #[arg(long)]
    pci: Option<String>,
    /// Type hv without a VM, in a process or container: the socket that the host's node listens on,
    /// as in `carina vm args NAME --socket PATH` [default: use a PCI device]
    #[arg(long, value_name = "PATH", conflicts_with = "pci")]
    socket: Option<PathBuf>,
    /// Type hv in a VM without shared memory: port of the host at which AF_VSOCK reaches the host's
    /// node, usually 1110 [default: use a PCI device]
    #[arg(long, value_name = "PORT", conflicts_with_all = ["pci", "socket"])]
    vsock: Option<u32>,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Options of the shim IPCPs over a network: types eth, udp and tcp.
#[derive(Debug, clap::Args)]
struct NetworkArgs {
    /// Type eth: network interface that carries the DIF, such as eth0
    #[arg(long)]
    interface: Option<String>,
    /// Type eth: port that carries the DIF in place of --interface, such as
    /// kind=af_xdp,interface=eth1; docs/reference/ports.md lists the kinds and their keys
    #[arg(long, value_name = "kind=KIND,KEY=VALUE,...", value_parser = graph_port)]
    port: Option<Map<String, Value>>,
    /// Type eth with --port: own MAC address of the IPCP, such as 02:00:00:00:00:01 [default: the
    /// port's MAC address, or a random one if the port has none]
    #[arg(long, requires = "port")]
    mac: Option<String>,
    /// Type eth: VLAN id from 1 to 4094, or 0 for frames without a VLAN tag [default: the DIF's
    /// name if it is a number, else 0]
    #[arg(long)]
    vlan: Option<u16>,
    /// Type eth: format of the ARP requests, which carry application names; all members of the DIF
    /// need the same format [default: native]
    #[arg(long, value_enum)]
    arp: Option<Arp>,
    /// Types udp and tcp: address and port on which to accept flows [default: 0.0.0.0:3359]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Types udp and tcp: format in which datagrams or the TCP stream carry SDUs; both ends need
    /// the same format [default: native]
    #[arg(long, value_enum)]
    framing: Option<Frames>,
    /// Types udp and tcp: address at which to reach an application, such as b.ipcp=192.0.2.7; may
    /// be repeated
    #[arg(long = "peer", value_name = "NAME=HOST[:PORT]", value_parser = peer)]
    peers: Vec<PeerAddress>,
    /// Types eth and udp: longest SDU in bytes that a flow accepts, such as 1452 [default: what the
    /// network carries in one frame or datagram]
    #[arg(long)]
    sdu_max: Option<usize>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Arp {
    /// ARP frames have Ethertype 0x0806, and names with parts joined by `|`
    Native,
    /// ARP of rlite: the same format as native
    Rlite,
    /// ARP of IRATI: frames have Ethertype 0x4305, and names with four parts joined by `/`
    Irati,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Frames {
    /// Carina's format: a message requests each flow by application name; over udp, each SDU
    /// carries the number of its flow
    Native,
    /// Format of rlite and IRATI: udp sends an SDU alone in a datagram, tcp a length before each
    /// SDU; a pair of IP addresses and ports identifies the flow
    Rlite,
}

/// Parses a port such as `kind=af_xdp,interface=eth1,queue=0`. A value that is a number, `true` or
/// `false` keeps that type; any other value is a string.
fn graph_port(text: &str) -> Result<Map<String, Value>, ArgumentError> {
    let pairs = text.split(',').map(|pair| {
        let (key, value) = pair.split_once('=').ok_or(ArgumentError::GraphPort)?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok((key.to_owned(), value))
    });
    pairs.collect()
}

fn peer(text: &str) -> Result<PeerAddress, ArgumentError> {
    let (name, address) = text
        .split_once('=')
        .filter(|(_, address)| !address.is_empty())
        .ok_or(ArgumentError::Peer)?;
    let name = name.parse()?;
    let address = address.to_owned();
    Ok(PeerAddress { name, address })
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Loopback,
    Hv,
    Eth,
    Udp,
    Tcp,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Side {
    Host,
    Guest,
}

/// Runs a command of `carina ipcp`.
///
/// # Errors
/// The node refuses or does not run.
pub(crate) fn run(shared: &Shared, command: IpcpCommand) -> Outcome {
    let node = shared.control();
    match command {
        IpcpCommand::Create(args) => {
            let made = node
                .create_ipcp(&(*args).into())
                .attempt("making the IPCP")?;
            if shared.json {
                print_json(&made)
            } else {
                print_line(format!(
                    "{} is IPCP {} of DIF {}",
                    made.name, made.id, made.dif
                ))
            }
        }
        IpcpCommand::Destroy { name } => {
            node.destroy_ipcp(name.as_str())
                .attempt("destroying the IPCP")?;
            if shared.json {
                print_json(&serde_json::json!({ "destroyed": name }))
            } else {
                print_line(format!("{name} is destroyed"))
            }
        }
        IpcpCommand::List => {
            let ipcps = node.ipcps().attempt("listing IPCPs")?;
            if shared.json {
                return print_json(&ipcps);
            }
            let mut table = Table::new(["ID", "NAME", "TYPE", "DIF", "LINK", "PEER", "FLOWS"]);
            for ipcp in ipcps {
                let link = match (ipcp.state, ipcp.reason) {
                    (LinkState::Up, _) => "up".to_owned(),
                    (LinkState::Down, None) => "down".to_owned(),
                    (LinkState::Down, Some(reason)) => format!("down: {reason}"),
                };
                table.row([
                    ipcp.id.to_string(),
                    ipcp.name.to_string(),
                    kind_word(ipcp.kind).to_owned(),
                    ipcp.dif.to_string(),
                    link,
                    ipcp.peer.unwrap_or_else(|| "-".to_owned()),
                    ipcp.flows.to_string(),
                ]);
            }
            print_line(table)
        }
    }
}

/// The name of a type of IPCP, as `--type` takes it.
pub(crate) fn kind_word(kind: IpcpType) -> &'static str {
    match kind {
        IpcpType::Loopback => "loopback",
        IpcpType::Hv => "hv",
        IpcpType::Eth => "eth",
        IpcpType::Udp => "udp",
        IpcpType::Tcp => "tcp",
        IpcpType::Normal => "normal",
    }
}

impl From<CreateArgs> for IpcpCreate {
    fn from(args: CreateArgs) -> Self {
        Self {
            name: args.name,
            kind: match args.kind {
                Kind::Loopback => IpcpType::Loopback,
                Kind::Hv => IpcpType::Hv,
                Kind::Eth => IpcpType::Eth,
                Kind::Udp => IpcpType::Udp,
                Kind::Tcp => IpcpType::Tcp,
            },
            dif: args.dif,
            side: args.side.map(|side| match side {
                Side::Host => HvSide::Host,
                Side::Guest => HvSide::Guest,
            }),
            pci: args.pci,
            socket: args.socket,
            vsock: args.vsock,
            interface: args.network.interface,
            port: args.network.port,
            mac: args.network.mac,
            vlan: args.network.vlan,
            arp: args.network.arp.map(|arp| match arp {
                Arp::Native => ArpDialect::Native,
                Arp::Rlite => ArpDialect::Rlite,
                Arp::Irati => ArpDialect::Irati,
            }),
            listen: args.network.listen,
            framing: args.network.framing.map(|framing| match framing {
                Frames::Native => Framing::Native,
                Frames::Rlite => Framing::Rlite,
            }),
            peers: args.network.peers,
            sdu_max: args.network.sdu_max,
            timeout_ms: None,
            fault: None,
        }
    }
}
