//! Determines which links of a graph have back-pressure.

use std::collections::BTreeSet;

use crate::app::{PortList, WhenFull};
use crate::graph::{Graph, LinkName};

/// The links of a graph that hold back the app that puts frames on them: see [`WhenFull`].
pub(super) fn links_with_back_pressure(graph: &Graph) -> BTreeSet<LinkName> {
    let mut found = BTreeSet::new();
    loop {
        let is_more = |link: &&LinkName| !found.contains(*link) && waits(graph, link, &found);
        let more: Vec<LinkName> = graph.links.iter().filter(is_more).cloned().collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Whether the app that puts frames on a link waits while there is no room. `known` are the links
/// that are known to have back-pressure.
fn waits(graph: &Graph, link: &LinkName, known: &BTreeSet<LinkName>) -> bool {
    let Some(app) = graph.apps.get(&link.from.app) else {
        return false;
    };
    match app.config.when_full() {
        WhenFull::Drops => false,
        WhenFull::PullsNoMore => {
            let outputs = graph.links.iter();
            outputs
                .filter(|other| other.from.app == link.from.app)
                .count()
                == 1
        }
        WhenFull::Waits => {
            let ports = (app.config.inputs(), app.config.outputs());
            let (PortList::Named(inputs), PortList::Named(outputs)) = ports else {
                return false;
            };
            let number = outputs.iter().position(|port| port.name == link.from.port);
            let input = number.and_then(|number| inputs.get(number));
            known.iter().any(|other| {
                other.to.app == link.from.app
                    && input.is_some_and(|port| port.name == other.to.port)
            })
        }
    }
}

#[cfg(test)]
mod tests;
