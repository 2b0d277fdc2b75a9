//! Reads GraphML: nodes and edges with data (*GraphML Primer*, graphdrawing.org). Uses labels and
//! speeds of links and coordinates of nodes as the Internet Topology Zoo writes them, and
//! impairments of links as Shadow does; ignores other data.

use std::collections::BTreeMap;

use carina_vnet::document::xml_tree::{Element, parse_foreign};
use carina_vnet::document::{Impairment, Kind, LinkImpairment, Rate, Share, Span};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::quantities::{milliseconds, share};
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let root = parse(source)?;
    if root.local_name() != "graphml" {
        return Err(wrong(source, root.line, "the root element is no <graphml>"));
    }
    let keys: Keys<'_> = root
        .children
        .iter()
        .filter(|child| child.local_name() == "key")
        .filter_map(|child| Some((child.text("id")?, child.text("attr.name")?)))
        .collect();
    let mut draft = Draft::new(source, Kind::Namespace);
    let mut graphs = root
        .children
        .iter()
        .filter(|child| child.local_name() == "graph");
    let Some(graph) = graphs.next() else {
        return Err(wrong(source, root.line, "there is no <graph>"));
    };
    for other in graphs {
        draft.note(other.line, "a second <graph>", "a document has one network");
    }
    if let Some(name) = data(graph, &keys, "Network").or(graph.text("id")) {
        draft.name(name);
    }
    let names = read_nodes(&mut draft, graph, &keys);
    for child in graph
        .children
        .iter()
        .filter(|child| child.local_name() == "edge")
    {
        let ends = ["source", "target"].map(|key| names.get(child.text(key)?));
        edge(
            &mut draft,
            ends,
            |name| data(child, &keys, name),
            child.line,
        );
    }
    for other in &graph.children {
        if matches!(other.local_name(), "hyperedge" | "port") {
            draft.note(
                other.line,
                format!("<{}>", other.local_name()),
                "links have two ends",
            );
        }
    }
    draft.finish()
}

/// Names of attributes, by the ids of their keys.
type Keys<'a> = BTreeMap<&'a str, &'a str>;

/// Adds the nodes. Returns their names by the ids that edges use.
fn read_nodes<'a>(
    draft: &mut Draft,
    graph: &'a Element,
    keys: &Keys<'_>,
) -> BTreeMap<&'a str, String> {
    let mut names = BTreeMap::new();
    for node in graph
        .children
        .iter()
        .filter(|child| child.local_name() == "node")
    {
        let Some(id) = node.text("id") else {
            draft.note(node.line, "a <node> without id", "a node has a name");
            continue;
        };
        let label = data(node, keys, "label").unwrap_or(id);
        let name = draft.labelled(label, id, node.line);
        draft.place(&name, |key| data(node, keys, key), node.line);
        if node
            .children
            .iter()
            .any(|child| child.local_name() == "graph")
        {
            draft.note(
                node.line,
                "a graph within a node",
                "nodes have no network inside",
            );
        }
        names.insert(id, name);
    }
    names
}

/// Adds the link of an edge between two nodes. `datum` returns a datum of the edge by its name:
/// `LinkSpeedRaw` as in the Topology Zoo, `latency`, `jitter` and `packet_loss` as in networks of
/// Shadow (Shadow, *Network Graph Specification*).
pub(super) fn edge<'a>(
    draft: &mut Draft,
    ends: [Option<&String>; 2],
    datum: impl Fn(&str) -> Option<&'a str>,
    line: usize,
) {
    let [Some(one), Some(other)] = ends else {
        let what = "an edge without two nodes";
        return draft.note(line, what, "links are between two nodes");
    };
    let ends = [one, other].map(|node| DraftEnd {
        node,
        interface: None,
    });
    let speed = datum("LinkSpeedRaw");
    let rate = speed.and_then(|text| bits(text.trim()));
    if let (Some(text), None) = (speed, rate) {
        let what = format!("LinkSpeedRaw {:?}", beginning(text));
        draft.note(line, what, "the value is not a number of bits per second");
    }
    let impairment = Impairment {
        delay: value(draft, &datum, &["latency", "delay"], line, time),
        jitter: value(draft, &datum, &["jitter"], line, time),
        loss: value(
            draft,
            &datum,
            &["packet_loss", "packetloss", "loss"],
            line,
            part,
        ),
        ..Impairment::default()
    };
    let both = Some(impairment);
    let of = DraftLink {
        rate,
        impairment: LinkImpairment {
            there: both,
            back: both,
        },
        ..DraftLink::default()
    };
    draft.link(ends, of, line);
}

/// The value of the first of these data that the edge has. Notes a text that is no such value.
fn value<'a, T>(
    draft: &mut Draft,
    datum: &impl Fn(&str) -> Option<&'a str>,
    names: &[&str],
    line: usize,
    read: fn(&str) -> Option<T>,
) -> Option<T> {
    let (name, text) = names.iter().find_map(|name| Some((name, datum(name)?)))?;
    let value = read(text.trim());
    if value.is_none() {
        let what = format!("{name} {:?}", beginning(text));
        draft.note(line, what, "it is no time, or no share from 0 to 1");
    }
    value
}

/// Parses a time: `10 ms`, or a number of milliseconds.
fn time(text: &str) -> Option<Span> {
    let joined: String = text.split_whitespace().collect();
    let number = text.parse().ok();
    joined.parse().ok().or_else(|| milliseconds(number?))
}

/// Parses a share: `1%`, or a number from 0 to 1.
fn part(text: &str) -> Option<Share> {
    let number = text.parse().ok();
    text.parse().ok().or_else(|| share(number?))
}

/// The text of the datum with this name.
fn data<'a>(element: &'a Element, keys: &Keys<'_>, name: &str) -> Option<&'a str> {
    let mut all = element.children.iter();
    let found = all.find(|candidate| {
        let key = candidate.text("key").and_then(|key| keys.get(key));
        candidate.local_name() == "data" && key == Some(&name)
    });
    found
        .map(|found| found.content.trim())
        .filter(|candidate| !candidate.is_empty())
}

/// Parses a rate in bits per second, as the Topology Zoo writes `LinkSpeedRaw`.
fn bits(text: &str) -> Option<Rate> {
    let number: f64 = text.parse().ok()?;
    // A number beyond 64 bits becomes the largest integer, which is not a valid rate.
    Rate::from_bps(number as u64)
}

/// Parses the text, and returns the root element.
pub(super) fn parse(source: Source<'_>) -> Result<Element, ImportError> {
    parse_foreign(source.text).map_err(|error| ImportError::Document {
        file: source.file.to_owned(),
        reason: error.to_string(),
    })
}

/// An error at a line of the file.
pub(super) fn wrong(source: Source<'_>, line: usize, what: &str) -> ImportError {
    ImportError::Document {
        file: source.file.to_owned(),
        reason: format!("line {line}: {what}"),
    }
}
