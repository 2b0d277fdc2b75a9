//! Draws a topology: systems as boxes with the lists of their DIFs, and links between the boxes.

use carina_text::drawing::{Drawing, DrawnEdge, DrawnSystem};
use carina_topology::{Dif, Topology};

/// Draws a topology as SVG.
pub fn svg(title: &str, topology: &Topology) -> String {
    let systems = topology.systems.iter().map(|system| {
        let member_of = |dif: &&Dif| dif.member(&system.name).is_some();
        let difs = topology.difs.iter().filter(member_of);
        let difs: Vec<&str> = difs.map(|dif| dif.name.as_str()).collect();
        DrawnSystem {
            name: system.name.clone(),
            text: difs.join(", "),
            is_machine: system.vm.is_some(),
            is_up: true,
        }
    });
    let edges = topology.edges().into_iter().map(|(a, b, text)| DrawnEdge {
        ends: [a, b],
        text,
        is_up: true,
    });
    let drawing = Drawing {
        systems: systems.collect(),
        edges: edges.collect(),
    };
    drawing.svg(title)
}
