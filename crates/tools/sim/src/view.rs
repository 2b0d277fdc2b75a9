//! What a member knows about its DIF and how much state it keeps, read from its RIB, and
//! descriptions of all members for people.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::{RibObject, Scalar};

use crate::model::{Lower, SlotId};
use crate::rib::RibError;
use crate::world::World;

/// What a member knows about its DIF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Addresses of members, by name.
    pub members: BTreeMap<String, u64>,
    /// Names of the applications in the directory that the member knows.
    pub directory: BTreeSet<String>,
    /// Links, each as a pair of addresses: from, to.
    pub links: BTreeSet<(u64, u64)>,
    /// Next hops for each destination address.
    pub table: BTreeMap<u64, Vec<u64>>,
}

/// How much state a member keeps, read from its RIB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burden {
    /// Number of flows of the member.
    pub flows: usize,
    /// Number of connections, including connections of management.
    pub connections: usize,
    /// Number of N-1 flows.
    pub n1s: usize,
    /// Number of PDUs in queues.
    pub queued: u64,
    /// Number of all objects in the RIB.
    pub objects: usize,
    /// Number of entries in the forwarding table.
    pub routes: usize,
}

impl World {
    /// Reads what a member knows.
    ///
    /// # Errors
    /// The IPCP is dead, or its answer is not understood.
    pub fn view(&mut self, slot: SlotId) -> Result<View, RibError> {
        let mut view = View::default();
        for object in self.read_rib(slot, "/members", 1)? {
            let is_seen = flag(&object, "is_visible");
            if let Some(name) = leaf(&object, "/members/").filter(|_| is_seen) {
                view.members.insert(name, number(&object, "address")?);
            }
        }
        for object in self.read_rib(slot, "/directory", 1)? {
            view.directory.extend(leaf(&object, "/directory/"));
        }
        for object in self.read_rib(slot, "/routing/links", 1)? {
            let is_up = flag(&object, "is_up");
            if let Some(name) = leaf(&object, "/routing/links/").filter(|_| is_up) {
                let ends = name
                    .split_once('-')
                    .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
                view.links.insert(ends.ok_or(RibError::NotALink(name))?);
            }
        }
        for object in self.read_rib(slot, "/routing/table", 1)? {
            if let Some(name) = leaf(&object, "/routing/table/") {
                let dst = name.parse().map_err(|_| RibError::NotAnAddress(name))?;
                view.table.insert(dst, addresses(&object, "next")?);
            }
        }
        Ok(view)
    }

    /// Reads how much state a member keeps.
    ///
    /// # Errors
    /// The IPCP is dead, or its answer is not understood.
    pub fn burden(&mut self, slot: SlotId) -> Result<Burden, RibError> {
        let objects = self.read_rib(slot, "/", 9)?;
        let count = |prefix: &str| {
            let below = |object: &&RibObject| leaf(object, prefix).is_some();
            objects.iter().filter(below).count()
        };
        let ports = objects
            .iter()
            .filter(|o| leaf(o, "/data-transfer/n1/").is_some());
        let queued = ports
            .filter_map(|object| number(object, "queued-pdus").ok())
            .sum();
        Ok(Burden {
            flows: count("/flows/"),
            connections: count("/data-transfer/connections/"),
            n1s: count("/data-transfer/n1/"),
            queued,
            objects: objects.len(),
            routes: count("/routing/table/"),
        })
    }

    /// Value of the counter `what` of a member; 0 if the member is dead.
    pub fn counted(&mut self, slot: SlotId, what: &str) -> u64 {
        let objects = self.read_rib(slot, "/counters", 0).unwrap_or_default();
        let counts = objects
            .iter()
            .filter_map(|object| number(object, what).ok());
        counts.sum()
    }

    /// Describes the state of all members, for people, when something is wrong.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for slot in &self.slots {
            let name = &slot.config.name;
            let Some(instance) = &slot.instance else {
                text += &format!("  {name}: dead\n");
                continue;
            };
            let n1s: Vec<String> = instance
                .n1s
                .iter()
                .flatten()
                .map(|n1| self.label(&n1.lower))
                .collect();
            let address = instance
                .address
                .map_or("no member".to_owned(), |a| format!("address {a}"));
            text += &format!("  {name}: {address}, N-1 {}\n", n1s.join(" "));
        }
        text
    }

    /// Describes for each member what it lacks of what any member knows, for people.
    pub fn describe_views(&mut self) -> String {
        let slots: Vec<SlotId> = (0..self.slots.len()).map(SlotId).collect();
        let mut views: Vec<(SlotId, View)> = Vec::new();
        for slot in slots {
            if self.address(slot).is_some()
                && let Ok(view) = self.view(slot)
            {
                views.push((slot, view));
            }
        }
        let mut text = String::new();
        for (slot, view) in &views {
            let peers = views
                .iter()
                .filter(|(other, _)| self.dif(*other) == self.dif(*slot));
            let mut all = View::default();
            for (_, other) in peers {
                all.members.extend(other.members.clone());
                all.directory.extend(other.directory.iter().cloned());
                all.links.extend(&other.links);
            }
            let members: Vec<&String> = all
                .members
                .keys()
                .filter(|name| !view.members.contains_key(*name))
                .collect();
            let apps: Vec<&String> = all.directory.difference(&view.directory).collect();
            let links: Vec<&(u64, u64)> = all.links.difference(&view.links).collect();
            let routes = view.table.len();
            text += &format!(
                "  {} lacks members {members:?}, applications {apps:?}, links {links:?}; {routes} routes\n",
                self.name(*slot)
            );
        }
        text
    }

    fn label(&self, lower: &Lower) -> String {
        match lower {
            Lower::Cable { cable, flow, .. } => format!("{}#{flow}", self.cables[cable.0].name),
            Lower::Flow { slot, key, .. } => format!("{}:{}", self.slots[slot.0].config.dif, key.0),
        }
    }
}

/// The last part of an object's name, if the rest of it is `prefix`.
fn leaf(object: &RibObject, prefix: &str) -> Option<String> {
    let name = object.path.strip_prefix(prefix)?;
    (!name.contains('/')).then(|| name.to_owned())
}

fn field<'a>(object: &'a RibObject, name: &str) -> Result<&'a Scalar, RibError> {
    let found = object.fields.iter().find(|(key, _)| key == name);
    let found = found.map(|(_, value)| value);
    found.ok_or_else(|| RibError::NoField {
        object: object.clone(),
        name: name.to_owned(),
    })
}

fn flag(object: &RibObject, name: &str) -> bool {
    matches!(field(object, name), Ok(Scalar::Bool(true)))
}

fn number(object: &RibObject, name: &str) -> Result<u64, RibError> {
    match field(object, name)? {
        Scalar::Uint(value) => Ok(*value),
        other => Err(unexpected(object, name, other)),
    }
}

fn addresses(object: &RibObject, name: &str) -> Result<Vec<u64>, RibError> {
    let parse = |text: &str| {
        let address = text.parse();
        address.map_err(|_| RibError::NotAnAddress(text.to_owned()))
    };
    match field(object, name)? {
        Scalar::List(texts) => texts.iter().map(|text| parse(text)).collect(),
        Scalar::Text(text) => text.split_whitespace().map(parse).collect(),
        Scalar::Uint(value) => Ok(vec![*value]),
        other => Err(unexpected(object, name, other)),
    }
}

fn unexpected(object: &RibObject, name: &str, value: &Scalar) -> RibError {
    RibError::Unexpected {
        path: object.path.clone(),
        name: name.to_owned(),
        value: value.clone(),
    }
}
