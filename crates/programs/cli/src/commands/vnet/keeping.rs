//! `carina vnet migrate`, `save` and `restore`: nodes that move, and networks that are saved.

use std::path::{Path, PathBuf};

use carina_vnet::document::Span;
use carina_vnet_roles::serving::moves::MoveRequest;

use super::agent::{ask_or_start, client};
use super::network::{client_of, follow_until_settled, report_of};
use super::roles::operator::{self, OperatorArgs};
use crate::Shared;
use crate::failure::{Attempt, Outcome, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options of `carina vnet migrate`: the node to move, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Name of the node to move, which must be a virtual machine
    node: String,
    /// Name of the node's network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    /// Host of a provider to move the node to (needs --pip and the keys of the PIP's operator)
    /// [default: another QEMU on the node's own host]
    #[arg(long, value_name = "HOST", requires = "pip")]
    to: Option<String>,
    /// Address of the provider's PIP: ADDRESS:PORT, or dif:NAME over flows of a DIF
    #[arg(long, value_name = "ADDRESS", requires = "to", group = "called")]
    pip: Option<String>,
    /// Time limit, such as 5m: if the move takes longer, the node stays where it was
    #[arg(long, value_name = "TIME", default_value = "5m", requires = "to")]
    limit: Span,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Moves a VM to another QEMU, on its own host or another one, while it runs.
///
/// # Errors
/// The node does not exist, or cannot be moved. It then keeps running where it was.
pub(super) fn migrate(shared: &Shared, args: &MigrateArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let what = || format!("moving node {}", args.node);
    let destination = args.to.as_ref().zip(args.pip.as_ref());
    let report = match (destination, args.operator.client(shared)?) {
        (Some((to, pip)), _) => {
            let client = args.operator.pip_client(shared, pip)?;
            let vnet = args.vnet.clone();
            let request = MoveRequest {
                vnet: vnet.ok_or_else(|| usage("--to: also name the network, with --vnet"))?,
                node: args.node.clone(),
                to: to.clone(),
                limit_ms: args.limit.duration().as_millis(),
            };
            client.migrate(&request).attempt(what())?
        }
        (None, Some(vno)) => {
            let name = operator::only(&vno, args.vnet.as_deref())?;
            vno.migrate(&name, &args.node).attempt(what())?
        }
        (None, None) => {
            let name = report_of(shared, args.vnet.as_deref())?.name;
            let moved = client(shared).migrate(&name, &args.node);
            moved.attempt(what())?
        }
    };
    if shared.json {
        print_json(&report)
    } else {
        print_line(report)
    }
}

/// Saves a network into a new directory.
///
/// # Errors
/// There is no such network, or it cannot be saved.
pub(super) fn save(shared: &Shared, name: &str, into: &Path) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let into = absolute(into)?;
    let saved = client_of(shared, name)?.save(name, &into);
    let report = saved.attempt(format!("saving network {name}"))?;
    if shared.json {
        return print_json(&report);
    }
    print_line(format!(
        "{name}: saved to {}; its machines were paused for {:.1} s",
        report.path.display(),
        report.stood_still_ms / 1000.0
    ))?;
    for (node, bytes) in &report.machines {
        print_line(format!("  {node}: {:.1} MiB", *bytes as f64 / 1_048_576.0))?;
    }
    if report.namespaces.is_empty() {
        Ok(())
    } else {
        print_line(format!(
            "  for nodes that are namespaces, only the document is saved: {}",
            report.namespaces.join(", ")
        ))
    }
}

/// Makes a saved network again, and waits until it is ready.
///
/// # Errors
/// The directory is damaged or is not a saved network, or the network cannot be made.
pub(super) fn restore(shared: &Shared, from: &Path) -> Outcome {
    let from = absolute(from)?;
    let restoring = format!("restoring {}", from.display());
    let (client, report) = ask_or_start(shared, &restoring, |client| client.restore(&from))?;
    follow_until_settled(shared, &client, (&report.name, 0))
}

/// Makes a path absolute, because the agent may have another working directory.
fn absolute(path: &Path) -> Result<PathBuf, crate::failure::Failure> {
    std::path::absolute(path).map_err(|error| usage(format!("{}: {error}", path.display())))
}
