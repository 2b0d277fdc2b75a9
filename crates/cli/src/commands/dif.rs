//! `carina dif`: the DIFs of which this system is a member.

use clap::Subcommand;

use super::ipcp::kind_word;
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::table::Table;
use crate::report::{print_json, print_line};

/// Show distributed IPC facilities
#[derive(Debug, Subcommand)]
pub enum DifCommand {
    /// List the DIFs of this system in the order in which they are searched
    #[command(after_help = "Example:\n  carina dif list")]
    List,
}

/// Runs the command.
///
/// # Errors
/// The node does not run.
pub fn run(shared: &Shared, command: &DifCommand) -> Outcome {
    let DifCommand::List = command;
    let difs = shared.control().difs().attempt("listing DIFs")?;
    if shared.json {
        return print_json(&difs);
    }
    let mut table = Table::new(["DIF", "TYPE", "IPCPS", "NAMES"]);
    for dif in difs {
        let ipcps: Vec<String> = dif.ipcps.iter().map(ToString::to_string).collect();
        let names: Vec<String> = dif.names.iter().map(ToString::to_string).collect();
        let kind = kind_word(dif.kind).to_owned();
        table.row([dif.name.to_string(), kind, ipcps.join(","), names.join(",")]);
    }
    print_line(table)
}
