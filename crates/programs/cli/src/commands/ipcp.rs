//! `carina ipcp`: makes, destroys and lists IPC processes.

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

/// Make, destroy and list IPC processes
#[derive(Debug, Subcommand)]
pub enum IpcpCommand {
    /// Make an IPC process
    #[command(
        after_help = "Examples:\n  carina ipcp create lo --type loopback --dif local\n  \
        carina ipcp create hv0 --type hv --side guest --dif hv.a\n  \
        carina ipcp create hv0 --type hv --side guest --dif hv.c --socket /run/c/vmpi\n  \
        carina ipcp create e10 --type eth --interface eth0 --dif 10\n  \
        carina ipcp create e --type eth --interface eth0 --dif lan --arp rlite\n  \
        carina ipcp create x --type eth --port kind=af_xdp,interface=eth1 --dif lan\n  \
        carina ipcp create u --type udp --dif inet --peer b.ipcp=192.0.2.7"
    )]
    Create(Box<CreateArgs>),
    /// Destroy an IPC process; its flows end
    #[command(after_help = "Example:\n  carina ipcp destroy hv0")]
    Destroy {
        /// Its name
        name: LocalName,
    },
    /// List the IPC processes of this system
    #[command(after_help = "Example:\n  carina ipcp list --json")]
    List,
}

/// Options of `carina ipcp create`.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Its name in this system
    name: LocalName,
    /// Its type
    #[arg(long = "type", value_enum)]
    kind: Kind,
    /// The DIF that it joins
    #[arg(long)]
    dif: DifName,
    /// The side of the hypervisor (type hv)
    #[arg(long, value_enum)]
    side: Option<Side>,
    /// PCI address of the device (type hv, in a guest) [default: the first free one]
    #[arg(long)]
    pci: Option<String>,
    /// Socket of the host side's node (type hv, in another process or container of its host)
    #[arg(long, value_name = "PATH", conflicts_with = "pci")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Options of shims over networks.
#[derive(Debug, clap::Args)]
struct NetworkArgs {
    /// The interface (type eth)
    #[arg(long)]
    interface: Option<String>,
    /// A port of a graph instead of an interface (type eth)
    #[arg(long, value_name = "kind=KIND,KEY=VALUE,...", value_parser = graph_port)]
    port: Option<Map<String, Value>>,
    /// The station's MAC address (type eth with --port) [default: the port's, or random]
    #[arg(long, requires = "port")]
    mac: Option<String>,
    /// VLAN id, 0 for frames without tag (type eth) [default: the DIF's name if that is a number]
    #[arg(long)]
    vlan: Option<u16>,
    /// Dialect in which ARP carries the names of applications (type eth) [default: native]
    #[arg(long, value_enum)]
    arp: Option<Arp>,
    /// Address to listen on (types udp, tcp) [default: 0.0.0.0:3359]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Format of SDUs in datagrams or in the stream (types udp, tcp) [default: native]
    #[arg(long, value_enum)]
    framing: Option<Frames>,
    /// The address of an application (types udp, tcp); may be repeated
    #[arg(long = "peer", value_name = "NAME=HOST[:PORT]", value_parser = peer)]
    peers: Vec<PeerAddress>,
    /// Longest SDU in bytes (types eth, udp) [default: what the network carries]
    #[arg(long)]
    sdu_max: Option<usize>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Arp {
    /// Ethertype 0x0806, the parts of a name joined by `|`
    Native,
    /// The same as native; rlite uses it
    Rlite,
    /// Ethertype 0x4305, the four parts of a name joined by `/`
    Irati,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Frames {
    /// With flow numbers; flows are allocated by name
    Native,
    /// Bare SDUs, as in rlite and IRATI: one flow for each pair of addresses
    Rlite,
}

/// Parses a port such as `kind=af_xdp,interface=eth1,queue=0`. A value is a number, `true`,
/// `false`, or else text.
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

/// Runs the command.
///
/// # Errors
/// The node refuses or does not run.
pub fn run(shared: &Shared, command: IpcpCommand) -> Outcome {
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

/// The word for a type of IPCP.
pub fn kind_word(kind: IpcpType) -> &'static str {
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
