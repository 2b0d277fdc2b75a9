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
    /// Why this host cannot make the network, and what it could make; `None` if it can.
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
    /// The reason for the step, or a description of what is made.
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
        .filter(|it| after.node(&it.name).is_none())
    {
        let subject = format!("node {}", node.name);
        let reason = "the document has no such node".to_owned();
        planned.push(step(Action::Remove, subject, reason));
    }
    for link in &after.links {
        let old = before.links.iter().find(|it| it.number == link.number);
        planned.extend(steps_of_link(&steps, old, link));
    }
    let goes = |link: &&LinkPart| after.links.iter().all(|it| it.number != link.number);
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
mod tests {
    use carina_vnet::document::Form;

    use carina_vnet::host_part::HostLimits;

    use super::*;
    use crate::admission::Capacity;

    fn room() -> AdmissionCheck {
        AdmissionCheck {
            capacity: Capacity {
                cpus: 4,
                memory_mib: 1000,
                nics: 0,
            },
            limits: HostLimits {
                member_memory_mib: 300,
                interfaces_max: 16,
                ..HostLimits::none()
            },
        }
    }

    fn document(text: &str) -> Document {
        let head = "[vnet]\nname = \"x\"\n";
        Document::read(&format!("{head}{text}"), Form::Toml).unwrap()
    }

    fn links(pairs: &[&str], rate: &str) -> String {
        let link = |pair: &&str| {
            let (one, other) = pair.split_once(' ').unwrap();
            format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"{rate}\"\n")
        };
        pairs.iter().map(link).collect()
    }

    fn record(text: &str) -> Record {
        let document = document(text);
        let layout = Layout::of(&document, &Layout::default());
        record_of(&document, VnetId::new(7), 1, layout).unwrap()
    }

    fn lines(before: Option<&str>, after: &str) -> Vec<String> {
        let records: Vec<Record> = before.map(record).into_iter().collect();
        let plan = Plan::of(&document(after), &records, &room()).unwrap();
        assert_eq!((plan.refusal, plan.is_there), (None, before.is_some()));
        let line = |it: &PlannedStep| format!("{} {}: {}", it.action.sign(), it.subject, it.reason);
        plan.steps.iter().map(line).collect()
    }

    const NODES: &str = "[node.a]\n[node.b]\nkind = \"namespace\"\n[node.c]\n";

    #[test]
    fn new_network_is_all_additions() {
        let text = format!("{NODES}{}", links(&["a b"], "5Mbps"));
        assert_eq!(
            lines(None, &text),
            [
                "+ node a: VM, 1 processor, 128 MiB, clone",
                "+ node b: namespace",
                "+ node c: VM, 1 processor, 128 MiB, clone",
                "+ link a:eth0 -- b:eth0: 5Mbps, ipip",
            ]
        );
        assert!(lines(Some(&text), &text).is_empty());
    }

    #[test]
    fn link_that_comes_or_goes_changes_its_ends() {
        let [one, two] = [&["a b"][..], &["a b", "b c"]];
        let one = format!("{NODES}{}", links(one, "5Mbps"));
        let two = format!("{NODES}{}", links(two, "5Mbps"));
        assert_eq!(
            lines(Some(&one), &two),
            [
                "~ node a: a route more",
                "~ node b: gets eth1 (10.0.0.5/30)",
                "~ node c: gets eth0 (10.0.0.6/30); a route more",
                "+ link b:eth1 -- c:eth0: 5Mbps, ipip",
            ]
        );
        let back = lines(Some(&two), &one);
        assert!(
            back.contains(&"~ node b: loses eth1".to_owned()),
            "{back:?}"
        );
        assert_eq!(
            back[3],
            "- link b:eth1 -- c:eth0: the document has no such link"
        );
    }

    #[test]
    fn what_needs_a_restart_is_replaced_with_its_links() {
        let old = format!("{NODES}{}", links(&["a b"], "5Mbps"));
        let text = NODES.replacen("[node.a]\n", "[node.a]\nmemory = 256\ncpus = 2\n", 1);
        let new = format!("{text}{}", links(&["a b"], "5Mbps"));
        assert_eq!(
            lines(Some(&old), &new),
            [
                "-/+ node a: processors 1 -> 2; memory 128 MiB -> 256 MiB",
                "~ node b: the links of eth0 are recreated",
                "-/+ link a:eth0 -- b:eth0: node a is recreated",
            ]
        );
    }

    #[test]
    fn node_that_has_ended_is_replaced_alone() {
        let text = format!("{NODES}{}", links(&["a b"], "5Mbps"));
        let ended = |name: &str| EndedNode {
            name: name.to_owned(),
            reason: "it has ended",
        };
        let planned = |after: &str| {
            let plan = Plan::of(&document(after), &[record(&text)], &room()).unwrap();
            let steps = plan.with_ended(&[ended("a"), ended("c")]).steps;
            let line =
                |it: PlannedStep| format!("{} {}: {}", it.action.sign(), it.subject, it.reason);
            steps.into_iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            planned(&text),
            ["-/+ node a: it has ended", "-/+ node c: it has ended"]
        );
        let more = format!("{text}{}", links(&["b c"], "5Mbps"));
        let steps = planned(&more);
        assert_eq!(steps[0], "-/+ node a: it has ended; a route more");
        let less = text.replace("[node.c]\n", "");
        assert_eq!(
            planned(&less),
            [
                "- node c: the document has no such node",
                "-/+ node a: it has ended"
            ]
        );
    }

    #[test]
    fn rates_change_in_place_and_carriers_anew() {
        let old = format!("{NODES}{}", links(&["a b"], "5Mbps"));
        let new = format!("{NODES}{}as = \"gre\"\n", links(&["a b"], "9Mbps"));
        let test = "[[test]]\nping = [\"a\", \"b\"]\n";
        assert_eq!(
            lines(Some(&old), &format!("{new}{test}")),
            [
                "~ node a: MTU of eth0 1480 -> 1458; the links of eth0 are recreated",
                "~ node b: MTU of eth0 1480 -> 1458; the links of eth0 are recreated",
                "-/+ link a:eth0 -- b:eth0: rate 5Mbps -> 9Mbps; ipip -> gre",
                "~ tests: 0 -> 1",
            ]
        );
        let faster = format!("{NODES}{}", links(&["a b"], "9Mbps"));
        assert_eq!(
            lines(Some(&old), &faster),
            ["~ link a:eth0 -- b:eth0: rate 5Mbps -> 9Mbps"]
        );
        let own = format!(
            "{NODES}{}as = \"gre\"\nmtu = 9000\naddresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
             addresses6 = [\"2001:db8::1/64\", \"2001:db8::2/64\"]\n",
            links(&["a b"], "9Mbps")
        );
        assert_eq!(
            lines(Some(&new), &own)[1..],
            [
                "~ node b: address of eth0 10.0.0.2/30 -> 10.9.0.2/24; IPv6 address of eth0 none \
                 -> 2001:db8::2/64; MTU of eth0 1458 -> 9000; the links of eth0 are recreated",
                "-/+ link a:eth0 -- b:eth0: the MTU or the addresses of its ends change",
            ]
        );
        let late = format!("{old}delay = \"10ms\"\n");
        assert_eq!(
            lines(Some(&old), &late),
            ["~ link a:eth0 -- b:eth0: impairment none -> delay=10ms"]
        );
        let new_link = lines(None, &late).pop();
        assert_eq!(
            new_link.as_deref(),
            Some("+ link a:eth0 -- b:eth0: 5Mbps, ipip, delay=10ms")
        );
        let leased = lines(Some(&old), &format!("lease = \"2h\"\n{old}"));
        assert_eq!(leased, ["~ lease: none -> 2h"]);
    }

    #[test]
    fn what_does_not_fit_is_planned_with_the_reason() {
        let text = "[node.a]\nmemory = 2000\n";
        let plan = Plan::of(&document(text), &[], &room()).unwrap();
        let refusal = plan.refusal.unwrap();
        assert!(refusal.contains("2000 MiB"), "{refusal}");
        assert_eq!(plan.steps.len(), 1);
        // Limits that only this host knows are also checked.
        for (text, words) in [
            (
                "[node.a]\nimage = \"debian\"\n".to_owned(),
                "image \"debian\"",
            ),
            (
                format!(
                    "[node.a]\n[node.b]\n{}as = \"dif\"\n",
                    links(&["a b"], "5Mbps")
                ),
                "needs 300",
            ),
            (
                format!("[node.a]\n[node.b]\n{}", links(&["a b"; 20], "1Mbps")),
                "20 interfaces",
            ),
        ] {
            let refusal = Plan::of(&document(&text), &[], &room()).unwrap().refusal;
            assert!(
                refusal.as_ref().is_some_and(|it| it.contains(words)),
                "{refusal:?}"
            );
        }
        // Resources that the network itself has now count as free.
        let records = [record("[node.a]\nmemory = 900\n")];
        let more = document("[node.a]\nmemory = 950\n");
        let plan = Plan::of(&more, &records, &room()).unwrap();
        assert_eq!(
            (plan.refusal, plan.steps[0].action),
            (None, Action::Replace)
        );
    }

    #[test]
    fn network_without_routes_is_noted() {
        let nodes = "[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n[node.c]\n";
        let text = |pairs: &[&str]| format!("{nodes}{}", links(pairs, "1Mbps"));
        // Neighbours need no routes.
        let mut part = record(&text(&["a b", "b a"])).part;
        part.nodes.iter_mut().for_each(|node| node.routes.clear());
        assert_eq!(notes(&part), Vec::<String>::new());
        let mut part = record(&text(&["a b", "b c"])).part;
        assert_eq!(notes(&part), Vec::<String>::new());
        part.nodes.iter_mut().for_each(|node| node.routes.clear());
        assert_eq!(notes(&part), [NO_ROUTES]);
    }
}
