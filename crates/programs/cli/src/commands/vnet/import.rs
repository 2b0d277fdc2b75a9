//! `carina vnet import`: converts networks of other tools into documents.

use std::fs;
use std::path::PathBuf;

use carina_import::vnets::{self, Format, Imported, Source};
use carina_lab::CarinaNode;
use carina_vnet::document::{Form, Rate};
use serde_json::json;

use crate::Shared;
use crate::argument::ArgumentError;
use crate::commands::import::not_carried;
use crate::failure::{Attempt, Outcome, refused, usage};
use crate::report::{print_bytes, print_json, progress};

/// Options of `carina vnet import`: the file to convert, its format, and the format to write.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// File to import. Its name selects the format: .lab, .yml or .yaml (containerlab),
    /// topology.yml (netlab), lab.conf (kathara), .rspec, .graphml, .gml; other names need --from
    file: PathBuf,
    /// Format of the file, in place of the one that its name selects: lab, containerlab, kathara,
    /// rspec, graphml, gml, core, netlab
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    from: Option<Format>,
    /// Format to write: toml, xml or json
    #[arg(long, value_name = "FORM", default_value = "toml")]
    to: Form,
    /// Rate of links for which the file gives none, such as 1Gbps
    #[arg(long, default_value = "100Mbps")]
    rate: Rate,
    /// Write the document to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn format(text: &str) -> Result<Format, ArgumentError> {
    let found = Format::ALL.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        ArgumentError::Format(known.join(", "))
    })
}

/// Reads a network of another tool, and writes it as a document.
///
/// # Errors
/// The file cannot be read, is not in the expected format, or nothing in it could be converted.
pub(crate) fn run(shared: &Shared, args: &ImportArgs) -> Outcome {
    let file = args.file.display().to_string();
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let format = args
        .from
        .or_else(|| Format::of_file(&name))
        .ok_or_else(|| {
            usage(format!(
                "{file}: the name does not tell the format; specify it with --from FORMAT"
            ))
        })?;
    let text = fs::read_to_string(&args.file).attempt(format!("reading {file}"))?;
    let source = Source {
        file: &file,
        text: &text,
        rate: args.rate,
    };
    let Imported { document, notes } = vnets::read(format, source, &CarinaNode).map_err(refused)?;
    let written = document.write(args.to);
    if let Some(out) = &args.out {
        fs::write(out, &written).attempt(format!("writing {}", out.display()))?;
    }
    if shared.json {
        let out = args.out.as_ref().map(|out| out.display().to_string());
        return print_json(&json!({ "document": document, "out": out, "not_carried": notes }));
    }
    if args.out.is_none() {
        print_bytes(written.as_bytes())?;
    }
    if !notes.is_empty() {
        progress(not_carried(&notes));
    }
    Ok(())
}
