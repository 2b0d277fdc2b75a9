//! `carina import`: translates configurations of rlite and IRATI into a configuration of Carina.

use std::path::{Path, PathBuf};

use carina_import::{Draft, Note, irati, rlite};
use carina_node::Config;
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::report::{print_json, print_line, progress};

/// Translate a configuration of rlite or IRATI into one of Carina
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Translate a script of rlite-ctl, such as /etc/rina/initscript
    #[command(
        after_help = "Examples:\n  carina import rlite-ctl /etc/rina/initscript --out node.toml\n  \
        carina --json import rlite-ctl initscript\n\nWhat is not carried over is listed on \
        standard error with its line and the reason."
    )]
    RliteCtl(RliteArgs),
    /// Translate an ipcmanager.conf of IRATI, and the DIF templates that it names
    #[command(
        after_help = "Examples:\n  carina import irati /usr/local/irati/etc/ipcmanager.conf \
        --out node.toml\n  carina import irati ipcmanager.conf --join \
        normal.DIF=test1.normal.DIF\n\nThe file does not tell which member enrolls with which: \
        set it with --join.\nWhat is not carried over is listed on standard error with its line \
        and the reason."
    )]
    Irati(IratiArgs),
}

/// Options of `carina import rlite-ctl`: the script to translate, and the file to write.
#[derive(Debug, clap::Args)]
pub(crate) struct RliteArgs {
    /// Script of rlite-ctl commands to translate
    script: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Options of `carina import irati`: the configuration to translate, and the file to write.
#[derive(Debug, clap::Args)]
pub(crate) struct IratiArgs {
    /// IRATI configuration file; its DIF templates must be in the same directory
    file: PathBuf,
    /// Let this system join the DIF by enrolling with MEMBER, or with any member; may be repeated
    /// [default: this system is the DIF's first member]
    #[arg(long = "join", value_name = "DIF[=MEMBER]", value_parser = join)]
    joins: Vec<(String, Option<String>)>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Write the configuration to this file, such as node.toml [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn join(text: &str) -> Result<(String, Option<String>), ArgumentError> {
    match text.split_once('=') {
        _ if text.is_empty() => Err(ArgumentError::Join),
        Some((dif, member)) => Ok((dif.to_owned(), Some(member.to_owned()))),
        None => Ok((text.to_owned(), None)),
    }
}

/// Runs a command of `carina import`.
///
/// # Errors
/// A file cannot be read or written, or nothing in it could be translated.
pub(crate) fn run(shared: &Shared, command: &ImportCommand) -> Outcome {
    match command {
        ImportCommand::RliteCtl(args) => {
            let text = load(&args.script)?;
            let draft = rlite::read(&args.script.display().to_string(), &text);
            write(shared, &draft, &args.output)
        }
        ImportCommand::Irati(args) => {
            let text = load(&args.file)?;
            let beside = args.file.parent().unwrap_or(Path::new("."));
            let open = |name: &str| {
                let path = beside.join(name);
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("reading {}: {error}", path.display()))
            };
            let name = args.file.display().to_string();
            let draft = irati::read(&name, &text, &open, &args.joins).map_err(failed)?;
            write(shared, &draft, &args.output)
        }
    }
}

fn load(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).attempt(format!("reading {}", path.display()))
}

fn write(shared: &Shared, draft: &Draft, output: &Output) -> Outcome {
    let toml = draft.to_toml(Config::check_text).map_err(failed)?;
    if let Some(out) = &output.out {
        std::fs::write(out, &toml).attempt(format!("writing {}", out.display()))?;
    }
    // A file that yields notes only is probably of another kind.
    let is_empty = draft.shims.is_empty() && draft.members.is_empty();
    let outcome = || {
        if is_empty && !draft.notes.is_empty() {
            Err(failed("the file has nothing that can be carried over"))
        } else {
            Ok(())
        }
    };
    if shared.json {
        let out = output.out.as_ref().map(|out| out.display().to_string());
        print_json(&json!({ "toml": toml, "out": out, "not_carried": draft.notes }))?;
        return outcome();
    }
    if output.out.is_none() {
        print_line(toml.trim_end())?;
    }
    if !draft.notes.is_empty() {
        progress(not_carried(&draft.notes));
    }
    outcome()
}

/// Table of the settings that were not translated, with the reasons.
pub(crate) fn not_carried(notes: &[Note]) -> Table {
    let mut table = Table::new(["FILE", "LINE", "NOT CARRIED OVER", "WHY"]);
    for note in notes {
        let line = match note.line {
            0 => "-".to_owned(),
            line => line.to_string(),
        };
        table.row([note.file.clone(), line, note.what.clone(), note.why.clone()]);
    }
    table
}
