//! Plans: what making or changing a network would do on this host.

mod reasons;

use carina_vnet::document::Document;
use carina_vnet::host_part::{HostPart, LinkPart, VnetId};
use carina_vnet::layout::Layout;
use serde::{Deserialize, Serialize};

use self::reasons::{
    changes_of_document, changes_of_link, changes_of_node, differences, ends, link_words,
    node_words,
};
use crate::admission_check::AdmissionCheck;
use crate::alone::record_of;
use crate::directory::{Record, Requester};
use crate::error::{Error, Result};
use crate::leftovers::EndedNode;
use crate::nics;
use crate::steps::Steps;

/// The steps with which this host would make or change a network, computed without carrying them
/// out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the network that would be made or changed.
    pub name: String,
    /// Whether the network exists already and would be changed.
    pub is_there: bool,
    /// Why this host cannot make the network, and which smaller request it could make; `None` if it
    /// can make the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// What the network will lack although this host can make it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The steps: nodes first, then links, then changes that make nothing. Unchanged nodes and
    /// links have no step.
    pub steps: Vec<PlannedStep>,
}

/// The note about a network that is too large for routes.
pub(crate) const NO_ROUTES: &str = "the nodes get no routes, because they would need more than \
                                    2,000,000: only nodes with a common link reach each other";

fn notes(part: &HostPart) -> Vec<String> {
    let found = part.lacks_routes().then(|| NO_ROUTES.to_owned());
    found.into_iter().collect()
}

/// One step of a [`Plan`]: what happens to one node or link, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// What the step does with the node or link.
    pub action: Action,
    /// The node or link: `node r1`, `link r1:eth0 -- r2:eth0`.
    pub subject: String,
    /// The reason for the step, or a description of the part that the step makes.
    pub reason: String,
}

/// What a step does with a node or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Make the node or link.
    Add,
    /// Change the node or link while it runs.
    Change,
    /// Remove the node or link, and make it again.
    Replace,
    /// Remove the node or link.
    Remove,
}

impl Action {
    /// The sign of the action in a printed plan.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Action::Add => "+",
            Action::Change => "~",
            Action::Replace => "-/+",
            Action::Remove => "-",
        }
    }
}

impl Plan {
    /// Plans what `document` would change on a host that has the networks `records`.
    ///
    /// # Errors
    /// The document cannot be divided into parts. If the host merely cannot make it, the plan says
    /// so.
    pub fn of(document: &Document, records: &[Record], check: &AdmissionCheck) -> Result<Plan> {
        let document = &document.extended();
        let name = &document.vnet.name;
        let is_this = |record: &&Record| record.is_of_operator(name);
        let others = records.iter().filter(|record| !is_this(record));
        let before = records.iter().find(is_this);
        let vnet = before.map_or(VnetId::new(0), |record| record.vnet);
        let nothing = Layout::default();
        let layout = match before.map(|record| &record.wanted) {
            Some(Requester::Here { layout, .. }) => layout,
            Some(Requester::Provider { .. }) | None => &nothing,
        };
        let layout = Layout::of(document, layout);
        let mut after = record_of(document, vnet, 0, layout)?;
        let others = others.map(|record| &record.part);
        let refusal = match check.check_network(document, &after.part, others) {
            Ok(()) => None,
            Err(Error::NotAdmitted { reason, .. }) => Some(reason),
            Err(error) if error.is_final() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        nics::keep(&mut after.part, before.map(|record| &record.part));
        let empty = HostPart {
            nodes: Vec::new(),
            links: Vec::new(),
            ..after.part.clone()
        };
        let mut steps = steps(before.map_or(&empty, |record| &record.part), &after.part);
        if let Some(before) = before.and_then(Record::document) {
            steps.extend(changes_of_document(before, document));
        }
        Ok(Plan {
            name: name.clone(),
            is_there: before.is_some(),
            refusal,
            notes: notes(&after.part),
            steps,
        })
    }

    /// Adds steps for nodes that have ended although the network has them: they are made again.
    #[must_use]
    pub fn with_ended(mut self, ended: &[EndedNode]) -> Plan {
        for EndedNode { name, reason } in ended {
            let subject = format!("node {name}");
            let mut steps = self.steps.iter_mut();
            match steps.find(|step| step.subject == subject) {
                Some(step) if step.action == Action::Change => {
                    step.action = Action::Replace;
                    step.reason = format!("{reason}; {}", step.reason);
                }
                // The node already has a step that removes it or makes it again.
                Some(_) => {}
                None => {
                    let is_node = |step: &PlannedStep| step.subject.starts_with("node ");
                    let place = self.steps.iter().take_while(|step| is_node(step)).count();
                    let step = step(Action::Replace, subject, (*reason).to_owned());
                    self.steps.insert(place, step);
                }
            }
        }
        self
    }

    /// Number of steps with this action.
    #[must_use]
    pub fn count(&self, action: Action) -> usize {
        let steps = self.steps.iter();
        steps.filter(|step| step.action == action).count()
    }
}

/// The steps from one part to another.
fn steps(before: &HostPart, after: &HostPart) -> Vec<PlannedStep> {
    let steps = Steps::between(before, after);
    let mut planned = Vec::new();
    for node in &after.nodes {
        let name = &node.name;
        let subject = format!("node {name}");
        let (is_made, is_ended) = (steps.made.contains(name), steps.ended.contains(name));
        let (action, reason) = match before.node(name) {
            Some(old) if is_ended => (Action::Replace, differences(old, node)),
            Some(old) if steps.changed.contains(name) => {
                let mut changes = changes_of_node(old, node);
                // A namespace's interface vanishes with the port at the other end of its veth.
                changes.extend(rewired(&steps, after, name));
                (Action::Change, changes.join("; "))
            }
            _ if is_made => (Action::Add, node_words(node)),
            _ => continue,
        };
        planned.push(step(action, subject, reason));
    }
    for node in before
        .nodes
        .iter()
        .filter(|node| after.node(&node.name).is_none())
    {
        let subject = format!("node {}", node.name);
        let reason = "the document has no such node".to_owned();
        planned.push(step(Action::Remove, subject, reason));
    }
    for link in &after.links {
        let old = before.link(link.number);
        planned.extend(steps_of_link(&steps, old, link));
    }
    let goes = |link: &&LinkPart| {
        after
            .links
            .iter()
            .all(|candidate| candidate.number != link.number)
    };
    planned.extend(before.links.iter().filter(goes).map(removal));
    planned
}

fn steps_of_link(steps: &Steps, old: Option<&LinkPart>, link: &LinkPart) -> Vec<PlannedStep> {
    let subject = format!("link {}", ends(link));
    let addition = || step(Action::Add, subject.clone(), link_words(link));
    match old {
        None => vec![addition()],
        Some(old) if ends(old) != ends(link) => vec![removal(old), addition()],
        Some(old) if steps.linked.contains(&link.number) => {
            let anew = link.ends().filter(|end| steps.ended.contains(&end.node));
            let anew: Vec<&str> = anew.map(|end| end.node.as_str()).collect();
            let changes = changes_of_link(old, link);
            let reason = match (anew.is_empty(), changes.is_empty()) {
                (false, _) => format!("node {} is recreated", anew.join(" and ")),
                (true, false) => changes.join("; "),
                (true, true) => "the MTU or the addresses of its ends change".to_owned(),
            };
            vec![step(Action::Replace, subject, reason)]
        }
        Some(old) => match changes_of_link(old, link) {
            changes if changes.is_empty() => Vec::new(),
            changes => vec![step(Action::Change, subject, changes.join("; "))],
        },
    }
}

fn removal(link: &LinkPart) -> PlannedStep {
    let reason = "the document has no such link".to_owned();
    step(Action::Remove, format!("link {}", ends(link)), reason)
}

/// Describes which interfaces of a node get their links made again, because the node at the other
/// end is replaced. `None` without such links.
fn rewired(steps: &Steps, part: &HostPart, node: &str) -> Option<String> {
    let links = part.links.iter();
    let anew = links.filter(|link| {
        let is_linked_anew =
            steps.linked.contains(&link.number) && steps.unlinked.contains(&link.number);
        is_linked_anew && link.ends().any(|end| end.node == node)
    });
    let ends = anew
        .flat_map(|link| link.ends())
        .filter(|end| end.node == node);
    let names: Vec<&str> = ends.map(|end| end.interface.as_str()).collect();
    if names.is_empty() {
        None
    } else {
        Some(format!("the links of {} are recreated", names.join(", ")))
    }
}

fn step(action: Action, subject: String, reason: String) -> PlannedStep {
    PlannedStep {
        action,
        subject,
        reason,
    }
}

#[cfg(test)]
mod tests;
