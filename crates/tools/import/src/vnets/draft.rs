//! A document that is being built from another tool's file.

use std::collections::{BTreeMap, BTreeSet};

use carina_vnet::document::{
    Carrier, Document, End, Header, InterfaceAddress, InterfaceAddress6, Kind, Link,
    LinkImpairment, Node, OWN_IMAGE, OnInsufficient, Position, Rate, Start, is_interface, is_name,
    is_of_kernel, limits,
};

use super::{Imported, Source};
use crate::Note;
use crate::error::ImportError;

/// A document that is being built.
pub(super) struct Draft {
    file: String,
    name: String,
    rate: Rate,
    kind: Kind,
    /// The nodes, by their names in the file.
    nodes: BTreeMap<String, DraftNode>,
    taken: BTreeSet<End>,
    /// The links. Their ends still have the nodes' names in the file.
    links: Vec<Link>,
    unrated: usize,
    /// Latitudes and longitudes of nodes, in degrees, by their names in the file.
    on_earth: BTreeMap<String, [f64; 2]>,
    notes: Vec<Note>,
}

/// A node, and the line where the file first names it.
struct DraftNode {
    /// Number of nodes that the file names before this one.
    place: usize,
    line: usize,
    node: Node,
}

/// An end of a link, with names as in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct DraftEnd<'a> {
    /// Name of the node at this end, as the imported file has it.
    pub node: &'a str,
    /// Name of the interface; `None` if any name will do.
    pub interface: Option<&'a str>,
}

/// Properties of a link that a file gives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DraftLink {
    pub rate: Option<Rate>,
    pub carrier: Carrier,
    pub impairment: LinkImpairment,
    pub addresses: Option<[InterfaceAddress; 2]>,
    pub addresses6: Option<[InterfaceAddress6; 2]>,
    pub mtu: Option<u16>,
}

impl Draft {
    /// A draft without nodes, named after the file. Its nodes will be of `kind`.
    pub(super) fn new(source: Source<'_>, kind: Kind) -> Draft {
        let base = source.file.rsplit('/').next().unwrap_or_default();
        let name = base.split('.').next().unwrap_or_default();
        Draft {
            file: source.file.to_owned(),
            name: fit(name).unwrap_or_else(|| "imported".to_owned()),
            rate: source.rate,
            kind,
            nodes: BTreeMap::new(),
            taken: BTreeSet::new(),
            links: Vec::new(),
            unrated: 0,
            on_earth: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Names the network.
    pub(super) fn name(&mut self, name: &str) {
        if let Some(name) = fit(name) {
            self.name = name;
        }
    }

    /// Adds a note about something that is not translated. The number of notes is limited.
    pub(super) fn note(&mut self, line: usize, what: impl Into<String>, why: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Note {
                file: self.file.clone(),
                line,
                what: what.into(),
                why: why.into(),
            });
        }
    }

    /// The node with this name in the file, created if it does not exist.
    pub(super) fn node(&mut self, original: &str, line: usize) -> &mut Node {
        let place = self.nodes.len();
        let is_known = place <= limits::NODES_MAX || self.nodes.contains_key(original);
        // A document with too many nodes is refused later, so further nodes share one name.
        let original = if is_known { original } else { OVERFULL };
        let kind = Some(self.kind);
        let made = || DraftNode {
            place,
            line,
            node: Node {
                kind,
                ..Node::default()
            },
        };
        let node = self.nodes.entry(original.to_owned()).or_insert_with(made);
        &mut node.node
    }

    /// Creates a node that the file identifies by an id and names by a label; several nodes may
    /// have the same label. Returns the name to use in [`DraftEnd`].
    pub(super) fn labelled(&mut self, label: &str, id: &str, line: usize) -> String {
        let name = if self.has(label) {
            format!("{label} {id}")
        } else {
            label.to_owned()
        };
        self.node(&name, line);
        name
    }

    /// Places a node in pictures by data of the file: latitude and longitude in degrees, else x and
    /// y, downwards. Data that are no numbers are ignored.
    pub(super) fn place<'a>(
        &mut self,
        node: &str,
        datum: impl Fn(&str) -> Option<&'a str>,
        line: usize,
    ) {
        let number = |names: [&str; 2]| -> Option<f64> {
            let text = names.iter().find_map(|name| datum(name))?;
            text.trim().parse().ok()
        };
        let earth = number(["Latitude", "latitude"]).zip(number(["Longitude", "longitude"]));
        let earth = earth.filter(|(latitude, longitude)| {
            latitude.abs() <= LATITUDE_MAX && longitude.abs() <= LONGITUDE_MAX
        });
        if let Some((latitude, longitude)) = earth {
            self.on_earth.insert(node.to_owned(), [latitude, longitude]);
            return;
        }
        let plane = number(["x", "X"]).zip(number(["y", "Y"]));
        if let Some(position) = plane.and_then(|(x, y)| Position::at(x, y)) {
            self.node(node, line).position = Some(position);
        }
    }

    /// Whether the draft has a node with this name in the file.
    pub(super) fn has(&self, original: &str) -> bool {
        self.nodes.contains_key(original)
    }

    /// Maps the names of nodes in the file to names in the document, which are valid for hosts and
    /// files, and all different. Valid names stay as they are. The other nodes get free names, in
    /// the order of the file.
    fn names(&mut self) -> BTreeMap<String, String> {
        let mut order: Vec<(usize, usize, String)> = self
            .nodes
            .iter()
            .map(|(original, node)| (node.place, node.line, original.clone()))
            .collect();
        order.sort_unstable();
        let mut used: BTreeSet<String> = self
            .nodes
            .keys()
            .filter(|key| is_name(key))
            .cloned()
            .collect();
        let mut names: BTreeMap<String, String> = used
            .iter()
            .map(|name| (name.clone(), name.clone()))
            .collect();
        for (_, line, original) in order
            .into_iter()
            .filter(|(_, _, original)| !is_name(original))
        {
            let name = free_name(&original, &used);
            if name != original.trim_end() {
                let why = format!("it is {name}: names have letters, digits and `-`, and differ");
                self.note(line, format!("the name {:?}", beginning(&original)), why);
            }
            used.insert(name.clone());
            names.insert(original, name);
        }
        names
    }

    /// Adds a link between two nodes, which are created if they do not exist.
    pub(super) fn link(&mut self, ends: [DraftEnd<'_>; 2], link: DraftLink, line: usize) {
        if ends[0].node == ends[1].node {
            let what = format!("a link from {:?} to itself", beginning(ends[0].node));
            return self.note(line, what, "links are between two nodes");
        }
        if self.links.len() > limits::LINKS_MAX {
            // A document with too many links is refused later.
            return;
        }
        let ends = ends.map(|end| self.end(end, line));
        let rate = link.rate.unwrap_or_else(|| {
            self.unrated += 1;
            self.rate
        });
        // The default carrier carries no IPv6.
        let needs_other = link.addresses6.is_some() && link.carrier == Carrier::Ipip;
        let mut made = Link {
            carrier: if needs_other {
                Carrier::Gre
            } else {
                link.carrier
            },
            addresses: link.addresses,
            addresses6: link.addresses6,
            mtu: link.mtu,
            ..Link::new(ends, rate)
        };
        made.set_impairment(&link.impairment);
        if let Err(fault) = made.check_impairment() {
            let [one, other] = made.ends.each_ref().map(|end| beginning(&end.node));
            let what = format!("the impairment of the link {one} -- {other}");
            self.note(line, what, fault.to_string());
            made.set_impairment(&LinkImpairment::default());
        }
        if let Err(fault) = made.check_addresses() {
            let [one, other] = made.ends.each_ref().map(|end| beginning(&end.node));
            let what = format!("addresses and MTU of the link {one} -- {other}");
            self.note(line, what, fault.to_string());
            (made.addresses, made.addresses6, made.mtu) = (None, None, None);
        }
        self.links.push(made);
    }

    /// Gives a node a command for its start, if the command only configures the network. It may
    /// fail, as with other tools. A command of a namespace has the rights of its host, so that
    /// others are noted.
    pub(super) fn exec(&mut self, node: &str, command: &str, line: usize) {
        let command = command.trim();
        let program = command.split_whitespace().next().unwrap_or_default();
        let is_one = command
            .chars()
            .all(|c| !";|&$`<>()\\\n\r".contains(c) && !c.is_control());
        let is_short = command.len() < limits::COMMAND_BYTES_MAX / 2;
        let is_known = PROGRAMS.contains(&program) && !command.contains(" exec ");
        let made = &mut self.node(node, line).exec;
        if is_one && is_known && is_short && made.len() < limits::COMMANDS_MAX {
            made.push(format!("{command} || true"));
            return;
        }
        let what = format!("exec of {}", beginning(node));
        let why = format!(
            "its program may change the host; add it to `exec` of the node yourself: {}",
            beginning(command)
        );
        self.note(line, what, why);
    }

    /// Gives a node an environment variable.
    pub(super) fn variable(&mut self, node: &str, (name, value): (&str, &str), line: usize) {
        let given = Start {
            environment: [(name.to_owned(), value.to_owned())].into(),
            ..Start::default()
        };
        let made = &mut self.node(node, line).environment;
        if made.len() < limits::VARIABLES_MAX && given.check(Kind::Vm, OWN_IMAGE).is_ok() {
            made.insert(name.to_owned(), value.to_owned());
            return;
        }
        let what = format!("the variable {} of {}", beginning(name), beginning(node));
        self.note(line, what, "a node cannot have it");
    }

    /// Joins any number of nodes: two by a link, more by a new bridge with a link to each. With
    /// more than two nodes, `link.impairment.there` applies to what each of them sends.
    pub(super) fn join(
        &mut self,
        network: &str,
        ends: &[DraftEnd<'_>],
        link: DraftLink,
        line: usize,
    ) {
        match ends {
            [] | [_] => {
                let what = format!("network {:?}", beginning(network));
                self.note(line, what, "it has fewer than two ends");
            }
            [one, other] => self.link([*one, *other], link, line),
            all => {
                // No node of the file can have this name, because names contain no line break.
                let hub = format!("{network}\n");
                self.node(&hub, line).kind = Some(Kind::Bridge);
                let link = DraftLink {
                    impairment: link.impairment.at_end(0),
                    addresses: None,
                    addresses6: None,
                    ..link
                };
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
        let node = end.node.to_owned();
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
        if is_interface(interface) && !is_of_kernel(interface) && self.taken.insert(named.clone()) {
            return named;
        }
        let what = format!(
            "the interface {:?} of {}",
            beginning(interface),
            beginning(&node)
        );
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

    /// Gives the links of bridges a carrier of Ethernet frames.
    fn carry_ethernet(&mut self) {
        let nodes = &self.nodes;
        let is_bridge = |end: &End| {
            let node = nodes.get(&end.node);
            node.is_some_and(|node| node.node.kind == Some(Kind::Bridge))
        };
        for link in &mut self.links {
            let has_bridge = link.ends.iter().any(is_bridge);
            if has_bridge && matches!(link.carrier, Carrier::Ipip | Carrier::Dif) {
                link.carrier = Carrier::Gre;
            }
        }
    }

    /// Places nodes on a map of the earth, with north at the top. A degree of longitude is shorter
    /// far from the equator.
    fn draw_map(&mut self) {
        let all = std::mem::take(&mut self.on_earth);
        let latitudes: f64 = all.values().map(|[latitude, _]| latitude).sum();
        let mean = latitudes / all.len().max(1) as f64;
        for (original, [latitude, longitude]) in all {
            if let Some(node) = self.nodes.get_mut(&original) {
                let x = longitude * mean.to_radians().cos();
                node.node.position = Position::at(x, -latitude);
            }
        }
    }

    /// Completes the document.
    ///
    /// # Errors
    /// The draft has something that no document can express.
    pub(super) fn finish(mut self) -> Result<Imported, ImportError> {
        if self.nodes.is_empty() {
            return Err(ImportError::Document {
                file: self.file,
                reason: "it has no node; --from names the format of a file".to_owned(),
            });
        }
        let names = self.names();
        if self.unrated > 0 {
            let (links, have) = match self.unrated {
                1 => ("1 link".to_owned(), "it has"),
                count => (format!("{count} links"), "they have"),
            };
            let what = format!("{links} without a rate");
            let why = format!("{have} {}; --rate gives another", self.rate);
            self.note(0, what, why);
        }
        self.draw_map();
        let named = |original: &str| names.get(original).cloned().unwrap_or_default();
        self.carry_ethernet();
        for end in self.links.iter_mut().flat_map(|link| &mut link.ends) {
            end.node = named(&end.node);
        }
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let node = nodes.map(|(original, node)| (named(&original), node.node));
        let mut document = Document {
            vnet: Header {
                name: self.name.clone(),
                lease: None,
                on_insufficient: OnInsufficient::Reject,
            },
            defaults: Node::default(),
            node: node.collect(),
            link: std::mem::take(&mut self.links),
            access: BTreeMap::new(),
            test: Vec::new(),
        };
        resolve_overlaps(&mut document, &mut self.notes, &self.file);
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

/// Removes addresses that overlap others.
fn resolve_overlaps(document: &mut Document, notes: &mut Vec<Note>, file: &str) {
    for _ in 0..OVERLAP_ROUNDS {
        let faults = document.check_prefixes();
        if faults.is_empty() {
            return;
        }
        for (number, fault) in faults {
            let link = &mut document.link[number];
            // IPv6 addresses are removed only if a fault is left without those of IPv4.
            let had = link.addresses.take().is_some() || link.addresses6.take().is_some();
            if had && notes.len() < NOTES_MAX {
                let [one, other] = &link.ends;
                notes.push(Note {
                    file: file.to_owned(),
                    line: 0,
                    what: format!("the addresses of the link {one} -- {other}"),
                    why: fault.to_string(),
                });
            }
        }
    }
    for link in &mut document.link {
        (link.addresses, link.addresses6) = (None, None);
    }
}

/// A valid name similar to the original that is not used yet.
fn free_name(original: &str, used: &BTreeSet<String>) -> String {
    let base = fit(original).unwrap_or_else(|| "node".to_owned());
    let numbered = (2..).map(|number: u32| {
        let end = format!("-{number}");
        let keep = limits::NAME_MAX - end.len();
        let kept = base[..base.len().min(keep)].trim_end_matches('-');
        format!("{kept}{end}")
    });
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

/// A valid name of a node or network similar to `name`; `None` if no character of it is usable.
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

/// The beginning of an untrusted text, for printing.
pub(super) fn beginning(text: &str) -> String {
    text.trim_end().chars().take(64).collect()
}

/// Programs that configure the network of their node and nothing else.
const PROGRAMS: [&str; 7] = ["ip", "bridge", "tc", "ethtool", "ping", "route", "ifconfig"];
const NOTES_MAX: usize = 1000;
/// Bounds of coordinates on the earth, in degrees.
const LATITUDE_MAX: f64 = 90.0;
const LONGITUDE_MAX: f64 = 180.0;
/// How often addresses that overlap are removed one by one, before all are.
const OVERLAP_ROUNDS: usize = 8;
/// Name of the node for all nodes beyond the limit. No file can name a node like this.
const OVERFULL: &str = "\n";
