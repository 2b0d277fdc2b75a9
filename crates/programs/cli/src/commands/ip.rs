//! `carina ip`: IP packets over flows of a DIF.

use std::path::PathBuf;

use carina_api::DifName;
use carina_ip::{Address, IDLE_MS, IpPrefix, IpSettings, Member, Status, read_all};
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::commands::expose::node;
use crate::failure::{Attempt, Outcome, usage};
use crate::interrupt::TAKING_SIGNALS;
use crate::report::{print_json, print_line};

/// Carry IP packets over flows of a DIF, between TUN interfaces of its systems
#[derive(Debug, Subcommand)]
pub(crate) enum IpCommand {
    Up(Box<UpArgs>),
    /// List the prefixes of each interface: those that it registered itself, and those that other
    /// members registered. Each has its application name in the DIF
    #[command(after_help = "Example:\n  carina ip routes")]
    Routes,
    /// List the flows of each interface, with packets and bytes
    #[command(after_help = "Example:\n  carina ip peers --json")]
    Peers,
    /// Show the offloads and counters of each interface, with dropped packets by reason
    #[command(after_help = "Example:\n  carina ip stats")]
    Stats,
}

/// Make a TUN interface whose packets travel over flows of a DIF
///
/// The member registers ip:ADDRESS/32 (or /128) for each address and ip:PREFIX for each --prefix.
/// Packets for a prefix that another member has registered travel over a flow to that name.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina ip up n.DIF --address 10.9.1.1/24\n  carina ip up n.DIF \
    --address 10.9.1.1/24 --address fd00:9::1/64 --tun vpn0\n  carina ip up n.DIF --address \
    10.9.1.1/24 --prefix 10.20.0.0/16 --route 10.30.0.0/16\n\nThe command needs root, or \
    CAP_NET_ADMIN, and runs until Ctrl-C. The interface and its routes disappear with it."
)]
pub(crate) struct UpArgs {
    /// DIF whose members exchange packets
    dif: DifName,
    /// Address of the interface with the prefix length of its link, such as 10.9.1.1/24; may be
    /// repeated
    #[arg(long, value_name = "ADDRESS/BITS", required = true)]
    address: Vec<Address>,
    /// Name of the interface
    #[arg(long, value_name = "NAME", default_value = "carina0")]
    tun: String,
    /// Register this prefix, in addition to the addresses: a network behind this system, to which
    /// it forwards packets; may be repeated
    #[arg(long, value_name = "PREFIX")]
    prefix: Vec<IpPrefix>,
    /// Route this prefix to the interface, in addition to the prefixes of the addresses; may be
    /// repeated
    #[arg(long, value_name = "PREFIX")]
    route: Vec<IpPrefix>,
    /// Replace the source address of packets from this prefix by the address of the interface over
    /// which they leave this system (NAT, by nftables), and turn on net.ipv4.ip_forward; may be
    /// repeated
    #[arg(long, value_name = "PREFIX")]
    nat: Vec<IpPrefix>,
    /// Ignore prefixes of other members that are not within PREFIX; may be repeated [default: use
    /// all prefixes of all members]
    #[arg(long, value_name = "PREFIX")]
    peer: Vec<IpPrefix>,
    /// Network namespace of the interface: a name or a path [default: the namespace of this
    /// command]
    #[arg(long, value_name = "NAME")]
    netns: Option<PathBuf>,
    /// MTU of the interface in bytes [default: the longest packet that the DIF does not fragment,
    /// at most 9000]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<usize>,
    /// Number of queues of the interface, each with a thread; 1 to 8. A connection stays in one
    /// queue
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    queues: usize,
    /// Time without packets after which a flow is closed, such as 60s
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns,
        default_value = "60s")]
    idle: u64,
}

/// Runs a member, or shows the members that run beside this node.
///
/// # Errors
/// The member cannot start or has ended; or the run directory cannot be read.
pub(crate) fn run(shared: &Shared, command: IpCommand) -> Outcome {
    match command {
        IpCommand::Up(args) => up(shared, *args),
        IpCommand::Routes => routes(shared, &statuses(shared)?),
        IpCommand::Peers => peers(shared, &statuses(shared)?),
        IpCommand::Stats => stats(shared, &statuses(shared)?),
    }
}

fn up(shared: &Shared, args: UpArgs) -> Outcome {
    debug_assert_eq!(IDLE_MS, 60_000, "the default in words");
    let settings = IpSettings {
        dif: args.dif,
        address: args.address,
        tun: args.tun,
        prefix: args.prefix,
        route: args.route,
        netns: args.netns,
        mtu: args.mtu,
        idle_ms: args.idle / 1_000_000,
        nat: args.nat,
        queues: args.queues,
        peers: args.peer,
    };
    settings.check().map_err(usage)?;
    let stop = carina_sys::StopSignal::new().attempt(TAKING_SIGNALS)?;
    let _last_lines = crate::log::start_for_server()?;
    let node = node(shared)?;
    let mut member = Member::start(node, &shared.run_dir(), settings)?;
    let status = member.status();
    if shared.json {
        print_json(&json!({
            "dif": status.dif, "tun": status.tun, "mtu": status.mtu,
            "addresses": status.addresses, "own": status.own,
        }))?;
    } else {
        let own: Vec<String> = status
            .own
            .iter()
            .map(|prefix| prefix.name().to_string())
            .collect();
        print_line(format!(
            "{} with an MTU of {} is {} in {}",
            status.tun,
            status.mtu,
            own.join(", "),
            status.dif
        ))?;
    }
    Ok(member.run(stop)?)
}

fn statuses(shared: &Shared) -> Result<Vec<Status>, crate::failure::Failure> {
    read_all(&shared.run_dir()).attempt("reading the sockets of carina ip")
}

fn routes(shared: &Shared, all: &[Status]) -> Outcome {
    if shared.json {
        let rows: Vec<_> = all
            .iter()
            .map(|status| {
                json!({ "tun": status.tun, "dif": status.dif, "own": status.own,
                    "members": status.members, "is_complete": status.is_complete })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(["INTERFACE", "PREFIX", "NAME", "DIF", "WHERE"]);
    for status in all {
        let own = status.own.iter().map(|prefix| (prefix, "here"));
        let members = status.members.iter().map(|prefix| (prefix, "a member"));
        for (prefix, place) in own.chain(members) {
            let name = prefix.name().to_string();
            let (tun, dif) = (status.tun.clone(), status.dif.to_string());
            table.row([tun, prefix.to_string(), name, dif, place.to_owned()]);
        }
    }
    print_line(table)
}

fn peers(shared: &Shared, all: &[Status]) -> Outcome {
    if shared.json {
        let rows: Vec<_> = all
            .iter()
            .map(|status| json!({ "tun": status.tun, "dif": status.dif, "flows": status.flows }))
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new([
        "INTERFACE",
        "PEER",
        "OWN",
        "DIRECTION",
        "CLASS",
        "STATE",
        "PACKETS",
        "BYTES",
        "WAITING",
    ]);
    for status in all {
        for flow in &status.flows {
            table.row([
                status.tun.clone(),
                flow.remote.to_string(),
                flow.local.to_string(),
                if flow.is_outgoing {
                    "sends"
                } else {
                    "receives"
                }
                .to_owned(),
                flow.class.map_or("-", carina_ip::Class::as_str).to_owned(),
                if flow.is_open { "open" } else { "requested" }.to_owned(),
                flow.packets.to_string(),
                flow.bytes.to_string(),
                flow.waiting.to_string(),
            ]);
        }
    }
    print_line(table)
}

fn stats(shared: &Shared, all: &[Status]) -> Outcome {
    if shared.json {
        let rows: Vec<_> = all
            .iter()
            .map(|status| {
                let (tun, dif) = (&status.tun, &status.dif);
                json!({ "tun": tun, "dif": dif, "queues": status.queues,
                    "is_steered": status.is_steered, "offloads": status.offloads,
                    "counters": status.counters })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(["INTERFACE", "COUNTER", "VALUE"]);
    for status in all {
        let offloads = &status.offloads;
        let offloads = [
            ("checksum", offloads.checksum),
            ("tso", offloads.tso),
            ("uso", offloads.uso),
        ];
        for (name, is_on) in offloads {
            let state = if is_on { "on" } else { "off" };
            table.row([
                status.tun.clone(),
                format!("offload {name}"),
                state.to_owned(),
            ]);
        }
        let queues = status.queues.to_string();
        table.row([status.tun.clone(), "queues".to_owned(), queues]);
        let counters = serde_json::to_value(&status.counters).attempt("writing the counters")?;
        for (name, value) in counters.as_object().into_iter().flatten() {
            match value.as_object() {
                None => table.row([status.tun.clone(), name.clone(), value.to_string()]),
                Some(reasons) => {
                    for (reason, count) in reasons {
                        let name = format!("{name} {reason}");
                        table.row([status.tun.clone(), name, count.to_string()]);
                    }
                }
            }
        }
    }
    print_line(table)
}
