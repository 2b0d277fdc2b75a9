//! Texts of plans: descriptions and differences.

use std::fmt::{Display, Write};

use carina_vnet::document::{Document, Kind, Start};
use carina_vnet::host_part::{Far, InterfacePart, LinkPart, NodePart};

use super::{Action, PlannedStep, step};

/// Description of a node to be made.
pub(super) fn node_words(node: &NodePart) -> String {
    let start = start_words(&node.start);
    format!("{}{start}", system_words(node))
}

fn start_words(start: &Start) -> String {
    let mut words = String::new();
    if let Some(filesystem) = &start.filesystem {
        let _ = write!(words, ", file system over {filesystem}");
    }
    for (count, one, more) in [
        (start.files.len(), "file", "files"),
        (start.exec.len(), "command", "commands"),
    ] {
        match count {
            0 => {}
            1 => {
                let _ = write!(words, ", 1 {one}");
            }
            count => {
                let _ = write!(words, ", {count} {more}");
            }
        }
    }
    words
}

fn system_words(node: &NodePart) -> String {
    match node.kind {
        Kind::Namespace => "namespace".to_owned(),
        Kind::Bridge if node.has_loop => "bridge with a spanning tree".to_owned(),
        Kind::Bridge => "bridge".to_owned(),
        Kind::Vm => {
            let processors = match node.cpus {
                1 => "1 processor".to_owned(),
                cpus => format!("{cpus} processors"),
            };
            let image = match node.image.as_str() {
                "carina" => String::new(),
                image => format!(", image {image}"),
            };
            let (memory, boot) = (node.memory_mib, node.boot.word());
            format!("VM, {processors}, {memory} MiB, {boot}{image}")
        }
    }
}

/// Whether the image of a machine contains a Carina node, which members of DIFs need, as text.
fn has_node(node: &NodePart) -> &'static str {
    if node.founder.is_some() && node.kind == Kind::Vm {
        "inside"
    } else {
        "none"
    }
}

/// Why a node must be replaced: what differs between `old` and `new`.
pub(super) fn differences(old: &NodePart, new: &NodePart) -> String {
    let mib = |memory: u64| format!("{memory} MiB");
    let found = [
        change("kind", old.kind.word(), new.kind.word()),
        change("image", &old.image, &new.image),
        change("processors", old.cpus, new.cpus),
        change("memory", mib(old.memory_mib), mib(new.memory_mib)),
        change("Carina node", has_node(old), has_node(new)),
        (old.start != new.start).then(|| "what it is given at its start changes".to_owned()),
    ];
    found.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The changes of a node that are possible while it runs.
pub(super) fn changes_of_node(old: &NodePart, new: &NodePart) -> Vec<String> {
    let mut changes = Vec::new();
    for interface in &new.interfaces {
        let name = &interface.name;
        match old.interface(name) {
            None => changes.push(format!("gets {name} ({})", interface.address)),
            Some(before) => {
                changes.extend(change(
                    &format!("address of {name}"),
                    before.address,
                    interface.address,
                ));
                let words = |part: &InterfacePart| {
                    part.address6
                        .map_or("none".to_owned(), |address6| address6.to_string())
                };
                changes.extend(change(
                    &format!("IPv6 address of {name}"),
                    words(before),
                    words(interface),
                ));
                changes.extend(change(&format!("MTU of {name}"), before.mtu, interface.mtu));
            }
        }
    }
    let interfaces = old.interfaces.iter();
    let lost = interfaces.filter(|interface| new.interface(&interface.name).is_none());
    changes.extend(lost.map(|lost| format!("loses {}", lost.name)));
    let new_routes = new
        .routes
        .iter()
        .filter(|route| !old.routes.contains(route));
    let old_routes = old
        .routes
        .iter()
        .filter(|route| !new.routes.contains(route));
    let new_routes6 = new
        .routes6
        .iter()
        .filter(|route6| !old.routes6.contains(route6));
    let old_routes6 = old
        .routes6
        .iter()
        .filter(|route6| !new.routes6.contains(route6));
    let new_routes = new_routes.count() + new_routes6.count();
    match (new_routes, old_routes.count() + old_routes6.count()) {
        (0, 0) => {}
        (1, 0) => changes.push("a route more".to_owned()),
        (more, 0) => changes.push(format!("{more} routes more")),
        (0, 1) => changes.push("a route less".to_owned()),
        (0, less) => changes.push(format!("{less} routes less")),
        (more, less) => changes.push(format!("routes: {more} for {less}")),
    }
    let founder = |node: &NodePart| node.founder.clone().unwrap_or_else(|| "none".to_owned());
    changes.extend(change("founder of its DIF", founder(old), founder(new)));
    let tree = |node: &NodePart| if node.has_loop { "on" } else { "off" };
    changes.extend(change("spanning tree", tree(old), tree(new)));
    if old.boot != new.boot {
        let boot = new.boot.word();
        changes.push(format!("boot = \"{boot}\" when it is made the next time"));
    }
    changes
}

/// The changes of a link that stays.
pub(super) fn changes_of_link(old: &LinkPart, new: &LinkPart) -> Vec<String> {
    let mut changes: Vec<String> = change("rate", old.rate, new.rate).into_iter().collect();
    if old.carrier != new.carrier {
        let (old, new) = (old.carrier.word(), new.carrier.word());
        changes.push(format!("{old} -> {new}"));
    }
    changes.extend(change("path", old.path.word(), new.path.word()));
    changes.extend(change("impairment", old.impairment, new.impairment));
    changes.extend(change("down", &old.timetable, &new.timetable));
    changes
}

/// The changes of a document that do not concern nodes or links.
pub(super) fn changes_of_document(old: &Document, new: &Document) -> Vec<PlannedStep> {
    let span = |document: &Document| {
        let lease = document.vnet.lease;
        lease.map_or_else(|| "none".to_owned(), |lease| lease.to_string())
    };
    let mut steps = Vec::new();
    let mut note = |subject: &str, reason: Option<String>| {
        steps.extend(reason.map(|reason| step(Action::Change, subject.to_owned(), reason)));
    };
    let arrow = |old: String, new: String| (old != new).then(|| format!("{old} -> {new}"));
    note("lease", arrow(span(old), span(new)));
    let queue = |document: &Document| String::from(document.vnet.on_insufficient);
    note("on_insufficient", arrow(queue(old), queue(new)));
    let counts = |old: usize, new: usize| {
        if old == new {
            format!("{new}, other ones")
        } else {
            format!("{old} -> {new}")
        }
    };
    let tests = || counts(old.test.len(), new.test.len());
    note("tests", (old.test != new.test).then(tests));
    let access = || counts(old.access.len(), new.access.len());
    note("access points", (old.access != new.access).then(access));
    steps
}

/// Description of a link to be made.
pub(super) fn link_words(link: &LinkPart) -> String {
    match &link.far {
        Far::Users(_) => format!("{} for each user", link.rate),
        Far::Nic(_) => "a card of the host".to_owned(),
        Far::Here(_) | Far::Host(_) => {
            let mut words = format!("{}, {}", link.rate, link.carrier.word());
            if !link.path.is_auto() {
                words = format!("{words}, path {}", link.path.word());
            }
            if !link.impairment.is_none() {
                words = format!("{words}, {}", link.impairment);
            }
            if !link.timetable.is_empty() {
                words = format!("{words}, down {}", link.timetable);
            }
            words
        }
    }
}

/// The two ends of a link, as text.
pub(super) fn ends(link: &LinkPart) -> String {
    format!("{} -- {}", link.near, link.far)
}

fn change<T: PartialEq + Display>(what: &str, old: T, new: T) -> Option<String> {
    (old != new).then(|| format!("{what} {old} -> {new}"))
}
