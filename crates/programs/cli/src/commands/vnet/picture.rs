//! `carina vnet show`: draws a network, or what a document asks for.

use std::collections::BTreeMap;
use std::path::Path;

use carina_text::drawing::{Drawing, DrawnEdge, DrawnSystem};
use carina_vnet::document::{Document, Kind, Position};
use carina_vnet::host_part::{LinkState, NodeState};
use carina_vnet::report::VnetReport;

use super::document::Source;
use super::network::report_of;
use super::roles::inside;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::print_bytes;

/// Draws a network to a file or standard output. A `name` that ends in the extension of a document
/// is the file of a document, which need not be up: names of networks have no dots.
///
/// # Errors
/// There is no such network, the document is wrong, or the file cannot be written.
pub(super) fn show(
    shared: &Shared,
    name: Option<&str>,
    file: Option<&Path>,
    operator: &OperatorArgs,
) -> Outcome {
    let text = match name.and_then(|name| Source::of_path(Path::new(name))) {
        Some(source) => svg_of_document(&source.read()?),
        None => svg(&match operator.client(shared)? {
            Some(vno) => inside::report(&vno, name)?,
            None => report_of(shared, name)?,
        }),
    };
    match file {
        None => print_bytes(text.as_bytes()),
        Some(file) => std::fs::write(file, text).attempt(format!("writing {}", file.display())),
    }
}

/// Draws nodes with their kinds and links with their rates, as SVG. What is not up is dashed.
pub(super) fn svg(report: &VnetReport) -> String {
    let systems = report.nodes.iter().map(|node| DrawnSystem {
        name: node.name.clone(),
        text: kind_word(node.kind).to_owned(),
        is_machine: node.kind == Kind::Vm,
        is_up: node.state == NodeState::Up,
    });
    let edges = report.links.iter().map(|link| {
        let node = |end: &String| end.split(':').next().unwrap_or_default().to_owned();
        DrawnEdge {
            ends: [node(&link.ends[0]), node(&link.ends[1])],
            text: link.rate.to_string(),
            is_up: link.state == LinkState::Up,
        }
    });
    let drawing = Drawing {
        systems: systems.collect(),
        edges: edges.collect(),
    };
    let nodes = report.nodes.iter();
    let places = places(nodes.map(|node| (&node.name, node.position)));
    drawing.svg_at(&format!("network {}", report.name), &places)
}

/// Draws the nodes and links that a document asks for, as SVG. They have no state: nothing is
/// dashed.
fn svg_of_document(document: &Document) -> String {
    let systems = document.node.iter().map(|(name, node)| {
        let kind = node.kind.or(document.defaults.kind).unwrap_or(Kind::Vm);
        DrawnSystem {
            name: name.clone(),
            text: kind_word(kind).to_owned(),
            is_machine: kind == Kind::Vm,
            is_up: true,
        }
    });
    let edges = document.link.iter().map(|link| DrawnEdge {
        ends: link.ends.each_ref().map(|end| end.node.clone()),
        text: link.rate.to_string(),
        is_up: true,
    });
    let drawing = Drawing {
        systems: systems.collect(),
        edges: edges.collect(),
    };
    let nodes = document.node.iter();
    let places = places(nodes.map(|(name, node)| (name, node.position)));
    let title = format!("document of network {}", document.vnet.name);
    drawing.svg_at(&title, &places)
}

/// The places of the nodes that have a position.
fn places<'a>(
    nodes: impl Iterator<Item = (&'a String, Option<Position>)>,
) -> BTreeMap<String, (f64, f64)> {
    let placed = nodes.filter_map(|(name, position)| {
        let at = position?;
        Some((name.clone(), (at.x(), at.y())))
    });
    placed.collect()
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Vm => "VM",
        Kind::Namespace => "namespace",
        Kind::Bridge => "bridge",
    }
}
