//! `carina vnet stop`, `start`, `restart` and `link`: switches nodes and links off and on.

use carina_vnet::report::NodeSwitch;
use carina_vnet_host::link_name::NamedLink;

use super::agent::client;
use super::network::{follow_until_settled, last_event, report_of};
use super::network_report::{link_word, node_word};
use super::roles::inside;
use super::roles::operator::{self, OperatorArgs};
use crate::Shared;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options of `carina vnet stop`, `start` and `restart`: the node to stop or start, and its
/// network.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Name of the node to stop, start or restart
    node: String,
    /// Name of the node's network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Subcommands of `carina vnet link`: take a link up or down.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LinkCommand {
    /// Bring a link up, and wait until a probe packet has passed it
    #[command(after_help = "Example:\n  carina vnet link up r1,r2")]
    Up(LinkArgs),
    /// Take a link down: the interfaces at both ends have no carrier signal, and no frame passes
    /// the link
    #[command(after_help = "Example:\n  carina vnet link down r1:eth0")]
    Down(LinkArgs),
}

/// Options of `carina vnet link up` and `down`: the link to take up or down, and its network.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// Link to bring up or take down: its number, one of its ends (NODE:INTERFACE), or its two
    /// nodes (NODE,NODE)
    link: String,
    /// Name of the link's network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Stops, starts or restarts a node. Waits until a node that is started runs.
///
/// # Errors
/// There is no such node, or it does not start.
pub(super) fn node(shared: &Shared, args: &NodeArgs, what: NodeSwitch) -> Outcome {
    let doing = match what {
        NodeSwitch::Stop => "stopping",
        NodeSwitch::Start => "starting",
        NodeSwitch::Restart => "restarting",
    };
    let doing = format!("{doing} node {}", args.node);
    let report = match args.operator.client(shared)? {
        Some(vno) => {
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let name = operator::only(&vno, args.vnet.as_deref())?;
            vno.switch_node(&name, &args.node, what).attempt(doing)?;
            inside::report(&vno, Some(&name))?
        }
        None => {
            let name = report_of(shared, args.vnet.as_deref())?.name;
            let client = client(shared);
            let seen = last_event(&client, &name);
            let report = client.switch_node(&name, &args.node, what).attempt(doing)?;
            if what != NodeSwitch::Stop {
                return follow_until_settled(shared, &client, (&name, seen));
            }
            report
        }
    };
    let Some(node) = report.nodes.iter().find(|node| node.name == args.node) else {
        return Err(failed(format!(
            "node {} was removed in the meantime",
            args.node
        )));
    };
    if shared.json {
        print_json(node)
    } else {
        print_line(format!("node {}: {}", node.name, node_word(&node.state)))
    }
}

/// Takes a link down or up. After `up` it waits until a probe has passed the link.
///
/// # Errors
/// There is no such link, or no probe passes it.
pub(super) fn link(shared: &Shared, command: &LinkCommand) -> Outcome {
    let (args, is_up) = match command {
        LinkCommand::Up(args) => (args, true),
        LinkCommand::Down(args) => (args, false),
    };
    let word = if is_up { "up" } else { "down" };
    let doing = format!("taking link {} {word}", args.link);
    let vno = args.operator.client(shared)?;
    let before = match &vno {
        Some(vno) => inside::report(vno, args.vnet.as_deref())?,
        None => report_of(shared, args.vnet.as_deref())?,
    };
    let named = NamedLink::find(&before, &args.link).map_err(failed)?.link;
    let report = match &vno {
        Some(vno) => {
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            vno.switch_link(&before.name, named, is_up).attempt(doing)?;
            inside::report(vno, Some(&before.name))?
        }
        None => {
            let client = client(shared);
            let seen = last_event(&client, &before.name);
            let switched = client.switch_link(&before.name, named.number, is_up);
            let report = switched.attempt(doing)?;
            if is_up {
                return follow_until_settled(shared, &client, (&before.name, seen));
            }
            report
        }
    };
    let Some(link) = report.links.iter().find(|link| link.number == named.number) else {
        return Err(failed(format!(
            "link {} was removed in the meantime",
            args.link
        )));
    };
    if shared.json {
        print_json(link)
    } else {
        let (number, ends) = (link.number, link.ends.join(" -- "));
        print_line(format!(
            "link {number} ({ends}): {}",
            link_word(&link.state)
        ))
    }
}
