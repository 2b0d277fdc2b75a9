//! `carina vnet grant`, `grants`: rights of delegates on the networks of an operator.

use carina_text::table::Table;
use carina_vnet::document::Span;
use carina_vnet::grant::{Grant, Verb};

use super::super::clock::unix_now;
use super::operator::{OperatorArgs, only};
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options of `carina vnet grant`: the network, the delegate, and the rights to grant; or that all
/// rights of the delegate are withdrawn.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantArgs {
    /// Name of the network on which to grant rights
    name: String,
    /// Name of the delegate, as in its certificate
    #[arg(long, value_name = "DELEGATE")]
    to: String,
    /// Rights to grant, separated by commas: see, exec, watch, console, test, migrate, restart,
    /// capture, impair, token, apply, remove
    #[arg(
        long,
        value_name = "VERB,...",
        value_delimiter = ',',
        required_unless_present = "withdraw"
    )]
    may: Vec<Verb>,
    /// Nodes to which the granted rights exec, watch, console, migrate, restart, capture and impair
    /// apply [default: all nodes]
    #[arg(long = "node", value_name = "NODE,...", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Lifetime of the grant from now, by the clock of this system: 30m, 12h, 2d [default: as long
    /// as the network exists]
    #[arg(long = "for", value_name = "TIME")]
    lease: Option<Span>,
    /// Withdraw all rights of the delegate
    #[arg(long, conflicts_with_all = ["may", "nodes", "lease"])]
    withdraw: bool,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Options of `carina vnet grants`: the network whose grants to list.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantsArgs {
    /// Name of the network whose grants to list [default: the only network]
    name: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Grants rights to a delegate, or withdraws them.
///
/// # Errors
/// The caller is not the operator, or there is no such network or node.
pub(crate) fn grant(shared: &Shared, args: &GrantArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let client = args.operator.required(shared)?;
    let (name, to) = (&args.name, &args.to);
    let grant = (!args.withdraw).then(|| Grant {
        may: args.may.iter().copied().collect(),
        nodes: args.nodes.iter().cloned().collect(),
        until: args
            .lease
            .map(|lease| unix_now() + lease.duration().as_secs()),
    });
    let done = client.grant(name, to, grant.as_ref());
    done.attempt(format!("changing the rights of {to} on network {name}"))?;
    match (shared.json, grant) {
        (true, grant) => print_json(&serde_json::json!({ "vnet": name, "to": to, "grant": grant })),
        (false, Some(grant)) => print_line(format!("{name}: {to} may {grant}")),
        (false, None) => print_line(format!("{name}: {to} has no rights")),
    }
}

/// Lists the grants of a network.
///
/// # Errors
/// The caller is not the operator, or there is no such network.
pub(crate) fn grants(shared: &Shared, args: &GrantsArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let client = args.operator.required(shared)?;
    let name = only(&client, args.name.as_deref())?;
    let grants = client.grants(&name);
    let grants = grants.attempt(format!("listing the rights on network {name}"))?;
    if shared.json {
        return print_json(&grants);
    }
    let mut table = Table::new(["DELEGATE", "RIGHTS", "TIME LEFT"]);
    for (to, grant) in &grants {
        table.row([to.clone(), grant.to_string(), left(grant)]);
    }
    print_line(table)
}

/// The time left until a grant ends, as text.
fn left(grant: &Grant) -> String {
    match grant.until.map(|until| until.saturating_sub(unix_now())) {
        Some(0) => "ended".to_owned(),
        Some(left) => format!("{left} s"),
        None => "until removal".to_owned(),
    }
}
