//! Redirects the links of a node that moves while the node is paused, before the provider's new
//! part arrives.
//!
//! ```text
//!   source                            destination
//!     allocates flows for its links     allocates flows for its links
//!     opens what its links will need    opens its ports; links without an end here before lead
//!                                       to the node already
//!     the guest pauses: its links       the guest has arrived: all its links lead to it
//!     lead to the destination
//! ```
//!
//! Frames that arrive before the guest resumes wait at its ports. Ports keep their names: the
//! change to the new part renames them. If the node stays at its source, both hosts undo this.

use std::collections::BTreeSet;
use std::time::Duration;

use carina_frame_engine::Graph;
use carina_vnet::host_part::{HostPart, LinkEnd, LinkPart};

use super::{Vnet, lock};
use crate::error::Result;
use crate::graph::{add_port_app, add_underlay_port};
use crate::port_selection::PortSelection;
use crate::steps::Steps;

impl Vnet {
    /// Makes the source's engine open what the links of a node need after its move, and returns the
    /// graph for the moment at which the guest pauses.
    pub(super) fn prepare_leaving(
        &self,
        current: &HostPart,
        next: &HostPart,
        node: &str,
    ) -> Result<Graph> {
        let mut ahead = with_links_of(node, current, next);
        ahead.nodes.retain(|candidate| candidate.name != node);
        let own = links_of(node, current, &ahead);
        self.flows.keep_also(&own)?;
        // A flow that is allocated later is used as soon as the next part is here.
        self.flows.wait(&own, FLOWS);
        let before = lock(&self.second).clone();
        let ports = ports_of_stayers(current, &ahead, &before);
        let mut graph = self.graph_at(&ahead, &ports)?;
        // Closing the node's ports here would take time; the next part does that.
        for end in ends_at(current, node) {
            add_port_app(&mut graph, end, &before);
        }
        let mut opened = self.graph(current)?;
        if let Some(underlay) = &self.underlay {
            add_underlay_port(&mut opened, &underlay.read_port()?);
        }
        self.plane.become_graph(opened)?;
        Ok(graph)
    }

    /// Makes the destination's engine open the ports of a node that arrives. Links that have no end
    /// on this host before the move lead to the node from now on.
    pub(super) fn prepare_coming(
        &self,
        current: &HostPart,
        next: &HostPart,
        node: &str,
        ports: &PortSelection,
    ) -> Result<()> {
        self.flows.keep_also(&links_of(node, next, next))?;
        let mut beside = current.clone();
        beside.nodes.extend(next.node(node).cloned());
        let is_new = |link: &&LinkPart| current.link(link.number).is_none();
        let new = next.links.iter().filter(|link| is_at(link, node));
        beside.links.extend(new.filter(is_new).cloned());
        // An end of a link that has another end here may have the same number as that one.
        let (ends, mut mixed) = (ends_at(next, node), lock(&self.second).clone());
        for end in &ends {
            if current.link(end.0).is_none() {
                mixed.set(*end, ports.is_second(*end));
            }
        }
        let mut graph = self.graph_at(&beside, &mixed)?;
        for end in ends {
            add_port_app(&mut graph, end, ports);
        }
        self.plane.become_graph(graph)
    }

    /// Makes all links of a node that has arrived lead to it. Does nothing if the part has changed
    /// since the node was awaited, or is being changed.
    pub(super) fn lead_to_arrived(
        &self,
        next: &HostPart,
        node: &str,
        came: &[(LinkEnd, bool)],
    ) -> Result<()> {
        let Ok(current) = self.part.try_lock() else {
            return Ok(());
        };
        if current.generation != next.generation || current.node(node).is_some() {
            return Ok(());
        }
        let mut ahead = with_links_of(node, &current, next);
        ahead.nodes.extend(next.node(node).cloned());
        let before = lock(&self.second).clone();
        let mut ports = ports_of_stayers(&current, &ahead, &before);
        for (end, is_second) in came {
            ports.set(*end, *is_second);
        }
        self.plane.become_graph(self.graph_at(&ahead, &ports)?)
    }

    /// Makes the links lead to where the current part has them, because a node does not move.
    pub(super) fn lead_back(&self, current: &HostPart) {
        let kept = self.flows.keep(current);
        let led = kept.and_then(|()| self.graph(current));
        if let Err(error) = led.and_then(|graph| self.plane.become_graph(graph)) {
            let what = "links of a node that stays cannot be redirected";
            self.progress.tell(format!("{what}: {error}"));
        }
    }
}

/// The current part, with the links of one node as in the next part.
fn with_links_of(node: &str, current: &HostPart, next: &HostPart) -> HostPart {
    let all = current.links.iter().chain(&next.links);
    let moved: BTreeSet<u32> = all
        .filter(|link| is_at(link, node))
        .map(|link| link.number)
        .collect();
    let mut ahead = current.clone();
    ahead.links.retain(|link| !moved.contains(&link.number));
    let links = next.links.iter();
    ahead
        .links
        .extend(links.filter(|link| moved.contains(&link.number)).cloned());
    ahead
}

/// The links of a node in `has`, as they are in `part`, which may not have the node.
fn links_of(node: &str, has: &HostPart, part: &HostPart) -> Vec<LinkPart> {
    let own = has.links.iter().filter(|link| is_at(link, node));
    own.filter_map(|link| part.link(link.number).cloned())
        .collect()
}

fn is_at(link: &LinkPart, node: &str) -> bool {
    link.ends().any(|end| end.node == node)
}

fn ends_at(part: &HostPart, node: &str) -> Vec<LinkEnd> {
    let links = part.links.iter().flat_map(|link| {
        let ends = link.ends().enumerate();
        ends.map(move |(side, end)| ((link.number, side), end))
    });
    let own = links.filter(|(_, end)| end.node == node);
    own.map(|(end, _)| end).collect()
}

/// The ports after the move of the ends that stay, under the names that they have before it.
fn ports_of_stayers(current: &HostPart, ahead: &HostPart, before: &PortSelection) -> PortSelection {
    let mut ports = before.clone();
    for link in Steps::between(current, ahead).repointed {
        let [from, to] = link.side.map(|side| (link.number, side));
        if link.goes {
            ports.forget_end((link.number, 1 - from.1));
        }
        if from != to {
            ports.keep_name(from, to);
        }
    }
    ports
}

/// How long a node waits, before it is sent, for the flows that its links need afterwards.
const FLOWS: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use carina_vnet::host_part::Far;

    use super::*;
    use crate::steps::tests::divided;

    /// Names of the ports of a link's first and second end.
    fn names(ports: &PortSelection) -> [String; 2] {
        [0, 1].map(|side| ports.port((0, side)))
    }

    #[test]
    fn port_of_the_neighbour_keeps_its_name_while_a_node_moves() {
        let (both, a, b) = (divided(&["a", "b"]), divided(&["a"]), divided(&["b"]));
        let ports = PortSelection::default();
        let leaving = |node: &str, next: &HostPart| {
            let mut ahead = with_links_of(node, &both, next);
            ahead.nodes.retain(|candidate| candidate.name != node);
            assert!(matches!(&ahead.links[..], [link] if matches!(link.far, Far::Host(_))));
            names(&ports_of_stayers(&both, &ahead, &ports))
        };
        assert_eq!(leaving("b", &a)[0], "l0.0");
        assert_eq!(leaving("a", &b)[0], "l0.1");
        let mut ahead = with_links_of("a", &b, &both);
        ahead.nodes.extend(both.node("a").cloned());
        assert!(matches!(&ahead.links[..], [link] if matches!(link.far, Far::Here(_))));
        let mut ports = ports_of_stayers(&b, &ahead, &ports);
        ports.set((0, 0), true);
        assert_eq!(names(&ports), ["l0.0b", "l0.0"]);
    }

    #[test]
    fn links_of_other_nodes_stay_as_they_are() {
        let (both, a) = (divided(&["a", "b"]), divided(&["a"]));
        assert_eq!(with_links_of("c", &both, &a), both);
        assert_eq!(links_of("b", &both, &a), a.links);
        assert_eq!(links_of("c", &both, &a), []);
        assert_eq!(ends_at(&both, "b"), [(0, 1)]);
    }
}
