//! Reads scenarios of CORE, the Common Open Research Emulator: `<devices>`, `<networks>` and
//! `<links>` with `<iface1>`, `<iface2>` and `<options>`. Delays and jitter are in microseconds,
//! bandwidths in bit/s, losses and duplicates in percent. (CORE, `corexml.py`)

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use carina_vnet::document::xml_tree::Element;
use carina_vnet::document::{
    Impairment, InterfaceAddress, InterfaceAddress6, Kind, LinkImpairment, Rate,
};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::graphml::{parse, wrong};
use super::quantities::{milliseconds, share};
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let root = parse(source)?;
    if root.local_name() != "scenario" {
        return Err(wrong(
            source,
            root.line,
            "the root element is no <scenario>",
        ));
    }
    let mut draft = Draft::new(source, Kind::Namespace);
    if let Some(name) = root.text("name") {
        draft.name(name);
    }
    let mut names = BTreeMap::new();
    for part in &root.children {
        match part.local_name() {
            "devices" => {
                for device in &part.children {
                    read_node(&mut draft, device, &mut names);
                }
            }
            "networks" => {
                for network in &part.children {
                    read_node(&mut draft, network, &mut names);
                }
            }
            "links" => {}
            other => draft.note(part.line, format!("<{}>", beginning(other)), OTHER),
        }
    }
    let links = root
        .children
        .iter()
        .filter(|child| child.local_name() == "links");
    for link in links.flat_map(|link| &link.children) {
        read_link(&mut draft, link, &names);
    }
    draft.finish()
}

/// Reads a device or a network. Networks of Ethernet become bridges.
fn read_node(draft: &mut Draft, node: &Element, names: &mut BTreeMap<String, String>) {
    let line = node.line;
    let Some(id) = node.text("id") else {
        return draft.note(line, "a node without id", "links refer to ids");
    };
    let label = node.text("name").unwrap_or(id);
    let name = draft.labelled(label, id, line);
    if node.local_name() == "network" {
        let kind = node.text("type").unwrap_or_default().to_ascii_uppercase();
        draft.node(&name, line).kind = Some(Kind::Bridge);
        if !matches!(kind.as_str(), "SWITCH" | "HUB" | "PEER_TO_PEER") {
            let what = format!("type {} of {}", beginning(&kind), beginning(&name));
            draft.note(
                line,
                what,
                "it is a bridge, to which all its ends are linked",
            );
        }
    }
    for child in &node.children {
        let other = child.local_name();
        if other == "position" {
            draft.place(
                &name,
                |key| child.text(key).filter(|_| key.len() == 1),
                line,
            );
        }
        if !matches!(other, "position" | "configservices") {
            let what = format!("<{}> of {}", beginning(other), beginning(&name));
            draft.note(child.line, what, SERVICES);
        }
    }
    names.insert(id.to_owned(), name);
}

fn read_link(draft: &mut Draft, link: &Element, names: &BTreeMap<String, String>) {
    let node = |keys: [&str; 2]| {
        let id = keys.iter().find_map(|key| link.text(key));
        id.and_then(|id| names.get(id))
    };
    // Versions before 7 wrote `node_one` and `interface_one`.
    let ends = [node(["node1", "node_one"]), node(["node2", "node_two"])];
    let [Some(one), Some(other)] = ends else {
        let what = "a link without two known nodes";
        return draft.note(link.line, what, "links are between two nodes");
    };
    let child = |keys: [&str; 2]| {
        let mut children = link.children.iter();
        children.find(|child| keys.contains(&child.local_name()))
    };
    let faces = [
        child(["iface1", "interface_one"]),
        child(["iface2", "interface_two"]),
    ];
    let name = |side: usize| faces[side].and_then(|face| face.text("name"));
    let addresses = faces.map(|face| face.and_then(address_of));
    let mut of = DraftLink {
        addresses: match addresses {
            [Some(one), Some(other)] => Some([one, other]),
            _ => None,
        },
        addresses6: match faces.map(|face| face.and_then(address6_of)) {
            [Some(one), Some(other)] => Some([one, other]),
            _ => None,
        },
        ..DraftLink::default()
    };
    if of.addresses.is_none() && addresses.iter().any(Option::is_some) {
        let what = format!("addresses of {} -- {}", beginning(one), beginning(other));
        draft.note(link.line, what, "a link has addresses at both of its ends");
    }
    if let Some(options) = child(["options", "options"]) {
        read_options(draft, options, &mut of);
    }
    let ends = [(one, name(0)), (other, name(1))];
    let ends = ends.map(|(node, interface)| DraftEnd { node, interface });
    draft.link(ends, of, link.line);
}

fn address_of(face: &Element) -> Option<InterfaceAddress> {
    let address: Ipv4Addr = face.text("ip4")?.trim().parse().ok()?;
    let bits = face.text("ip4_mask")?.trim().parse().ok()?;
    InterfaceAddress::new(address, bits)
}

fn address6_of(face: &Element) -> Option<InterfaceAddress6> {
    let address: Ipv6Addr = face.text("ip6")?.trim().parse().ok()?;
    let bits = face.text("ip6_mask")?.trim().parse().ok()?;
    InterfaceAddress6::new(address, bits)
}

fn read_options(draft: &mut Draft, options: &Element, of: &mut DraftLink) {
    let number = |key: &str| {
        let number: f64 = options.text(key)?.trim().parse().ok()?;
        Some(number).filter(|candidate| candidate.is_finite() && *candidate > 0.0)
    };
    of.rate = number("bandwidth").and_then(|bps| Rate::from_bps(bps as u64));
    let us = |key: &str| number(key).and_then(|us| milliseconds(us / 1000.0));
    let percent = |keys: [&str; 2]| {
        let percent = keys.iter().find_map(|key| number(key));
        percent.and_then(|percent| share(percent / 100.0))
    };
    let side = Impairment {
        delay: us("delay"),
        jitter: us("jitter"),
        loss: percent(["loss", "per"]),
        duplicate: percent(["dup", "duplicate"]),
        ..Impairment::default()
    };
    let side = Some(side).filter(|candidate| *candidate != Impairment::default());
    let is_one_way = matches!(options.text("unidirectional"), Some("1" | "true" | "True"));
    of.impairment = LinkImpairment {
        there: side,
        back: side.filter(|_| !is_one_way),
    };
    if options.text("key").is_some() || options.text("mer").is_some() {
        draft.note(options.line, "key, mer or burst of a link", OTHER);
    }
}

const OTHER: &str = "a document has no equivalent";
const SERVICES: &str = "services of CORE are not translated; `exec` of a node starts programs";
