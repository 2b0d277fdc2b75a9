//! `carina vnet exec` and `console`: commands and consoles in a node.

use std::io::Write;
use std::time::Duration;

use carina_vm::shell::shell_words;
use carina_vnet::report::{Exec, ExecReply};
use carina_vnet_host::Vnets;

use super::network::{client, report_of};
use super::roles;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::commands::terminal;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_saying};
use crate::report::{print_bytes, report};

/// Options of `carina vnet exec`.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// Name of the network [default: the only one]
    #[arg(long)]
    vnet: Option<String>,
    /// Name of the node in which to run the command
    node: String,
    /// Command to run in the node, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Runs a command in a node and exits with the command's exit code.
///
/// # Errors
/// The node does not exist or does not answer.
pub fn exec(shared: &Shared, args: &ExecArgs) -> Outcome {
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
    let reply = match vno {
        Some(vno) => roles::inside::exec(&vno, vnet, &wanted)?,
        None => {
            let name = report_of(shared, vnet)?.name;
            let what = format!("running a command in {} of network {name}", args.node);
            client(shared).exec(&name, &wanted).attempt(what)?
        }
    };
    print_bytes(&reply.stdout)?;
    let mut stderr = std::io::stderr();
    stderr
        .write_all(&reply.stderr)
        .attempt("writing what the command says")?;
    let cut = match reply.dropped {
        0 => Ok(()),
        dropped => Err(failed(format!(
            "{dropped} more bytes of output are not shown: at most {} MiB come; write the output \
             to a file in the node",
            ExecReply::STDOUT_MAX >> 20
        ))),
    };
    match (reply.status, cut) {
        (0, cut) => cut,
        (status, cut) => {
            if let Err(failure) = cut {
                report(&failure, shared.json);
            }
            std::process::exit(status)
        }
    }
}

/// Connects this terminal to the console of a node.
///
/// # Errors
/// The node does not exist.
pub fn console(shared: &Shared, vnet: Option<&str>, node: &str) -> Outcome {
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
