//! `carina forward`: forwards Ethernet frames between ports.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

use carina_frame::PoolConfig;
use carina_nfv::forward::{
    By, Destination, ForwardCounts, ForwardError, Forwarder, Forwarding, Next, PortCounts, Routes,
    Station,
};
use carina_nfv::port::PortSpec;
use carina_sys::pin_to_cpu;
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use carina_time::Duration;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::Shared;
use crate::data_plane::runner_failure;
use crate::failure::{Attempt, Failure, Outcome, refused, usage};
use crate::graph_directory::OwnCounters;
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line, progress};

/// Forward Ethernet frames between ports: like a wire, a learning bridge, or a router
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  carina forward eth1 eth2\n  carina forward eth1 --hops \
    1\n  carina forward --by mac eth1 eth2 tap:inside,mtu=1500\n  carina forward --by route \
    eth1 eth2 --route 10.1.0.0/16=eth1 --route 0.0.0.0/0=eth2 --address eth1=10.1.0.1 --next \
    eth1=10.1.0.2 --address eth2=10.2.0.1 --next eth2=10.2.0.2\n\nA port is INTERFACE, a PCI \
    address such as 0000:00:04.0, or KIND:NAME followed by options (docs/reference/ports.md). \
    The kernel uses an interface as well: remove its IP addresses if only the forwarder is to \
    use it. Needs CAP_NET_RAW; a tap needs CAP_NET_ADMIN. Ctrl-C ends the command and removes \
    the taps that the command made."
)]
pub(crate) struct ForwardArgs {
    /// Ports to forward between, such as eth1 or tap:inside,mtu=1500 (see below)
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<PortSpec>,
    /// How the command chooses the port at which a frame leaves
    #[arg(long, value_enum, default_value_t = Choice::Wire)]
    by: Choice,
    /// Number of extra steps between the ports in each direction, such as 1; each step swaps the
    /// frame's MAC addresses and decrements its TTL or hop limit
    #[arg(long, default_value_t = 0)]
    hops: usize,
    /// With --by route: Carina's own IP address at a port, such as eth1=10.1.0.1; at most one IPv4
    /// and one IPv6 address for each port
    #[arg(long, value_name = "PORT=IP", value_parser = pair::<IpAddr>)]
    address: Vec<(String, IpAddr)>,
    /// With --by route: the system that gets all packets which leave at a port, by its IP or MAC
    /// address, such as eth1=10.1.0.2
    #[arg(long, value_name = "PORT=ADDRESS", value_parser = next)]
    next: Vec<(String, Next)>,
    /// With --by route: port for packets to a prefix, such as 10.1.0.0/16=eth1; may be repeated
    #[arg(long, value_name = "PREFIX=PORT", value_parser = route)]
    route: Vec<(Destination, String)>,
    /// With --by route: file of IPv4 routes; each line has a prefix and the port to which packets
    /// for this prefix are sent, such as `10.0.0.0/8 eth1`
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// With --by route: file of IPv6 routes; each line has a prefix and the port to which packets
    /// for this prefix are sent, such as `fd00::/8 eth1`
    #[arg(long, value_name = "FILE")]
    routes6: Option<PathBuf>,
    /// Print the graph as a file for `carina graph run` and exit [default: forward frames]
    #[arg(long)]
    graph: bool,
    /// Exit after this time, such as 30s [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Interval at which rates are printed, such as 1s; 0: never
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_ns)]
    every: u64,
    /// Number of the processor to run on, from 0 [default: any]
    #[arg(long)]
    cpu: Option<usize>,
    /// Number of frames that the pool of buffers holds
    #[arg(long, default_value_t = PoolConfig::default().frames)]
    frames: usize,
}

/// How the output port of a frame is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// By the other port, if there are two ports. By the port at which the frame arrived, if there
    /// is one port; --hops must then be at least 1
    Wire,
    /// The port at which a frame from the destination MAC address arrived last; if none has
    /// arrived, all other ports
    Mac,
    /// The port of the route with the longest prefix that contains the IPv4 or IPv6 destination
    /// address
    Route,
}

/// Errors in the text of an option.
#[derive(Debug, thiserror::Error)]
enum TextError {
    #[error("{0:?}: NAME=VALUE is expected")]
    Pair(String),
    #[error("{0:?}: {1}")]
    Value(String, String),
    /// The error of a value that names the value itself.
    #[error("{0}")]
    Prefix(String),
}

fn halves(text: &str) -> Result<(&str, &str), TextError> {
    let halves = text.split_once('=');
    halves.ok_or_else(|| TextError::Pair(text.to_owned()))
}

fn value<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, TextError> {
    text.parse()
        .map_err(|error: T::Err| TextError::Value(text.to_owned(), error.to_string()))
}

fn pair<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
) -> Result<(String, T), TextError> {
    let (name, rest) = halves(text)?;
    Ok((name.to_owned(), value(rest)?))
}

fn next(text: &str) -> Result<(String, Next), TextError> {
    let (name, rest) = halves(text)?;
    // No IPv6 address has the form of a MAC address, so a MAC address is tried first.
    let next = match value(rest) {
        Ok(mac) => Next::Mac(mac),
        Err(_) => Next::Address(value(rest)?),
    };
    Ok((name.to_owned(), next))
}

fn route(text: &str) -> Result<(Destination, String), TextError> {
    let (prefix, port) = halves(text)?;
    let prefix = prefix.parse::<Destination>();
    let prefix = prefix.map_err(|error| TextError::Prefix(error.to_string()))?;
    Ok((prefix, port.to_owned()))
}

impl ForwardArgs {
    /// The next hop of a port for the IP version of `address`: an IP address of that version if
    /// there is one, else a MAC address.
    fn next_hop(&self, port: &str, address: IpAddr) -> Option<Next> {
        let hops = self.next.iter().filter(|(other, _)| other == port);
        let mut hops: Vec<Next> = hops.map(|(_, next)| *next).collect();
        hops.sort_by_key(|next| matches!(next, Next::Mac(_)));
        hops.into_iter().find(|next| match next {
            Next::Address(next) => next.is_ipv4() == address.is_ipv4(),
            Next::Mac(_) => true,
        })
    }
}

/// Forwards frames between ports until a signal or the time limit ends it, and prints the counters.
/// With `--graph`, only prints the file of the graph that would run.
///
/// # Errors
/// The ports do not fit together, or the system refuses one.
pub(crate) fn run(shared: &Shared, args: &ForwardArgs) -> Outcome {
    let forwarder = forwarder(args)?;
    let file = forwarder.file().map_err(as_failure)?;
    if args.graph {
        return print_line(file.trim_end());
    }
    let interrupt = Interrupt::take().attempt("taking signals")?;
    if let Some(cpu) = args.cpu {
        pin_to_cpu(cpu).attempt(format!("running on processor {cpu}"))?;
    }
    let counters = OwnCounters::of_process(shared, "forward")?;
    let started = forwarder.start(args.frames, &counters);
    let mut forwarding = started.map_err(as_failure)?;
    let begin = Instant::now();
    let limit = args.time.unwrap_or(u64::MAX);
    let mut shown = (Instant::now(), ForwardCounts::default());
    loop {
        let passed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if passed >= limit || interrupt.is_pending().attempt("signals")? {
            break;
        }
        let slice = Duration::from_nanos(limit - passed).min(SLICE);
        forwarding.run_for(slice).attempt("forwarding")?;
        if args.every > 0 && shown.0.elapsed().as_nanos() >= u128::from(args.every) {
            let counts = forwarding.counts().attempt("reading counters")?;
            progress(rates(&shown.1, &counts, shown.0.elapsed().as_secs_f64()));
            shown = (Instant::now(), counts);
        }
    }
    show(shared, &forwarding, begin.elapsed().as_secs_f64())
}

fn forwarder(args: &ForwardArgs) -> Result<Forwarder, Failure> {
    let files = [&args.routes, &args.routes6];
    let has_routes = !args.route.is_empty() || files.iter().any(|file| file.is_some());
    let by = match args.by {
        _ if args.by != Choice::Route && (has_routes || !args.address.is_empty()) => {
            return Err(usage("routes and addresses need --by route"));
        }
        Choice::Wire => By::Wire,
        Choice::Mac => By::Mac,
        Choice::Route if !has_routes => {
            return Err(usage(
                "--by route needs --route PREFIX=PORT or --routes FILE",
            ));
        }
        Choice::Route => {
            let stations = args.address.iter().filter_map(|(port, address)| {
                Some(Station {
                    port: port.clone(),
                    address: *address,
                    next: args.next_hop(port, *address)?,
                })
            });
            let found = |file: &Option<PathBuf>| {
                let Some(file) = file else { return Ok(None) };
                let found = std::fs::canonicalize(file);
                let what = format!("looking for the file of routes {}", file.display());
                found.attempt(what).map(Some)
            };
            By::Route(Routes {
                stations: stations.collect(),
                routes: args.route.clone(),
                file: found(&args.routes)?,
                file6: found(&args.routes6)?,
            })
        }
    };
    Ok(Forwarder {
        ports: args.ports.clone(),
        hops: args.hops,
        by,
    })
}

fn as_failure(error: ForwardError) -> Failure {
    match error {
        ForwardError::Runner(error) => runner_failure(error),
        ForwardError::Configure(_) | ForwardError::Graph(_) => refused(error),
        error => usage(error),
    }
}

/// A line with the rates of frames received and sent at each port.
fn rates(before: &ForwardCounts, after: &ForwardCounts, seconds: f64) -> String {
    let ports = after.ports.iter().map(|port| {
        let mut old = before.ports.iter();
        let old = old.find(|old| old.port == port.port).cloned();
        let old = old.unwrap_or_default();
        let rate = |new: u64, old: u64| short((new - old) as f64 / seconds / 1e6);
        format!(
            "{}: in {} Mpps, out {} Mpps",
            port.port,
            rate(port.in_packets, old.in_packets),
            rate(port.out_packets, old.out_packets)
        )
    });
    let mut line = ports.collect::<Vec<_>>().join("; ");
    let sum = |counts: &ForwardCounts| counts.drops.iter().map(|(_, count)| count).sum::<u64>();
    let dropped = sum(after).saturating_sub(sum(before));
    if dropped > 0 {
        line += &format!("; {} Mpps dropped", short(dropped as f64 / seconds / 1e6));
    }
    line
}

fn show(shared: &Shared, forwarding: &Forwarding, seconds: f64) -> Outcome {
    let counts = forwarding.counts().attempt("reading counters")?;
    if shared.json {
        let drops: serde_json::Map<_, _> = counts
            .drops
            .iter()
            .map(|(name, count)| (name.clone(), json!(count)))
            .collect();
        return print_json(&json!({ "seconds": seconds, "ports": counts.ports, "drops": drops }));
    }
    let mut table = Table::new([
        "port",
        "packets in",
        "Mpps",
        "Gb/s",
        "packets out",
        "Mpps",
        "Gb/s",
    ]);
    for port in &counts.ports {
        table.row(row(port, seconds));
    }
    print_line(table)?;
    if counts.drops.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["dropped", "packets"]);
    for (name, count) in &counts.drops {
        table.row([name.clone(), count.to_string()]);
    }
    print_line(format!("\n{table}"))
}

fn row(port: &PortCounts, seconds: f64) -> [String; 7] {
    let mpps = |packets: u64| short(packets as f64 / seconds / 1e6);
    let gbps = |bytes: u64| short(bytes as f64 * 8.0 / seconds / 1e9);
    [
        port.port.clone(),
        port.in_packets.to_string(),
        mpps(port.in_packets),
        gbps(port.in_bytes),
        port.out_packets.to_string(),
        mpps(port.out_packets),
        gbps(port.out_bytes),
    ]
}

const SLICE: Duration = Duration::from_millis(100);
