//! Networks of other tools as documents of virtual networks.
//!
//! | format | input |
//! |---|---|
//! | [`Format::Lab`] | `.lab` files of `carina lab`, and of rlite's demonstrator |
//! | [`Format::Containerlab`] | `*.clab.yml` of containerlab ([`yaml`]) |
//! | [`Format::Kathara`] | `lab.conf` of Kathará |
//! | [`Format::Rspec`] | requests in GENI RSpec, version 3 |
//! | [`Format::Graphml`] | GraphML, such as that of the Internet Topology Zoo |
//! | [`Format::Gml`] | GML, of the same collection |
//!
//! What a document cannot express is noted. A network of more than two ends becomes a node with a
//! link to each of them: a document's links have two ends.

mod containerlab;
mod draft;
mod gml;
mod graphml;
mod kathara;
mod lab;
mod rspec;
pub mod yaml;

use carina_topology::NodeChecks;
use carina_vnet::document::{Document, Rate};

use crate::Note;
use crate::error::ImportError;

/// What a text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `carina lab`.
    Lab,
    /// containerlab.
    Containerlab,
    /// Kathará.
    Kathara,
    /// GENI RSpec 3.
    Rspec,
    /// GraphML.
    Graphml,
    /// GML.
    Gml,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Lab,
        Format::Containerlab,
        Format::Kathara,
        Format::Rspec,
        Format::Graphml,
        Format::Gml,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Lab => "lab",
            Format::Containerlab => "containerlab",
            Format::Kathara => "kathara",
            Format::Rspec => "rspec",
            Format::Graphml => "graphml",
            Format::Gml => "gml",
        }
    }

    /// What the name of a file says it is.
    #[must_use]
    pub fn of_file(name: &str) -> Option<Format> {
        let ends = |end: &str| name.ends_with(end);
        match name {
            "lab.conf" => Some(Format::Kathara),
            _ if ends(".lab") => Some(Format::Lab),
            _ if ends(".yml") || ends(".yaml") => Some(Format::Containerlab),
            _ if ends(".rspec") => Some(Format::Rspec),
            _ if ends(".graphml") => Some(Format::Graphml),
            _ if ends(".gml") => Some(Format::Gml),
            _ => None,
        }
    }
}

/// What is read, and what it does not say itself.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name of the file, for notes and where the network has none of its own.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
    /// The rate of links that say none.
    pub rate: Rate,
}

/// A document, and what of the text is not in it.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The document.
    pub document: Document,
    /// What was not carried over.
    pub notes: Vec<Note>,
}

/// Reads a network. The nodes of a `.lab` file must pass `checks`.
///
/// # Errors
/// The text is not of the format, or describes what no document can, such as too many nodes.
pub fn read(
    format: Format,
    source: Source<'_>,
    checks: &dyn NodeChecks,
) -> Result<Imported, ImportError> {
    match format {
        Format::Lab => lab::read(source, checks),
        Format::Containerlab => containerlab::read(source),
        Format::Kathara => kathara::read(source),
        Format::Rspec => rspec::read(source),
        Format::Graphml => graphml::read(source),
        Format::Gml => gml::read(source),
    }
}

#[cfg(test)]
mod tests;
