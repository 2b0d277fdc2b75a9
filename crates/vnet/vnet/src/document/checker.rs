//! Checks the content of a document: whether the network that it describes is possible at all.

use std::collections::{BTreeMap, BTreeSet};

use carina_text::spelling::nearest;

use super::fault::{Fault, Finding, Lines, Place};
use super::limits::{
    CPUS_MAX, DELAY_MAX, LINKS_MAX, LIST_MAX, MEMORY_MIB, NAME_MAX, NICS_MAX, NODES_MAX,
    OTHERS_MAX, TEXT_VALUE_MAX,
};
use super::name::{is_interface, is_name, is_of_kernel};
use super::{AccessPoint, Attach, Boot, Carrier, Document, End, Kind, Link, Node, Share, Test};

/// Faults that are listed at most, so that the list fits on a page.
const FINDINGS_MAX: usize = 20;

/// The faults of a document, in document order, at most [`FINDINGS_MAX`].
pub(super) fn findings(document: &Document, lines: &Lines) -> Vec<Finding> {
    let mut checker = Checker {
        document,
        lines,
        findings: Vec::new(),
    };
    checker.header();
    if checker.findings.is_empty() {
        checker.node(&Place::Defaults, &document.defaults);
        checker.nodes();
        checker.links();
        checker.prefixes();
        checker.access();
        checker.tests();
    }
    checker.findings
}

struct Checker<'a> {
    document: &'a Document,
    lines: &'a Lines,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn header(&mut self) {
        let document = self.document;
        self.name(&Place::Header, &document.vnet.name);
        let lease = document.vnet.lease.map(|lease| lease.duration().as_nanos());
        if lease == Some(0) {
            self.find(&Place::Header, Fault::NoLease);
        }
        if document.node.is_empty() {
            self.find(&Place::Header, Fault::NoNodes);
        }
        let parts = [
            ("nodes", document.node.len(), NODES_MAX),
            ("links", document.link.len(), LINKS_MAX),
            ("access points", document.access.len(), OTHERS_MAX),
            ("tests", document.test.len(), OTHERS_MAX),
        ];
        for (what, count, max) in parts {
            if count > max {
                self.find(&Place::Header, Fault::TooMany { what, count, max });
            }
        }
    }

    fn nodes(&mut self) {
        let mut pairs = BTreeSet::new();
        for (name, node) in &self.document.node {
            let place = Place::Node(name.clone());
            self.name(&place, name);
            self.node(&place, node);
            self.cards_of_bridge(&place, name, node);
            self.start(&place, name);
            for other in &node.apart_from {
                if other == name {
                    self.find(&place, Fault::ApartFromItself);
                } else if !pairs.insert((name.min(other), name.max(other))) {
                    self.find(&place, Fault::ApartTwice(other.clone()));
                }
            }
        }
    }

    fn node(&mut self, place: &Place, node: &Node) {
        let memory = (*MEMORY_MIB.start(), *MEMORY_MIB.end());
        self.range(
            place,
            "cpus",
            node.cpus.map(u64::from),
            (1, u64::from(CPUS_MAX)),
        );
        self.range(place, "memory (MiB)", node.memory, memory);
        let nics = node.nics.map(|nics| u64::from(nics.count));
        self.range(place, "the count of nics", nics, (0, u64::from(NICS_MAX)));
        if let Some(image) = &node.image {
            self.text(place, "image", image);
        }
        self.list(place, "location", &node.location);
        self.list(place, "apart_from", &node.apart_from);
        for other in &node.apart_from {
            self.known(place, other);
        }
        for (label, value) in &node.labels {
            self.text(place, "label", label);
            self.text(place, "the value of a label", value);
        }
        self.few(place, "labels", node.labels.len());
        let defaults = &self.document.defaults;
        let kind = node.kind.or(defaults.kind);
        let is_namespace = kind.is_some_and(Kind::has_namespace);
        let boots = matches!(node.boot, Some(Boot::Clone | Boot::Pool));
        if is_namespace && boots {
            self.find(place, Fault::NamespaceBoots);
        }
    }

    fn start(&mut self, place: &Place, name: &str) {
        let Some(node) = self.document.resolved(name) else {
            return;
        };
        if let Err(error) = node.start.check(node.kind, &node.image) {
            self.find(place, Fault::Start(error));
        }
        let is_flow = |link: &Link| {
            link.carrier == Carrier::Dif && link.ends.iter().any(|end| end.node == name)
        };
        if node.start.filesystem.is_some() && self.document.link.iter().any(is_flow) {
            self.find(place, Fault::FilesystemOfMember(name.to_owned()));
        }
    }

    fn cards_of_bridge(&mut self, place: &Place, name: &str, node: &Node) {
        let nics = node.nics.or(self.document.defaults.nics);
        if self.document.is_bridge(name) && nics.is_some_and(|nics| nics.count > 0) {
            let node = name.to_owned();
            self.find(
                place,
                Fault::OfBridge {
                    node,
                    what: "cards",
                },
            );
        }
    }

    fn links(&mut self) {
        let mut taken: BTreeMap<&End, usize> = BTreeMap::new();
        for (number, link) in self.document.link.iter().enumerate() {
            let place = Place::Link(number);
            for checked in [link.check_impairment(), link.check_addresses()] {
                if let Err(fault) = checked {
                    self.find(&place, fault);
                }
            }
            if let Err(error) = link.timetable().check() {
                self.find(&place, Fault::Timetable(error));
            }
            let [one, other] = &link.ends;
            if one.node == other.node {
                self.find(&place, Fault::SameNode(one.node.clone()));
            }
            for end in &link.ends {
                self.known(&place, &end.node);
                let Some(interface) = &end.interface else {
                    continue;
                };
                if !is_interface(interface) {
                    self.find(&place, Fault::Interface(interface.clone()));
                } else if is_of_kernel(interface) {
                    self.find(&place, Fault::InterfaceOfKernel(interface.clone()));
                }
                if let Some(other) = taken.insert(end, number) {
                    let end = end.to_string();
                    let other = other + 1;
                    self.find(&place, Fault::InterfaceTaken { end, other });
                }
            }
        }
    }

    fn prefixes(&mut self) {
        let faults = self.document.check_segments().into_iter();
        for (number, fault) in faults.chain(self.document.check_prefixes()) {
            self.find(&Place::Link(number), fault);
        }
    }

    fn access(&mut self) {
        for (name, access) in &self.document.access {
            let place = Place::Access(name.clone());
            self.name(&place, name);
            self.known(&place, &access.node);
            if self.document.is_bridge(&access.node) {
                let node = access.node.clone();
                let what = "access points";
                self.find(&place, Fault::OfBridge { node, what });
            }
            self.list(&place, "user", &access.users);
            self.list(&place, "location", &access.location);
            match access.attach {
                Attach::Tunnel if !access.location.is_empty() => {
                    self.find(&place, Fault::AccessLocation);
                }
                Attach::Tunnel if access.card => self.find(&place, Fault::AccessCard),
                Attach::Tunnel => {}
                Attach::Extend => self.extension(&place, access),
            }
        }
        let extended = self.document.extended();
        for (what, count, max) in [
            ("nodes with those of users", extended.node.len(), NODES_MAX),
            ("links with those of users", extended.link.len(), LINKS_MAX),
        ] {
            if count > max {
                self.find(&Place::Header, Fault::TooMany { what, count, max });
            }
        }
    }

    /// Checks an access point with `attach = "extend"`, where each user becomes a node.
    fn extension(&mut self, place: &Place, access: &AccessPoint) {
        if access.rate.is_none() {
            self.find(place, Fault::AccessRate);
        }
        for user in &access.users {
            self.name(place, user);
            let points = self.document.access.values();
            let extended = points.filter(|point| point.attach == Attach::Extend);
            let times = extended.filter(|point| point.users.contains(user)).count();
            if times > 1 || self.document.node.contains_key(user) {
                self.find(place, Fault::UserIsNode(user.clone()));
            }
        }
    }

    fn tests(&mut self) {
        for (number, test) in self.document.test.iter().enumerate() {
            let place = Place::Test(number);
            let Some([one, other]) = subject(test) else {
                self.find(&place, Fault::TestSubject);
                continue;
            };
            if one == other {
                self.find(&place, Fault::SameNode(one.clone()));
            }
            self.known(&place, one);
            self.known(&place, other);
            let strangers = [
                (
                    test.rtt_max.is_some() && test.ping.is_none(),
                    "rtt_max",
                    "ping",
                ),
                (
                    test.rate_min.is_some() && test.throughput.is_none(),
                    "rate_min",
                    "throughput",
                ),
            ];
            for (is_strange, bound, subject) in strangers {
                if is_strange {
                    self.find(&place, Fault::TestBound { bound, subject });
                }
            }
            if test.throughput.is_some() && test.rate_min.is_none() {
                self.find(&place, Fault::NoRate);
            }
        }
    }

    fn name(&mut self, place: &Place, name: &str) {
        if !is_name(name) {
            self.find(place, Fault::Name(beginning(name)));
        }
    }

    fn known(&mut self, place: &Place, name: &str) {
        let nodes = &self.document.node;
        let mut points = self.document.access.values();
        let is_user = points.any(|access| {
            access.attach == Attach::Extend && access.users.iter().any(|user| user == name)
        });
        if !nodes.contains_key(name) && !is_user {
            let near = nearest(name, nodes.keys().map(String::as_str)).map(str::to_owned);
            let name = beginning(name);
            self.find(place, Fault::UnknownNode { name, near });
        }
    }

    fn range(&mut self, place: &Place, what: &'static str, value: Option<u64>, within: (u64, u64)) {
        let (min, max) = within;
        let outside = value.filter(|value| !(min..=max).contains(value));
        if let Some(value) = outside {
            self.find(
                place,
                Fault::Range {
                    what,
                    value,
                    min,
                    max,
                },
            );
        }
    }

    fn text(&mut self, place: &Place, what: &'static str, text: &str) {
        let length = text.chars().count();
        if !(1..=TEXT_VALUE_MAX).contains(&length) || text.chars().any(char::is_control) {
            let text = beginning(text);
            self.find(place, Fault::Text { what, text });
        }
    }

    fn list(&mut self, place: &Place, what: &'static str, list: &[String]) {
        self.few(place, what, list.len());
        let mut seen = BTreeSet::new();
        for text in list {
            self.text(place, what, text);
            if text.contains(char::is_whitespace) {
                let text = beginning(text);
                self.find(place, Fault::Spaces { what, text });
            }
            if !seen.insert(text) {
                let text = beginning(text);
                self.find(place, Fault::Twice { what, text });
            }
        }
    }

    fn few(&mut self, place: &Place, what: &'static str, count: usize) {
        if count > LIST_MAX {
            let max = LIST_MAX;
            self.find(place, Fault::TooMany { what, count, max });
        }
    }

    fn find(&mut self, place: &Place, fault: Fault) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding {
                place: place.clone(),
                line: self.lines.get(place).copied(),
                fault,
            });
        }
    }
}

impl Link {
    /// Checks that probes pass the link with its impairments, and that these keep the bounds of
    /// the link.
    ///
    /// # Errors
    /// The first impairment that no link can have, or that contradicts a bound.
    pub fn check_impairment(&self) -> Result<(), Fault> {
        let both = self.impairment();
        both.check().map_err(Fault::Impairment)?;
        for side in [both.there, both.back].into_iter().flatten() {
            for (what, share) in [("loss", side.loss), ("corrupt", side.corrupt)] {
                if share == Some(Share::WHOLE) {
                    return Err(Fault::NothingPasses(what));
                }
            }
            let max = self.delay_max.map_or(DELAY_MAX, |max| max.min(DELAY_MAX));
            if let Some(delay) = side.delay.filter(|delay| *delay > max) {
                return Err(Fault::Late { delay, max });
            }
            let bound = side.loss.zip(self.loss_max);
            if let Some((loss, max)) = bound.filter(|(loss, max)| loss > max) {
                return Err(Fault::Lossy { loss, max });
            }
        }
        Ok(())
    }
}

fn subject(test: &Test) -> Option<&[String; 2]> {
    match (&test.ping, &test.throughput) {
        (Some(pair), None) | (None, Some(pair)) => Some(pair),
        _ => None,
    }
}

/// The beginning of an untrusted text, with control characters replaced so that it can be printed.
fn beginning(text: &str) -> String {
    let printable = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    printable.take(NAME_MAX * 2).collect()
}
