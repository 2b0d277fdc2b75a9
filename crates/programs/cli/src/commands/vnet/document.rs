//! `carina vnet check`, `convert` and `schema`: documents that describe virtual networks.

use std::fs;
use std::path::{Path, PathBuf};

use carina_vnet::document::{Document, DocumentError, Form, XML_SCHEMA};
use carina_vnet_host::admission_check::check_document;
use carina_vnet_host::document_files::read_sources;
use clap::Args;
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, refused, usage};
use crate::report::{print_bytes, print_json, print_line};

/// Options that name the file of a network's document, and the format of the file.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// File with the document; its extension selects the format: .toml, .xml or .json
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the document: toml, xml or json [default: that of the file's extension]
    #[arg(long, value_name = "FORM")]
    from: Option<Form>,
}

impl Source {
    /// A file whose extension selects its format; `None` for other extensions.
    pub(super) fn of_path(file: &Path) -> Option<Source> {
        let from = Some(Form::of_path(file)?);
        Some(Source {
            file: file.to_owned(),
            from,
        })
    }

    /// Reads the document.
    ///
    /// # Errors
    /// The file cannot be read, or the document is wrong.
    pub(crate) fn read(&self) -> Result<Document, Failure> {
        let name = self.file.display();
        let form = self
            .from
            .or_else(|| Form::of_path(&self.file))
            .ok_or_else(|| {
                usage(format!(
                    "{name} does not end in .toml, .xml or .json: specify its format with --from"
                ))
            })?;
        let text = fs::read_to_string(&self.file).attempt(format!("reading {name}"))?;
        let wrong = |error: DocumentError| {
            let lines: Vec<String> = error
                .to_string()
                .lines()
                .map(|line| format!("{name}: {line}"))
                .collect();
            refused(lines.join("\n"))
        };
        let mut document = Document::read(&text, form).map_err(wrong)?;
        let directory = match self.file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        read_sources(&mut document, directory)
            .map_err(|error| refused(format!("{name}: {error}")))?;
        document.check().map_err(wrong)?;
        Ok(document)
    }
}

/// Checks a document, and prints how many nodes and links it asks for.
///
/// # Errors
/// The file cannot be read, or the document is wrong.
pub(super) fn check(shared: &Shared, source: &Source) -> Outcome {
    let document = source.read()?;
    check_document(&document)
        .map_err(|error| refused(format!("{}: {error}", source.file.display())))?;
    let name = &document.vnet.name;
    let (nodes, links) = (document.node.len(), document.link.len());
    let (access, tests) = (document.access.len(), document.test.len());
    if shared.json {
        return print_json(&json!({
            "name": name, "nodes": nodes, "links": links, "access": access, "tests": tests,
        }));
    }
    print_line(format!(
        "{name}: nodes {nodes}, links {links}, access points {access}, tests {tests}"
    ))
}

/// Writes a document in another format.
///
/// # Errors
/// Those of [`check`], or the output cannot be written.
pub(super) fn convert(source: &Source, to: Form) -> Outcome {
    let document = source.read()?;
    print_bytes(document.write(to).as_bytes())
}

/// Prints the XML schema (XSD) for documents that are written in XML.
///
/// # Errors
/// The output cannot be written.
pub(super) fn schema() -> Outcome {
    print_bytes(XML_SCHEMA.as_bytes())
}
