//! `carina vnet export`: writes a network in the format of another tool.

use std::path::PathBuf;

use carina_vnet_host::export::ExportFormat;

use super::network::report_of;
use super::picture::svg;
use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome};
use crate::report::print_bytes;

/// Options of `carina vnet export`: the network to write, and in which format.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Name of the existing network to write [default: the only network on this host]
    name: Option<String>,
    /// Format to write: rspec, rfc8345, dot, containerlab or svg
    #[arg(long = "to", value_name = "FORMAT", value_parser = wanted)]
    to: ExportTarget,
    /// Write to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The format to write: a text format, or an SVG drawing.
#[derive(Clone, Copy, Debug)]
enum ExportTarget {
    Words(ExportFormat),
    Picture,
}

fn wanted(text: &str) -> Result<ExportTarget, ArgumentError> {
    let mut all = ExportFormat::ALL.into_iter();
    match all.find(|format| format.name() == text) {
        Some(format) => Ok(ExportTarget::Words(format)),
        None if text == "svg" => Ok(ExportTarget::Picture),
        None => {
            let known = ExportFormat::ALL.map(ExportFormat::name).join(", ");
            Err(ArgumentError::Format(format!("{known}, svg")))
        }
    }
}

/// Writes a network.
///
/// # Errors
/// There is no such network, or the file cannot be written.
pub(super) fn run(shared: &Shared, args: &ExportArgs) -> Outcome {
    let report = report_of(shared, args.name.as_deref())?;
    let text = match args.to {
        ExportTarget::Words(format) => format.write(&report),
        ExportTarget::Picture => svg(&report),
    };
    match &args.out {
        None => print_bytes(text.as_bytes()),
        Some(file) => std::fs::write(file, text).attempt(format!("writing {}", file.display())),
    }
}
