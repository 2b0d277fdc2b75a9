//! `carina vnet show`: draws a network.

use std::path::Path;

use carina_text::drawing::{Drawing, DrawnEdge, DrawnSystem};
use carina_vnet::document::Kind;
use carina_vnet::host_part::{LinkState, NodeState};
use carina_vnet::report::VnetReport;

use super::network::report_of;
use super::roles::inside;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::print_bytes;

/// Draws a network to a file or standard output.
///
/// # Errors
/// There is no such network, or the file cannot be written.
pub(super) fn show(
    shared: &Shared,
    name: Option<&str>,
    file: Option<&Path>,
    operator: &OperatorArgs,
) -> Outcome {
    let report = match operator.client(shared)? {
        Some(vno) => inside::report(&vno, name)?,
        None => report_of(shared, name)?,
    };
    let text = svg(&report);
    match file {
        None => print_bytes(text.as_bytes()),
        Some(file) => std::fs::write(file, text).attempt(format!("writing {}", file.display())),
    }
}

/// Draws nodes with their kinds and links with their rates, as SVG. What is not up is dashed.
pub(super) fn svg(report: &VnetReport) -> String {
    let systems = report.nodes.iter().map(|node| DrawnSystem {
        name: node.name.clone(),
        text: match node.kind {
            Kind::Vm => "VM".to_owned(),
            Kind::Namespace => "namespace".to_owned(),
        },
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
    drawing.svg(&format!("network {}", report.name))
}
