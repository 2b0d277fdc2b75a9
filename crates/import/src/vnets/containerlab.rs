//! Topologies of containerlab: `name` and `topology` with `nodes` and `links`
//! (containerlab, `docs/manual/topo-def-file.md`).
//!
//! A container becomes a namespace: the system in its image does not run in it.

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::yaml::Yaml;
use super::{Imported, Source};
use crate::error::ImportError;
use carina_vnet::document::Kind;

pub fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let whole = Yaml::read(source.text).map_err(|error| ImportError::Yaml {
        file: source.file.to_owned(),
        source: error,
    })?;
    let mut draft = Draft::new(source, Kind::Namespace);
    if let Some(name) = whole.get("name").and_then(Yaml::text) {
        draft.name(name);
    }
    for (key, value) in whole.entries() {
        if !matches!(key.as_str(), "name" | "topology") {
            draft.note(value.line, key, "it is of containers");
        }
    }
    let topology = whole.get("topology");
    for (key, value) in topology.map(Yaml::entries).unwrap_or_default() {
        match key.as_str() {
            "nodes" => {}
            "links" => {}
            _ => draft.note(value.line, format!("topology.{key}"), "it is of containers"),
        }
    }
    let of = |key: &str| topology.and_then(|it| it.get(key));
    for (name, node) in of("nodes").map(Yaml::entries).unwrap_or_default() {
        read_node(&mut draft, name, node);
    }
    for link in of("links").map(Yaml::items).unwrap_or_default() {
        read_link(&mut draft, link);
    }
    draft.finish()
}

fn read_node(draft: &mut Draft, name: &str, node: &Yaml) {
    draft.node(name, node.line);
    for (key, value) in node.entries() {
        let what = format!("{key} of {}", beginning(name));
        match (key.as_str(), value.text()) {
            ("kind", Some("linux")) => {}
            ("kind", Some("bridge" | "ovs-bridge")) => {
                draft.note(value.line, what, "a node routes; it is no bridge");
            }
            ("kind", Some(kind)) => {
                let why = format!("{} does not run in a namespace", beginning(kind));
                draft.note(value.line, what, why);
            }
            _ => draft.note(value.line, what, "it is of containers"),
        }
    }
}

fn read_link(draft: &mut Draft, link: &Yaml) {
    let line = link.line;
    let ends: Vec<Option<(String, Option<String>)>> = link
        .get("endpoints")
        .map(Yaml::items)
        .unwrap_or_default()
        .iter()
        .map(end_of)
        .collect();
    for (key, value) in link.entries() {
        let is_read = match key.as_str() {
            "endpoints" => true,
            "type" => value.text() == Some("veth"),
            _ => false,
        };
        if !is_read {
            draft.note(
                value.line,
                format!("{key} of a link"),
                "it is of containers",
            );
        }
    }
    let [Some((one, first)), Some((other, second))] = &ends[..] else {
        let what = "a link without two endpoints NODE:INTERFACE";
        return draft.note(line, what, "links are between two nodes");
    };
    for node in [one, other] {
        if !draft.has(node) {
            let what = format!("a link to {:?}", beginning(node));
            let why = "it is no node: the host, its management network or a capture";
            return draft.note(line, what, why);
        }
    }
    let ends = [
        DraftEnd {
            node: one,
            interface: first.as_deref(),
        },
        DraftEnd {
            node: other,
            interface: second.as_deref(),
        },
    ];
    draft.link(ends, DraftLink::default(), line);
}

/// `NODE:INTERFACE`, or a mapping with `node` and `interface`.
fn end_of(end: &Yaml) -> Option<(String, Option<String>)> {
    if let Some(text) = end.text() {
        let (node, interface) = text.split_once(':')?;
        return Some((node.to_owned(), Some(interface.to_owned())));
    }
    let node = end.get("node")?.text()?;
    let interface = end.get("interface").and_then(Yaml::text);
    Some((node.to_owned(), interface.map(str::to_owned)))
}
