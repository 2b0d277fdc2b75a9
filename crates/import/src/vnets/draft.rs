//! A document that is being made of another tool's file.

use std::collections::{BTreeMap, BTreeSet};

use carina_vnet::document::{
    Carrier, Document, End, Header, Kind, Link, Node, OnInsufficient, Rate, is_interface, is_name,
    limits,
};

use super::{Imported, Source};
use crate::Note;
use crate::error::ImportError;

/// A document that is being made.
pub struct Draft {
    file: String,
    name: String,
    rate: Rate,
    kind: Kind,
    nodes: BTreeMap<String, Node>,
    /// The names of the file, with those in the document.
    names: BTreeMap<String, String>,
    taken: BTreeSet<End>,
    links: Vec<Link>,
    unrated: usize,
    notes: Vec<Note>,
}

/// An end of a link, as the file has it.
#[derive(Clone, Copy, Debug)]
pub struct DraftEnd<'a> {
    /// The node.
    pub node: &'a str,
    /// Its interface, if the name matters.
    pub interface: Option<&'a str>,
}

/// What a file says of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct DraftLink {
    pub rate: Option<Rate>,
    pub delay_ns: Option<u64>,
    /// Millionths.
    pub loss: Option<u32>,
    pub carrier: Carrier,
}

impl Draft {
    /// A draft without nodes, named after the file; nodes are of a kind.
    pub fn new(source: Source<'_>, kind: Kind) -> Draft {
        let base = source.file.rsplit('/').next().unwrap_or_default();
        let name = base.split('.').next().unwrap_or_default();
        Draft {
            file: source.file.to_owned(),
            name: fit(name).unwrap_or_else(|| "imported".to_owned()),
            rate: source.rate,
            kind,
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            links: Vec::new(),
            unrated: 0,
            notes: Vec::new(),
        }
    }

    /// Names the network.
    pub fn name(&mut self, name: &str) {
        if let Some(name) = fit(name) {
            self.name = name;
        }
    }

    /// Notes something that is not carried over.
    pub fn note(&mut self, line: usize, what: impl Into<String>, why: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Note {
                file: self.file.clone(),
                line,
                what: what.into(),
                why: why.into(),
            });
        }
    }

    /// The node of this name in the file; it is made if it is not there.
    pub fn node(&mut self, original: &str, line: usize) -> &mut Node {
        let name = self.name_of(original, line);
        let kind = Some(self.kind);
        self.nodes.entry(name).or_insert_with(|| Node {
            kind,
            ..Node::default()
        })
    }

    /// Whether the file has named a node so.
    pub fn has(&self, original: &str) -> bool {
        self.names.contains_key(original)
    }

    /// The name in the document: like that of the file, fit for hosts and files, and no other
    /// node's.
    fn name_of(&mut self, original: &str, line: usize) -> String {
        if let Some(known) = self.names.get(original) {
            return known.clone();
        }
        if self.nodes.len() > limits::NODES_MAX {
            // The document is refused for it; how the others are called does not matter.
            return OVERFULL.to_owned();
        }
        let base = fit(original).unwrap_or_else(|| "node".to_owned());
        let is_free = |name: &String| !self.nodes.contains_key(name);
        let numbered = (2..).map(|number: u32| {
            let end = format!("-{number}");
            let keep = limits::NAME_MAX - end.len();
            format!(
                "{}{end}",
                base[..base.len().min(keep)].trim_end_matches('-')
            )
        });
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let name = names.find(is_free).unwrap_or_default();
        if name != original.trim_end() {
            let why = format!("it is {name}: names have letters, digits and `-`, and differ");
            self.note(line, format!("the name {:?}", beginning(original)), why);
        }
        self.names.insert(original.to_owned(), name.clone());
        name
    }

    /// Adds a link between two nodes, which are made if they are not there.
    pub fn link(&mut self, ends: [DraftEnd<'_>; 2], link: DraftLink, line: usize) {
        if ends[0].node == ends[1].node {
            let what = format!("a link from {:?} to itself", beginning(ends[0].node));
            return self.note(line, what, "links are between two nodes");
        }
        if self.links.len() > limits::LINKS_MAX {
            // The document is refused for it.
            return;
        }
        let ends = ends.map(|end| self.end(end, line));
        let rate = link.rate.unwrap_or_else(|| {
            self.unrated += 1;
            self.rate
        });
        self.links.push(Link {
            ends,
            rate,
            delay_max: link
                .delay_ns
                .map(|ns| carina_time::Duration::from_nanos(ns).into()),
            loss_max: link.loss.and_then(share),
            carrier: link.carrier,
        });
    }

    /// Joins any number of nodes: two by a link, more by a node with a link to each.
    pub fn join(&mut self, network: &str, ends: &[DraftEnd<'_>], link: DraftLink, line: usize) {
        match ends {
            [] | [_] => {
                let what = format!("network {:?}", beginning(network));
                self.note(line, what, "it has fewer than two ends");
            }
            [one, other] => self.link([*one, *other], link, line),
            all => {
                let what = format!("network {:?} of {} ends", beginning(network), all.len());
                // No node of the file has a name with a line in it.
                let hub = format!("{network}\n");
                let why = "links have two ends: a node with a link to each is in its place";
                self.note(line, what, why);
                self.node(&hub, line).kind = Some(Kind::Namespace);
                for end in all {
                    let center = DraftEnd {
                        node: &hub,
                        interface: None,
                    };
                    self.link([*end, center], link, line);
                }
            }
        }
    }

    fn end(&mut self, end: DraftEnd<'_>, line: usize) -> End {
        self.node(end.node, line);
        let node = self.name_of(end.node, line);
        let Some(interface) = end.interface else {
            return End {
                node,
                interface: None,
            };
        };
        let named = End {
            node: node.clone(),
            interface: Some(interface.to_owned()),
        };
        if is_interface(interface) && self.taken.insert(named.clone()) {
            return named;
        }
        let what = format!("the interface {:?} of {node}", beginning(interface));
        self.note(
            line,
            what,
            "it gets the next free name: this one is taken, or none of Linux",
        );
        End {
            node,
            interface: None,
        }
    }

    /// The document.
    ///
    /// # Errors
    /// It says what no document can.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
        if self.unrated > 0 {
            let what = format!("{} links without a rate", self.unrated);
            let why = format!("they have {}; --rate gives another", self.rate);
            self.note(0, what, why);
        }
        let document = Document {
            vnet: Header {
                name: self.name,
                lease: None,
                on_insufficient: OnInsufficient::Reject,
            },
            defaults: Node::default(),
            node: self.nodes,
            link: self.links,
            access: BTreeMap::new(),
            test: Vec::new(),
        };
        document.check().map_err(|error| ImportError::Document {
            file: self.file,
            reason: error.to_string(),
        })?;
        Ok(Imported {
            document,
            notes: self.notes,
        })
    }
}

/// A share in millionths, as far as a document can say it.
fn share(millionths: u32) -> Option<carina_vnet::document::Share> {
    let (whole, rest) = (millionths / 10_000, millionths % 10_000);
    format!("{whole}.{rest:04}%").parse().ok()
}

/// A name of a node or network that is like this one.
fn fit(name: &str) -> Option<String> {
    let inside = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let mut fit = String::new();
    for c in name.chars().map(inside) {
        if (c != '-' || !fit.ends_with('-')) && fit.len() < limits::NAME_MAX {
            fit.push(c);
        }
    }
    let fit = fit.trim_matches('-').to_owned();
    is_name(&fit).then_some(fit)
}

/// The beginning of a text of a stranger, to be printed.
pub fn beginning(text: &str) -> String {
    text.trim_end().chars().take(64).collect()
}

const NOTES_MAX: usize = 1000;
/// The node that stands for all beyond the most that a document has.
const OVERFULL: &str = "overfull";
