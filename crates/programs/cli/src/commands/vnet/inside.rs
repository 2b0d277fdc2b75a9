//! `carina vnet exec` and `console`: commands and consoles in a node.

use std::time::Duration;

use carina_vm::shell::shell_words;
use carina_vnet::exec_lines::StreamError;
use carina_vnet::report::Exec;
use carina_vnet_host::Vnets;

use super::agent::client;
use super::network::report_of;
use super::roles;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::commands::command_output::OwnOutputs;
use crate::commands::terminal;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_saying};
use crate::report::report;

/// Options of `carina vnet exec`: the command, and the node in which to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Name of the virtual network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    /// Name of the virtual network's node (VM or namespace) in which to run the command
    node: String,
    /// Command to run in that node, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Runs a command in a node and exits with the command's exit code.
///
/// # Errors
/// The node does not exist or does not answer.
pub(super) fn exec(shared: &Shared, args: &ExecArgs) -> Outcome {
    let vno = args.operator.client(shared)?;
    // The agent or the VNO ends the command when the connection ends.
    let words = "interrupted; the command in the node is ended";
    end_with_signal_saying(shared.json, words).attempt(TAKING_SIGNALS)?;
    let limit = shared.wait.map_or(EXEC, |_| shared.wait_limit());
    let wanted = Exec {
        node: args.node.clone(),
        command: shell_words(&args.command),
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let vnet = args.vnet.as_deref();
    let mut outputs = OwnOutputs::new();
    let streamed = match vno {
        Some(vno) => roles::inside::exec(&vno, vnet, &wanted, &mut outputs)?,
        None => {
            let name = report_of(shared, vnet)?.name;
            let what = format!("running a command in {} of network {name}", args.node);
            let client = client(shared);
            client.stream(&name, &wanted, &mut outputs).attempt(what)?
        }
    };
    outputs.outcome()?;
    match streamed {
        Ok(Some(0)) => Ok(()),
        Ok(Some(status)) => std::process::exit(status),
        // An output was closed, which is an error above.
        Ok(None) => Err(Failure::Unread),
        Err(StreamError::Refused(body)) => {
            Err(body).attempt(format!("running a command in {}", args.node))
        }
        Err(error @ StreamError::Cut { status, .. }) if status != 0 => {
            report(&failed(error), shared.json);
            std::process::exit(status)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Connects this terminal to the console of a node of the network `vnet` (`None`: the only network)
/// until Ctrl-], a signal, or the end of the console.
///
/// # Errors
/// The node does not exist.
pub(super) fn console(shared: &Shared, vnet: Option<&str>, node: &str) -> Outcome {
    let report = report_of(shared, vnet)?;
    if report.nodes.iter().all(|known| known.name != node) {
        let known: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(failed(format!(
            "network {} has no node {node}; it has: {}",
            report.name,
            known.join(", ")
        )));
    }
    let path = Vnets::of(&shared.run_dir())
        .vnet(&report.name)
        .console(node);
    terminal::connect(&path, &format!("node {node}"), shared.answer_limit())
}

/// Time limit of a command without `--wait`.
const EXEC: Duration = Duration::from_secs(3600);
