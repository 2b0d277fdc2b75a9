//! Converts networks of other tools into documents of virtual networks.
//!
//! | format | input |
//! |---|---|
//! | [`Format::Lab`] | `.lab` files of `carina lab`, and of rlite's demonstrator |
//! | [`Format::Containerlab`] | `*.clab.yml` of containerlab ([`yaml`]) |
//! | [`Format::Kathara`] | `lab.conf` of Kathará |
//! | [`Format::Rspec`] | requests in GENI RSpec, version 3 |
//! | [`Format::Graphml`] | GraphML, such as that of the Internet Topology Zoo |
//! | [`Format::Gml`] | GML, such as that of the Internet Topology Zoo |
//! | [`Format::Core`] | scenarios of CORE, in XML |
//! | [`Format::Netlab`] | `topology.yml` of netlab |
//!
//! What a document cannot express is noted. Links of a document have two ends, so a network with
//! more ends becomes a bridge with a link to each of them.

mod containerlab;
mod core;
mod draft;
mod gml;
mod graphml;
mod kathara;
mod lab;
mod netlab;
mod quantities;
mod rspec;
pub mod yaml;

use carina_topology::NodeChecks;
use carina_vnet::document::{Document, Rate};

use crate::Note;
use crate::error::ImportError;

/// A file format of other tools from which networks are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.lab` file of `carina lab`.
    Lab,
    /// `*.clab.yml` of containerlab.
    Containerlab,
    /// `lab.conf` of Kathará.
    Kathara,
    /// GENI RSpec 3.
    Rspec,
    /// GraphML.
    Graphml,
    /// GML.
    Gml,
    /// XML of CORE.
    Core,
    /// `topology.yml` of netlab.
    Netlab,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::Lab,
        Format::Containerlab,
        Format::Kathara,
        Format::Rspec,
        Format::Graphml,
        Format::Gml,
        Format::Core,
        Format::Netlab,
    ];

    /// The name of the format on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Lab => "lab",
            Format::Containerlab => "containerlab",
            Format::Kathara => "kathara",
            Format::Rspec => "rspec",
            Format::Graphml => "graphml",
            Format::Gml => "gml",
            Format::Core => "core",
            Format::Netlab => "netlab",
        }
    }

    /// The format that the name of a file implies; `None` if it implies none.
    #[must_use]
    pub fn of_file(name: &str) -> Option<Format> {
        let ends = |end: &str| name.ends_with(end);
        match name {
            "lab.conf" => Some(Format::Kathara),
            "topology.yml" => Some(Format::Netlab),
            _ if ends(".lab") => Some(Format::Lab),
            _ if ends(".yml") || ends(".yaml") => Some(Format::Containerlab),
            _ if ends(".rspec") => Some(Format::Rspec),
            _ if ends(".graphml") => Some(Format::Graphml),
            _ if ends(".gml") => Some(Format::Gml),
            _ => None,
        }
    }
}

/// A file that describes a network, to convert into a document, and the default rate of its links.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the file, for notes, and for a network without a name.
    pub file: &'a str,
    /// Content of the file.
    pub text: &'a str,
    /// Rate of links for which the file gives none.
    pub rate: Rate,
}

/// A document, and notes about the parts of the original that a document cannot express.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The document that the import made.
    pub document: Document,
    /// What was not translated.
    pub notes: Vec<Note>,
}

/// Converts a network of this format into a document. The nodes of a `.lab` file must pass
/// `checks`.
///
/// # Errors
/// The text is not in this format, or describes something that no document can express, such as too
/// many nodes.
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
        Format::Core => core::read(source),
        Format::Netlab => netlab::read(source),
    }
}

#[cfg(test)]
mod tests;
