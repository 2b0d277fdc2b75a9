//! `carina apply`: changes a running node so that it matches a configuration file.

use std::io::Read;
use std::path::PathBuf;

use carina_api::LocalName;

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Change the running node so that it matches a configuration file, without a restart
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  carina apply node.toml\n\nThe node checks the file first, and \
    applies all of it or nothing. Exit code 3: the node refused\nthe file and changed nothing."
)]
pub(crate) struct ApplyArgs {
    /// TOML file with the wanted configuration, in the format of `carina node --config`; `-` reads
    /// standard input
    file: PathBuf,
}

/// Sends a configuration to the node, which changes its DIFs and access rules to match, and prints
/// what changed.
///
/// # Errors
/// The file cannot be read, or the node refuses it.
pub(crate) fn run(shared: &Shared, args: &ApplyArgs) -> Outcome {
    let mut text = String::new();
    if args.file.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .attempt("reading standard input")?;
    } else {
        text = std::fs::read_to_string(&args.file)
            .attempt(format!("reading {}", args.file.display()))?;
    }
    let applied = shared
        .control()
        .apply(&text)
        .attempt("applying the configuration")?;
    if shared.json {
        return print_json(&applied);
    }
    let names = |names: &[LocalName]| match names {
        [] => "none".to_owned(),
        names => names
            .iter()
            .map(LocalName::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    };
    print_line(format!(
        "created: {}\nextended: {}\nretracted: {}\ndestroyed: {}\nunchanged: {}\naccess rules in force: {}",
        names(&applied.created),
        names(&applied.extended),
        names(&applied.retracted),
        names(&applied.destroyed),
        names(&applied.unchanged),
        applied.rules
    ))
}
