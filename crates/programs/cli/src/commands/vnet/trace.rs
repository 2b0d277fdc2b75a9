//! `carina vnet trace`: follows echo requests from one node to another, and shows where they are
//! dropped.

use carina_text::table::{Table, short};
use carina_vnet::trace::{Act, Direction, Trace, TraceQuery};

use super::agent::client;
use super::network::report_of;
use super::roles::inside;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options of `carina vnet trace`: the nodes between which to send echo requests.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// Name of the node that sends the echo requests
    from: String,
    /// Name of the node to reach. Without --vno, give the IP address of a node on another host
    to: String,
    /// Number of echo requests to send
    #[arg(long, short, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Name of the network of both nodes [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Traces the path between two nodes.
///
/// # Errors
/// There is no such node, or not all echo requests were answered.
pub(super) fn run(shared: &Shared, args: &TraceArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let query = TraceQuery {
        from: args.from.clone(),
        to: args.to.clone(),
        echoes: args.count,
    };
    let vnet = args.vnet.as_deref();
    let trace = match args.operator.client(shared)? {
        Some(vno) => inside::trace(&vno, vnet, &query)?,
        None => {
            let name = report_of(shared, vnet)?.name;
            let what = || format!("tracing {} -> {} in network {name}", args.from, args.to);
            client(shared).trace(&name, &query).attempt(what())?
        }
    };
    if shared.json {
        print_json(&trace)?
    } else {
        print_line(words(&trace))?
    }
    match trace.asked - trace.answered {
        0 => Ok(()),
        lost => Err(failed(format!(
            "{lost} of {} echos were not answered",
            trace.asked
        ))),
    }
}

fn words(trace: &Trace) -> String {
    let rtt = trace.rtt_ns.map_or_else(String::new, |ns| {
        format!(", shortest time {} ms", short(ns as f64 / 1e6))
    });
    let mut text = format!(
        "{} -> {} ({}): {} of {} echos answered{rtt}\n\n",
        trace.from, trace.to, trace.address, trace.answered, trace.asked
    );
    let mut table = Table::new(["DIRECTION", "WHERE", "LINK", "SEEN", "AFTER, ms", ""]);
    for place in &trace.places {
        let verb = match place.act {
            Act::Sends => "sends",
            Act::Receives => "receives",
        };
        let after = place
            .after_us
            .map_or_else(|| "-".to_owned(), |us| short(us as f64 / 1000.0));
        table.row([
            match place.direction {
                Direction::There => "there".to_owned(),
                Direction::Back => "back".to_owned(),
            },
            format!("{} {verb}", place.end),
            place.link.to_string(),
            place.seen.to_string(),
            after,
            if place.is_expected {
                String::new()
            } else {
                "not on the network's routes".to_owned()
            },
        ]);
    }
    text.push_str(&table.to_string());
    for finding in &trace.findings {
        text.push_str(&format!("\n- {finding}"));
    }
    text
}
