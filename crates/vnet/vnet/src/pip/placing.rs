//! Placement of a part: a host for each node, a path and a tunnel for each link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use carina_embed::joint::Joint;
use carina_embed::request::{Node, Sharing, VirtualLink};
use carina_embed::{Embedder, Embedding, HostId, NodeId, Request, Residual};
use carina_random::mix;
use carina_time::Duration;
use serde::{Deserialize, Serialize};

use crate::document::Carrier;
use crate::host_part::{HostLimits, LimitError, VnetId};
use crate::message::{PartEnd, PartLink, PartNode, PartRequest, Reason, ReasonCode};
use crate::names::DocumentNames;

use super::inventory::Ground;

/// The hosts, paths and tunnels of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placement {
    /// The host of each node.
    pub(super) hosts: BTreeMap<String, String>,
    /// The names of the substrate links along each link's path, in the order of the part's links.
    pub(super) paths: Vec<Vec<String>>,
    /// The tunnel of each link, in the order of the part's links.
    pub(super) tunnels: Vec<Tunnel>,
}

/// The tag and addresses of a link's tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    /// The tag: GRE key or VXLAN VNI.
    pub(super) tag: u32,
    /// The tunnel address of each end; `None` for an end at a border.
    pub(super) outer: [Option<Ipv4Addr>; 2],
}

/// A part with its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Laid {
    pub(super) part: PartRequest,
    pub(super) placement: Placement,
}

/// Why a part was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// Free resources do not suffice; [`why_not`] finds the binding constraint.
    NoRoom,
    /// The part was not placed for another reason.
    Because(Reason),
}

impl From<Reason> for Unplaced {
    fn from(reason: Reason) -> Unplaced {
        Unplaced::Because(reason)
    }
}

/// Tags and tunnel addresses that are in use.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The network for which new tags are chosen.
    vnet: VnetId,
    pub(super) tags: BTreeSet<u32>,
    pub(super) addresses: BTreeSet<Ipv4Addr>,
}

impl Laid {
    /// The hosts that have nodes of the part.
    pub(super) fn hosts(&self) -> BTreeSet<&str> {
        self.placement.hosts.values().map(String::as_str).collect()
    }
}

impl Taken {
    /// An empty set, from which `vnet` takes tags.
    pub(super) fn by(vnet: VnetId) -> Taken {
        Taken {
            vnet,
            tags: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }

    /// A free tag for a link of the network. The search starts at a hash of the uid and the link:
    /// only a VNP that knows the uid can predict the tag, so that no other VNP can occupy it first.
    fn next_tag(&self, link: u32) -> Option<u32> {
        let first = mix(self.vnet.number(), u64::from(link)) % u64::from(TAG_MAX);
        let tags = (first as u32..TAG_MAX).chain(0..first as u32);
        tags.map(|tag| tag + 1).find(|tag| !self.tags.contains(tag))
    }

    pub(super) fn add(&mut self, placement: &Placement) {
        for tunnel in &placement.tunnels {
            self.tags.insert(tunnel.tag);
            self.addresses.extend(tunnel.outer.iter().flatten());
        }
    }
}

/// Places a part on free resources. Nodes that already have a host stay there if possible. Drained
/// hosts get no other nodes, and no host gets nodes that exceed its limits.
pub(super) fn place(
    ground: &Ground,
    residual: &Residual,
    part: &PartRequest,
    keeping: &Keeping,
    taken: Taken,
) -> Result<Placement, Unplaced> {
    let before = keeping.before;
    let wish = |name: &str, chosen: Option<u32>| -> Option<HostId> {
        let old = before.and_then(|laid| ground.host(laid.placement.hosts.get(name)?));
        old.or(chosen.map(HostId))
    };
    let wishes = part
        .nodes
        .iter()
        .map(|node| wish(&node.node.name, node.host));
    let wishes: Vec<Option<HostId>> = wishes.collect();
    let free = vec![None; wishes.len()];
    let mut embedder = Joint::default();
    let mut found = None;
    // Without wishes both tries would be the same.
    let tries = if wishes == free { 1 } else { 2 };
    for pins in [&wishes, &free].into_iter().take(tries) {
        let request = request(ground, part, pins, keeping)?;
        if let Ok(embedding) = embedder.embed(residual, &request) {
            found = Some(embedding);
            break;
        }
    }
    let Some(embedding) = found else {
        return Err(Unplaced::NoRoom);
    };
    Ok(placement(ground, part, &embedding, before, taken)?)
}

/// Places a part with one node on another host; all other nodes stay where they are. `None` if that
/// does not fit.
pub(super) fn place_at(
    ground: &Ground,
    residual: &Residual,
    before: &Laid,
    hosts: &BTreeMap<String, String>,
    taken: Taken,
) -> Result<Option<Placement>, Reason> {
    let part = &before.part;
    let pin = |node: &PartNode| ground.host(hosts.get(&node.node.name)?);
    let pins: Vec<Option<HostId>> = part.nodes.iter().map(pin).collect();
    let request = request(ground, part, &pins, &Keeping::default())?;
    let Ok(embedding) = Joint::default().embed(residual, &request) else {
        return Ok(None);
    };
    placement(ground, part, &embedding, Some(before), taken).map(Some)
}

fn placement(
    ground: &Ground,
    part: &PartRequest,
    embedding: &Embedding,
    before: Option<&Laid>,
    taken: Taken,
) -> Result<Placement, Reason> {
    let hosts = named_hosts(ground, part, embedding);
    let names = ground.link_names();
    let path = |path: &Vec<carina_embed::LinkId>| {
        let hops = path.iter().map(|link| names[link.index()].to_owned());
        hops.collect::<Vec<String>>()
    };
    let paths = embedding.paths.iter().map(path).collect();
    let tunnels = tunnels(ground, part, &hosts, before, taken)?;
    Ok(Placement {
        hosts,
        paths,
        tunnels,
    })
}

fn named_hosts(
    ground: &Ground,
    part: &PartRequest,
    embedding: &Embedding,
) -> BTreeMap<String, String> {
    let mut hosts = BTreeMap::new();
    for (node, host) in part.nodes.iter().zip(&embedding.hosts) {
        // Every node needs processors, and only real hosts have any.
        if let Some(host) = ground.host_entry(*host) {
            hosts.insert(node.node.name.clone(), host.name.clone());
        }
    }
    hosts
}

/// The limits that hosts have reported; a host without an entry has not reported any.
pub(super) type Limits = BTreeMap<HostId, HostLimits>;

/// Restrictions of placement in addition to free resources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping<'a> {
    /// The part before the change; its nodes may stay on their hosts.
    pub(super) before: Option<&'a Laid>,
    /// Drained hosts, which get no new nodes.
    pub(super) drained: &'a [HostId],
    /// The hosts' limits.
    pub(super) limits: &'a Limits,
}

impl Default for Keeping<'_> {
    fn default() -> Self {
        static UNLIMITED: Limits = Limits::new();
        Keeping {
            before: None,
            drained: &[],
            limits: &UNLIMITED,
        }
    }
}

impl Keeping<'_> {
    /// The hosts that must not get a node.
    fn barred(&self, ground: &Ground, wanted: &PartNode) -> Vec<HostId> {
        let name = &wanted.node.name;
        let before = self.before.and_then(|laid| laid.placement.hosts.get(name));
        let before = before.and_then(|host| ground.host(host));
        let others = self.drained.iter().copied();
        let mut barred: Vec<HostId> = others.filter(|host| Some(*host) != before).collect();
        let runs = before.filter(|_| self.is_as_before(wanted));
        let unfit = self.limits.iter().filter(|(host, limits)| {
            runs != Some(**host) && limits.check_node(&wanted.node).is_err()
        });
        barred.extend(unfit.map(|(host, _)| *host));
        barred
    }

    /// Whether the part before the change already has exactly this node, so that no host has to
    /// make it again.
    fn is_as_before(&self, wanted: &PartNode) -> bool {
        let mut nodes = self.before.iter().flat_map(|laid| &laid.part.nodes);
        nodes.any(|old| old.node == wanted.node)
    }
}

/// Why no host of the provider can ever make some node of a part, however much is free: every host
/// at an allowed location and with the node's labels has limits that exclude it. `None` if there is
/// no such node.
pub(super) fn unfit(ground: &Ground, part: &PartRequest, keeping: &Keeping) -> Option<Reason> {
    let unfit = part.nodes.iter().find_map(|wanted| {
        if keeping.is_as_before(wanted) {
            return None;
        }
        let hosts = ground.inventory.hosts.iter().filter(|host| {
            let mut labels = wanted.labels.iter();
            (wanted.location.is_empty() || wanted.location.contains(&host.location))
                && labels.all(|(key, value)| host.labels.get(key) == Some(value))
        });
        let mut mildest: Option<LimitError> = None;
        for host in hosts {
            let limits = keeping.limits.get(&ground.host(&host.name)?)?;
            let refusal = limits.check_node(&wanted.node).err()?;
            let known = mildest.take();
            mildest = Some(known.map_or(refusal.clone(), |known| milder(known, refusal)));
        }
        mildest
    })?;
    Some(Reason {
        code: ReasonCode::Impossible,
        message: unfit.for_operators(),
        node: Some(unfit.node().to_owned()),
    })
}

/// Of two refusals, the one that needs the smaller change of the document.
fn milder(one: LimitError, other: LimitError) -> LimitError {
    let needs = |error: &LimitError| match error {
        LimitError::MemberMemory { needs, .. } => (0, *needs),
        LimitError::Interfaces { .. } => (1, 0),
        LimitError::NoMemberImage { .. } => (2, 0),
        LimitError::NoImage { .. } => (3, 0),
        LimitError::NoMachines { .. } => (4, 0),
        _ => (5, 0),
    };
    if needs(&other) < needs(&one) {
        other
    } else {
        one
    }
}

/// The part as a request to the embedder: its nodes, and one more node for each border that its
/// links use.
fn request(
    ground: &Ground,
    part: &PartRequest,
    pins: &[Option<HostId>],
    keeping: &Keeping,
) -> Result<Request, Reason> {
    let impossible = |what: String| Reason::new(ReasonCode::Impossible, what);
    let mut numbers: BTreeMap<PartEndName, NodeId> = BTreeMap::new();
    for (number, wanted) in part.nodes.iter().enumerate() {
        let name = wanted.node.name.as_str();
        let known = numbers.insert(PartEndName::Node(name), NodeId::of(number));
        if known.is_some() || wanted.node.cpus == 0 {
            let words = "the node occurs twice, or requests no processor";
            return Err(impossible(format!("node `{name}`: {words}")));
        }
    }
    let number_of = |numbers: &BTreeMap<PartEndName, NodeId>, name: &str| {
        let found = numbers.get(&PartEndName::Node(name)).copied();
        found.ok_or_else(|| impossible(format!("node `{name}` is not in the part")))
    };
    let mut nodes = Vec::new();
    for (wanted, pin) in part.nodes.iter().zip(pins) {
        let named = wanted.labels.iter();
        let named = named.map(|(key, value)| ground.label(&format!("{key}={value}")));
        let apart = wanted.apart_from.iter();
        let apart_from = apart.map(|name| number_of(&numbers, name));
        nodes.push(Node {
            cpu: u64::from(wanted.node.cpus),
            memory: wanted.node.memory_mib,
            nics: u64::from(wanted.nics),
            locations: wanted
                .location
                .iter()
                .map(|name| ground.location(name))
                .collect(),
            labels: named.chain(pin.map(|host| ground.pin(host))).collect(),
            apart_from: apart_from.collect::<Result<_, _>>()?,
            barred: keeping.barred(ground, wanted),
        });
    }
    let mut links = Vec::new();
    for link in &part.links {
        let mut ends = [NodeId(0); 2];
        for (end, wanted) in ends.iter_mut().zip(&link.ends) {
            *end = match wanted {
                PartEnd::Node(end) => number_of(&numbers, &end.node)?,
                PartEnd::Border(name) => {
                    let outside = ground.outside(name);
                    let outside = outside
                        .ok_or_else(|| impossible("the provider has no such border".to_owned()))?;
                    let next = NodeId::of(nodes.len());
                    *numbers.entry(PartEndName::Border(name)).or_insert_with(|| {
                        nodes.push(Node {
                            labels: vec![ground.pin(outside)],
                            ..Node::default()
                        });
                        next
                    })
                }
            };
        }
        links.push(VirtualLink {
            ends,
            rate: link.rate.bps(),
            delay_max: link.delay_max_us.map(Duration::from_micros),
        });
    }
    let request = Request::new(nodes, links, Sharing::UnlessApart);
    request.map_err(|error| impossible(error.to_string()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartEndName<'a> {
    Node(&'a str),
    Border(&'a str),
}

/// The reason why a part does not fit: the binding constraint, and what would fit. Takes some 10 to
/// 100 times as long as detecting that the part does not fit.
pub(super) fn why_not(
    ground: &Ground,
    residual: &Residual,
    part: &PartRequest,
    keeping: &Keeping,
) -> Reason {
    let free = vec![None; part.nodes.len()];
    let names = DocumentNames {
        nodes: part
            .nodes
            .iter()
            .map(|node| node.node.name.clone())
            .collect(),
        places: part
            .nodes
            .iter()
            .map(|node| node.location.clone())
            .collect(),
    };
    let request = match request(ground, part, &free, keeping) {
        Ok(request) => request,
        Err(reason) => return reason,
    };
    crate::names::insufficient(residual, &request, &names)
}

/// The tags and tunnel addresses of a part's links. A link keeps its old ones if both of its ends
/// stay.
fn tunnels(
    ground: &Ground,
    part: &PartRequest,
    hosts: &BTreeMap<String, String>,
    before: Option<&Laid>,
    mut taken: Taken,
) -> Result<Vec<Tunnel>, Reason> {
    let mut tunnels = Vec::new();
    for link in &part.links {
        if let Some(tunnel) = before.and_then(|laid| kept(laid, link, hosts)) {
            tunnels.push(tunnel);
            continue;
        }
        let tag = before.and_then(|laid| outer_tag(laid, link));
        let tag = tag.or_else(|| taken.next_tag(link.number)).ok_or_else(|| {
            let words = "no tag is left for a link";
            Reason::new(ReasonCode::Insufficient, words)
        })?;
        taken.tags.insert(tag);
        let mut outer = [None, None];
        for (address, end) in outer.iter_mut().zip(&link.ends) {
            *address = outer_address(ground, link.carrier, end, hosts, &mut taken)?;
        }
        tunnels.push(Tunnel { tag, outer });
    }
    Ok(tunnels)
}

/// The tag of a link that already left the part before: the other provider uses it.
fn outer_tag(laid: &Laid, link: &PartLink) -> Option<u32> {
    let mut links = laid.part.links.iter();
    let place = links.position(|old| old.number == link.number && old.ends == link.ends);
    link.border()?;
    laid.placement.tunnels.get(place?).map(|tunnel| tunnel.tag)
}

/// The tunnel that a link had before, if its carrier and the hosts of its ends are unchanged.
fn kept(laid: &Laid, link: &PartLink, hosts: &BTreeMap<String, String>) -> Option<Tunnel> {
    let mut links = laid.part.links.iter();
    let same = |old: &PartLink| {
        old.number == link.number && old.ends == link.ends && old.carrier == link.carrier
    };
    let place = links.position(same)?;
    let stays = |end: &PartEnd| match end {
        PartEnd::Node(end) => hosts.get(&end.node) == laid.placement.hosts.get(&end.node),
        PartEnd::Border(_) => true,
    };
    let tunnel = laid.placement.tunnels.get(place);
    tunnel.filter(|_| link.ends.iter().all(stays)).cloned()
}

fn outer_address(
    ground: &Ground,
    carrier: Carrier,
    end: &PartEnd,
    hosts: &BTreeMap<String, String>,
    taken: &mut Taken,
) -> Result<Option<Ipv4Addr>, Reason> {
    let PartEnd::Node(end) = end else {
        return Ok(None);
    };
    let host = hosts.get(&end.node).and_then(|name| ground.host(name));
    let Some(host) = host.and_then(|host| ground.host_entry(host)) else {
        return Ok(None);
    };
    if carrier != Carrier::Ipip {
        return Ok(Some(host.address));
    }
    let first = host.address.to_bits();
    let mut pool = (1..=host.tunnel_addresses).map(|offset| Ipv4Addr::from_bits(first + offset));
    match pool.find(|address| !taken.addresses.contains(address)) {
        Some(address) => {
            taken.addresses.insert(address);
            Ok(Some(address))
        }
        None => {
            let words = format!(
                "node {}: its host has no free tunnel address for another ipip link; use gre or \
                 vxlan",
                end.node
            );
            Err(Reason::new(ReasonCode::Insufficient, words))
        }
    }
}

/// The largest tag: a VXLAN VNI has 24 bits. (RFC 7348, section 5)
pub(super) const TAG_MAX: u32 = (1 << 24) - 1;
