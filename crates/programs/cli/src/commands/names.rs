//! `carina names`: names that are registered in DIFs, as names of hosts with addresses.

use std::path::PathBuf;
use std::time::Duration;

use carina_api::control::Client;
use carina_gateway::{Gateway, NameServer};
use carina_text::table::Table;
use carina_wrap::hosts_file::HostsFile;
use carina_wrap::zones::{Names, Registered, Zone};
use serde_json::json;

use crate::Shared;
use crate::commands::expose::{endpoint, node};
use crate::commands::rules;
use crate::failure::{Attempt, Failure, Outcome, refused, usage};
use crate::interrupt::TAKING_SIGNALS;
use crate::report::{print_json, print_line};

/// List names that are registered in DIFs, or serve their addresses by DNS
///
/// Each name of a host gets an address of its own, which carina wrap and carina proxy map back to
/// the name. A connection to port 80 of web.dif.internal leads to the application web:80 by
/// default.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    carina names\n  \
    carina names --dns 127.0.0.1:5353\n  \
    carina names --dns 127.0.0.1:5353 --domain vm --hosts ./hosts\n  \
    dig @127.0.0.1 -p 5353 web.vm\n\n\
    With --dns the command runs until Ctrl-C. Questions for other domains are refused: have your\n\
    resolver forward these domains only.")]
pub(crate) struct NamesArgs {
    /// Answer DNS questions on this address, by UDP and TCP, such as 127.0.0.1:5353; with port 0
    /// the kernel chooses one [default: list the names and exit]
    #[arg(long, value_name = "HOST:PORT")]
    dns: Option<String>,
    /// Domain of host names that stand for applications, such as vm; may be repeated. A host has an
    /// address if an application of its name is registered, with or without a port: web:80 or web
    /// for web.dif.internal. In any other domain, the domain is part of the application's name:
    /// web.vm:80 or web.vm for web.vm
    #[arg(long = "domain", value_name = "DOMAIN", default_value = "dif.internal")]
    domains: Vec<String>,
    /// File with additional host names and their fixed addresses, in the format of /etc/hosts
    /// [default: no file]
    #[arg(long, value_name = "FILE", requires = "dns")]
    hosts: Option<PathBuf>,
}

/// Prints the registered names with their addresses. With `--dns`, answers questions of DNS about
/// them until a signal arrives.
///
/// # Errors
/// No node runs, the address cannot be listened on, or the file is wrong.
pub(crate) fn run(shared: &Shared, args: NamesArgs) -> Outcome {
    let zones = args.domains.iter().map(|domain| {
        Zone::new(domain).map_err(|error| usage(format!("--domain {domain}: {error}")))
    });
    let names = Names {
        zones: zones.collect::<Result<Vec<_>, Failure>>()?,
        hosts: match &args.hosts {
            Some(file) => HostsFile::read(file)
                .map_err(|error| refused(format!("{}: {error}", file.display())))?,
            None => HostsFile::default(),
        },
        table: rules::name_table(shared)?,
    };
    match args.dns {
        Some(address) => serve(shared, names, &args.domains, &address),
        None => list(shared, &names),
    }
}

fn list(shared: &Shared, names: &Names) -> Outcome {
    let registered = Registered::read(&shared.control()).attempt("listing names")?;
    let mut rows = Vec::new();
    for (name, difs) in &registered.names {
        let host = names.zones.iter().find_map(|zone| zone.host_of(name));
        let addresses = match &host {
            // Listing gives no addresses: members of a DIF could fill the table by registrations.
            Some(host) => names
                .table
                .known_addresses(host)
                .attempt("reading addresses")?,
            None => None,
        };
        let addresses = addresses.map(Vec::from).unwrap_or_default();
        rows.push((name, difs, host, addresses));
    }
    if shared.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, difs, host, addresses)| {
                json!({ "name": name, "difs": difs, "host": host, "addresses": addresses })
            })
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(["NAME", "DIFS", "HOST", "ADDRESS", "ADDRESS (IPv6)"]);
    for (name, difs, host, addresses) in rows {
        let difs: Vec<String> = difs.iter().map(ToString::to_string).collect();
        let none = || "-".to_owned();
        let address = |at: usize| addresses.get(at).map_or_else(none, ToString::to_string);
        table.row([
            name.to_string(),
            difs.join(","),
            host.unwrap_or_else(none),
            address(0),
            address(1),
        ]);
    }
    print_line(table)
}

fn serve(shared: &Shared, names: Names, domains: &[String], address: &str) -> Outcome {
    let listen = endpoint("udp", address)?;
    let stop = carina_sys::StopSignal::new().attempt(TAKING_SIGNALS)?;
    let _last_lines = crate::log::start_for_server()?;
    let mut gateway = Gateway::new(node(shared)?).attempt("starting")?;
    let socket = shared.run_dir().control_sock();
    let server = NameServer {
        listen,
        names,
        node: Client::new(socket).with_answer_limit(NODE_LIMIT),
    };
    let listening = gateway.names(server)?;
    if shared.json {
        print_json(&json!({ "listening": listening, "domains": domains }))?;
    } else {
        let domains = domains.join(", ");
        print_line(format!(
            "{listening} answers questions for names of {domains}"
        ))?;
    }
    Ok(gateway.run(stop)?)
}

/// How long the node may take for one answer: a resolver asks again after a few seconds, and Ctrl-C
/// must not wait.
const NODE_LIMIT: Duration = Duration::from_millis(500);
