//! `carina vnet exec` and `console`: inside of a node.

use std::io::Write;
use std::time::Duration;

use carina_lab::shell_words;
use carina_vnet_host::Vnets;
use carina_vnet_host::report::Exec;

use super::network::{client, report_of};
use super::roles;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::commands::terminal;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::print_bytes;

/// Options of `carina vnet exec`.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// The network [default: the only one]
    #[arg(long)]
    vnet: Option<String>,
    /// The node
    node: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Runs a command in a node and ends with its exit code.
///
/// # Errors
/// There is no such node, or it does not answer.
pub fn exec(shared: &Shared, args: &ExecArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let limit = shared.wait.map_or(EXEC, |_| shared.wait_limit());
    let wanted = Exec {
        node: args.node.clone(),
        command: shell_words(&args.command),
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let vnet = args.vnet.as_deref();
    let reply = match args.operator.client(shared)? {
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
    match reply.status {
        0 => Ok(()),
        status => std::process::exit(status),
    }
}

/// Connects this terminal to the console of a node.
///
/// # Errors
/// There is no such node.
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

/// How long a command may take without `--wait`.
const EXEC: Duration = Duration::from_secs(3600);
