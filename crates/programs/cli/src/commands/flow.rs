//! `carina flow`: lists and closes the flows of this system.

use carina_api::PortId;
use carina_api::control::FlowState;
use carina_text::table::Table;
use clap::Subcommand;

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// List and close the flows of applications on this system
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// List the flows of this system: port-id, applications, DIF and state
    #[command(after_help = "Example:\n  carina flow list --json")]
    List,
    /// Close a flow of any application; both ends are notified that it ended
    #[command(after_help = "Example:\n  carina flow close 7")]
    Close {
        /// Port-id of the flow, as `carina flow list` shows it, such as 7
        port: u32,
    },
}

/// Runs a command of `carina flow`.
///
/// # Errors
/// The node does not run, or no flow has this port-id.
pub(crate) fn run(shared: &Shared, command: FlowCommand) -> Outcome {
    let node = shared.control();
    match command {
        FlowCommand::Close { port } => {
            node.deallocate_flow(PortId(port))
                .attempt(format!("closing flow {port}"))?;
            if shared.json {
                print_json(&serde_json::json!({ "closed": port }))
            } else {
                print_line(format!("flow {port} is closed"))
            }
        }
        FlowCommand::List => {
            let flows = node.flows().attempt("listing flows")?;
            if shared.json {
                return print_json(&flows);
            }
            let head = [
                "PORT", "LOCAL", "REMOTE", "DIF", "IPCP", "STATE", "MODE", "PATH", "PID",
            ];
            let mut table = Table::new(head);
            for flow in flows {
                let state = match flow.state {
                    FlowState::Allocating => "allocating",
                    FlowState::Up => "up",
                    FlowState::Closing => "closing",
                };
                table.row([
                    flow.port.to_string(),
                    flow.local.to_string(),
                    flow.remote.to_string(),
                    flow.dif.to_string(),
                    flow.ipcp.to_string(),
                    state.to_owned(),
                    flow.mode.to_string(),
                    if flow.direct { "direct" } else { "node" }.to_owned(),
                    flow.pid
                        .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                ]);
            }
            print_line(table)
        }
    }
}
