//! Reads topologies of netlab: `nodes` as a list or a mapping, and `links` in each of their forms:
//! `r1-r2`, `[ r1, r2, r3 ]`, or a mapping of nodes with properties. (netlab, `docs/nodes.md` and
//! `docs/links.md`)

use carina_vnet::document::{Impairment, Kind, LinkImpairment, Rate, Span};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::quantities::share;
use super::yaml::Yaml;
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let mut draft = Draft::new(source, Kind::Namespace);
    let whole = Yaml::read(source.text).map_err(|error| ImportError::Yaml {
        file: source.file.to_owned(),
        source: error,
    })?;
    for (key, value) in whole.entries() {
        match (key.as_str(), value.text()) {
            ("name", Some(name)) => draft.name(name),
            ("nodes" | "links", _) => {}
            _ => draft.note(value.line, key, SYSTEMS),
        }
    }
    if let Some(nodes) = whole.get("nodes") {
        for name in nodes.items().iter().filter_map(Yaml::text) {
            draft.node(name, nodes.line);
        }
        for (name, node) in nodes.entries() {
            draft.node(name, node.line);
            for (key, value) in node.entries() {
                let what = format!("{} of {}", beginning(key), beginning(name));
                draft.note(value.line, what, SYSTEMS);
            }
        }
    }
    let links = whole.get("links").map(Yaml::items).unwrap_or_default();
    for (number, link) in links.iter().enumerate() {
        read_link(&mut draft, link, number + 1);
    }
    draft.finish()
}

fn read_link(draft: &mut Draft, link: &Yaml, number: usize) {
    let mut of = DraftLink::default();
    let mut ends: Vec<String> = Vec::new();
    if let Some(text) = link.text() {
        ends.extend(text.split('-').map(|piece| piece.trim().to_owned()));
    }
    ends.extend(link.items().iter().filter_map(node_of));
    for (key, value) in link.entries() {
        match key.as_str() {
            "interfaces" => {
                ends.extend(value.items().iter().filter_map(node_of));
                for item in value.items() {
                    let node = node_of(item).unwrap_or_default();
                    note_attributes(draft, &node, item);
                }
            }
            "bandwidth" => {
                // In kbit/s.
                let kbps = value.text().and_then(|text| text.parse::<u64>().ok());
                of.rate = kbps.and_then(|kbp| Rate::from_bps(kbp.saturating_mul(1000)));
            }
            "mtu" => of.mtu = value.text().and_then(|text| text.parse().ok()),
            "tc" => of.impairment = impairment(draft, value),
            _ if draft.has(key) => {
                ends.push(key.clone());
                note_attributes(draft, key, value);
            }
            _ => draft.note(value.line, format!("{} of a link", beginning(key)), SYSTEMS),
        }
    }
    let (known, strangers): (Vec<String>, _) = ends.into_iter().partition(|end| draft.has(end));
    for stranger in strangers {
        let what = format!("a link to {:?}", beginning(&stranger));
        draft.note(link.line, what, "it is no node");
    }
    let ends: Vec<DraftEnd<'_>> = known
        .iter()
        .map(|node| DraftEnd {
            node,
            interface: None,
        })
        .collect();
    draft.join(&format!("lan-{number}"), &ends, of, link.line);
}

/// Notes what a link says about its end at a node, such as an address.
fn note_attributes(draft: &mut Draft, node: &str, end: &Yaml) {
    for (key, value) in end.entries().iter().filter(|(key, _)| key != "node") {
        let what = format!("{} of {} in a link", beginning(key), beginning(node));
        draft.note(value.line, what, SYSTEMS);
    }
}

/// The node of an entry in a list of ends: a name, or a mapping with `node`.
fn node_of(end: &Yaml) -> Option<String> {
    let name = end.text().or_else(|| end.get("node")?.text())?;
    Some(name.to_owned())
}

/// The `tc` properties of a link: `delay` and `jitter` as times or in ms, shares in percent.
fn impairment(draft: &mut Draft, tc: &Yaml) -> LinkImpairment {
    let mut side = Impairment::default();
    for (key, value) in tc.entries() {
        let text = value.text().unwrap_or_default();
        let span = || -> Option<Span> {
            let is_number = text.parse::<f64>().is_ok();
            let text = if is_number {
                format!("{text}ms")
            } else {
                text.to_owned()
            };
            text.parse().ok()
        };
        let percent =
            || -> Option<_> { share(text.trim_end_matches('%').parse::<f64>().ok()? / 100.0) };
        let is_read = match key.as_str() {
            "delay" => {
                side.delay = span();
                side.delay.is_some()
            }
            "jitter" => {
                side.jitter = span();
                side.jitter.is_some()
            }
            "loss" => {
                side.loss = percent();
                side.loss.is_some()
            }
            "duplicate" => {
                side.duplicate = percent();
                side.duplicate.is_some()
            }
            "reorder" => {
                side.reorder = percent();
                side.reorder.is_some()
            }
            "corrupt" => {
                side.corrupt = percent();
                side.corrupt.is_some()
            }
            _ => false,
        };
        if !is_read {
            let what = format!("tc.{} = {:?}", beginning(key), beginning(text));
            draft.note(value.line, what, "a link has no such impairment");
        }
    }
    let side = Some(side).filter(|candidate| *candidate != Impairment::default());
    LinkImpairment {
        there: side,
        back: side,
    }
}

const SYSTEMS: &str = "devices, modules and addressing of netlab are not translated";
