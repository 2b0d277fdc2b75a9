//! `carina expose`: makes a server outside of DIFs reachable by an application name.

use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_client::Node;
use carina_gateway::{
    CONNECTIONS_MAX, Endpoint, EndpointError, Expose, Gateway, GatewayError, IDLE_MS,
};
use clap::ValueEnum;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome};
use crate::interrupt::TAKING_SIGNALS;
use crate::report::{print_json, print_line};

/// Make a TCP, UDP or Unix-socket server reachable by an application name in DIFs
///
/// Each flow to the name becomes a connection to the server.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina expose tcp 127.0.0.1:22 --as ssh.vm1\n  carina expose \
    unix /run/app.sock --as app --dif net\n  carina expose udp 127.0.0.1:53 --as dns\n\nThe \
    command runs until Ctrl-C. The data of TCP and Unix connections does not pass through the \
    command, and the connections continue when it ends."
)]
pub(crate) struct ExposeArgs {
    /// Kind of socket on which the server listens
    kind: Kind,
    /// Address of the server: HOST:PORT, or the path of a Unix socket
    address: String,
    /// Application name to register; each flow to it becomes a connection to the server
    #[arg(long = "as", value_name = "NAME")]
    name: AppName,
    /// DIF to register the name in [default: all DIFs of this system]
    #[arg(long)]
    dif: Option<DifName>,
    /// Send a PROXY protocol header (version 2), with the application names of the flow, at the
    /// start of each connection
    #[arg(long)]
    proxy_protocol: bool,
    /// Largest number of connections at the same time; further flows are refused
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections_max: usize,
    /// With udp: time without datagrams after which a flow is closed, such as 60s
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns,
        default_value = "60s")]
    idle: u64,
}

/// Kind of socket on which the exposed server listens.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Tcp,
    Unix,
    Udp,
}

/// Registers a name, and connects each flow to it with a server at an address, until a signal
/// arrives.
///
/// # Errors
/// The node refuses the name or ends, or the address is wrong.
pub(crate) fn run(shared: &Shared, args: ExposeArgs) -> Outcome {
    let kind = match args.kind {
        Kind::Tcp => "tcp",
        Kind::Unix => "unix",
        Kind::Udp => "udp",
    };
    let settings = Expose {
        name: args.name,
        dif: args.dif,
        to: endpoint(kind, &args.address)?,
        proxy_protocol: args.proxy_protocol,
        connections_max: args.connections_max,
        idle_ms: idle_ms(args.idle),
    };
    settings.check().map_err(wrong)?;
    let stop = carina_sys::StopSignal::new().attempt(TAKING_SIGNALS)?;
    let _last_lines = crate::log::start_for_server()?;
    let mut gateway = Gateway::new(node(shared)?).attempt("starting")?;
    let (name, to) = (settings.name.clone(), settings.to.clone());
    let difs = gateway.expose(settings)?;
    if shared.json {
        print_json(&serde_json::json!({ "exposed": name, "to": to, "difs": difs }))?;
    } else {
        let difs: Vec<String> = difs.iter().map(ToString::to_string).collect();
        print_line(format!("{to} is exposed as {name} in {}", difs.join(", ")))?;
    }
    Ok(gateway.run(stop)?)
}

/// Connects to the node for a gateway. Each answer of the node must arrive within [`NODE_LIMIT`],
/// because the gateway notices signals only between its requests to the node.
pub(super) fn node(shared: &Shared) -> Result<Node, Failure> {
    shared.node()?;
    let socket = shared.run_dir().ipc_sock();
    Node::connect_within(socket, NODE_LIMIT).attempt("reaching the node")
}

/// Parses the address of a socket from two arguments: its kind (`tcp`, `udp` or `unix`), and
/// `HOST:PORT` or a path. Looks no host name up.
///
/// # Errors
/// The kind is unknown, host or port is missing or wrong, or the path is empty or longer than 107
/// bytes.
pub(super) fn endpoint(kind: &str, address: &str) -> Result<Endpoint, Failure> {
    let endpoint = format!("{kind}:{address}").parse();
    endpoint.map_err(|error: EndpointError| {
        let right = match kind {
            "unix" => "a path of 1 to 107 bytes",
            _ => "HOST:PORT, such as 127.0.0.1:8080,",
        };
        let reason = error.reason();
        Failure::Usage(format!("{address:?} {reason}; {right} would be right"))
    })
}

/// The failure for an option whose value the gateway does not accept.
pub(super) fn wrong(error: GatewayError) -> Failure {
    Failure::Usage(error.to_string())
}

pub(super) fn idle_ms(ns: u64) -> u64 {
    debug_assert_eq!(IDLE_MS, 60_000, "the default in words");
    ns / 1_000_000
}

const NODE_LIMIT: Duration = Duration::from_millis(1500);
