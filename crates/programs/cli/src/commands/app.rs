//! `carina app`: lists the registered applications.

use carina_text::table::Table;
use clap::Subcommand;

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Show the applications that are registered on this system or announced by its peers
#[derive(Debug, Subcommand)]
pub(crate) enum AppCommand {
    /// List registered application names: of this system, and those that its peers announce
    #[command(after_help = "Example:\n  carina app list")]
    List,
}

/// Runs a command of `carina app`.
///
/// # Errors
/// The node does not run.
pub(crate) fn run(shared: &Shared, command: &AppCommand) -> Outcome {
    let AppCommand::List = command;
    let apps = shared.control().apps().attempt("listing applications")?;
    if shared.json {
        return print_json(&apps);
    }
    let mut table = Table::new(["NAME", "WHERE", "DIFS", "PID", "UID"]);
    let number = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for app in apps {
        let difs: Vec<String> = app.difs.iter().map(ToString::to_string).collect();
        table.row([
            app.name.to_string(),
            app.via
                .map_or_else(|| "here".to_owned(), |ipcp| format!("peer of {ipcp}")),
            difs.join(","),
            number(app.pid),
            number(app.uid),
        ]);
    }
    print_line(table)
}
