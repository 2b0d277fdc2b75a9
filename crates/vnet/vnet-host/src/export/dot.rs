//! Writes the language of Graphviz. Names of nodes and interfaces contain nothing that needs
//! quoting.

use std::fmt::Write;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{LinkState, NodeState};

use super::end;
use carina_vnet::report::VnetReport;

pub(super) fn write(report: &VnetReport) -> String {
    let mut text = format!("graph \"{}\" {{\n  node [shape=box];\n", report.name);
    for node in &report.nodes {
        let kind = match node.kind {
            Kind::Vm => "VM",
            Kind::Namespace => "namespace",
            Kind::Bridge => "bridge",
        };
        let style = style(node.state == NodeState::Up);
        let _ = writeln!(
            text,
            "  \"{0}\" [label=\"{0}\\n{kind}\"{style}];",
            node.name
        );
    }
    for link in &report.links {
        let ((one, first), (other, second)) = (end(link, 0), end(link, 1));
        let style = style(link.state == LinkState::Up);
        let _ = writeln!(
            text,
            "  \"{one}\" -- \"{other}\" [label=\"{}\", taillabel=\"{first}\", \
             headlabel=\"{second}\"{style}];",
            link.rate
        );
    }
    text.push_str("}\n");
    text
}

fn style(is_up: bool) -> &'static str {
    if is_up { "" } else { ", style=dashed" }
}
