//! Divides a virtual network among hosts: computes the part that each host has to make.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::document::{Carrier, Document, Kind, LinkImpairment, PathChoice, Rate, Timetable};
use crate::founders::founders;
use crate::host_part::{Far, FarHost, HostPart, LinkPart, Nic, NodePart, Users, VnetId};
use crate::layout::{LaidAccess, LaidLink, Layout};

/// The hosts, tags and tunnel addresses chosen for a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Name of the host for each node, by node name.
    pub hosts: BTreeMap<String, String>,
    /// For each link number, a tag that is unique on the substrate (GRE key or VXLAN VNI).
    pub tags: BTreeMap<u32, u32>,
    /// For each link between two hosts, by number: the tunnel address at each end.
    pub outer: BTreeMap<u32, [Ipv4Addr; 2]>,
}

/// Why a placement does not suffice to divide a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DivisionError {
    /// The placement gives no host for this node.
    #[error("node {0} is not assigned to a host")]
    NoHost(String),
    /// The placement gives no tag for the link of this number.
    #[error("link {0} has no tag")]
    NoTag(u32),
    /// The placement gives no tunnel addresses for the link of this number, which joins two hosts.
    #[error("link {0} is between two hosts and has no outer addresses")]
    NoOuter(u32),
}

/// The part of each host, by host name. Only the hosts of `placement` have parts.
///
/// # Errors
/// `placement` lacks a host, a tag or tunnel addresses.
pub fn divide(
    document: &Document,
    generation: (VnetId, u64),
    layout: &Layout,
    placement: &Placement,
) -> Result<BTreeMap<String, HostPart>, DivisionError> {
    let mut parts = divide_without_routes(document, generation, layout, placement)?;
    add_routes(layout, parts.values_mut());
    Ok(parts)
}

/// Gives the nodes of parts the routes of a layout, which take the longest of a division.
pub fn add_routes<'a>(layout: &Layout, parts: impl Iterator<Item = &'a mut HostPart>) {
    let (mut routes, mut routes6) = (layout.routes(), layout.routes6());
    for node in parts.flat_map(|part| &mut part.nodes) {
        node.routes = routes.remove(&node.name).unwrap_or_default();
        node.routes6 = routes6.remove(&node.name).unwrap_or_default();
    }
}

/// Like [`divide`], but the nodes have no routes yet.
///
/// # Errors
/// As for [`divide`].
pub fn divide_without_routes(
    document: &Document,
    (vnet, generation): (VnetId, u64),
    layout: &Layout,
    placement: &Placement,
) -> Result<BTreeMap<String, HostPart>, DivisionError> {
    let host_of = |node: &str| -> Result<&String, DivisionError> {
        let host = placement.hosts.get(node);
        host.ok_or_else(|| DivisionError::NoHost(node.to_owned()))
    };
    let mut parts: BTreeMap<String, HostPart> = BTreeMap::new();
    for host in placement.hosts.values() {
        let part = HostPart {
            vnet,
            name: document.vnet.name.clone(),
            generation,
            nodes: Vec::new(),
            links: Vec::new(),
        };
        parts.insert(host.clone(), part);
    }
    let mut founders = founders(document, layout);
    let mut interfaces = layout.interfaces_of_all(vnet);
    for name in document.node.keys() {
        let Some(node) = document.resolved(name) else {
            continue;
        };
        let made = NodePart {
            name: name.clone(),
            kind: node.kind,
            image: node.image,
            cpus: node.cpus,
            memory_mib: node.memory,
            boot: node.boot,
            interfaces: interfaces.remove(name.as_str()).unwrap_or_default(),
            routes: Vec::new(),
            routes6: Vec::new(),
            founder: founders.remove(name),
            has_loop: node.kind == Kind::Bridge && layout.has_loop(name),
            start: node.start,
        };
        let part = parts.get_mut(host_of(name)?);
        part.expect("every host of the placement has a part")
            .nodes
            .push(made);
    }
    for (number, laid) in layout.links() {
        let hosts = [host_of(&laid.ends[0].node)?, host_of(&laid.ends[1].node)?];
        let sides: &[usize] = if hosts[0] == hosts[1] { &[0] } else { &[0, 1] };
        for side in sides {
            let made = link_part(document, (number, laid), *side, hosts, placement)?;
            let part = parts.get_mut(hosts[*side]);
            part.expect("every host of the placement has a part")
                .links
                .push(made);
        }
    }
    for point in outer_links(document, layout) {
        let part = parts.get_mut(host_of(&point.near.node)?);
        part.expect("every host of the placement has a part")
            .links
            .push(point);
    }
    Ok(parts)
}

/// Links whose far end is outside the network: access points, and physical cards. The links of
/// cards name no card, because the hosts choose them later.
#[must_use]
pub fn outer_links(document: &Document, layout: &Layout) -> Vec<LinkPart> {
    let mut links = access_links(document, layout);
    let unbounded = Rate::from_bps(CARD_RATE).expect("this is a rate");
    links.extend(layout.nics().map(|(number, laid)| LinkPart {
        number,
        tag: number,
        carrier: Carrier::Ipip,
        rate: unbounded,
        near: laid.end.clone(),
        far: Far::Nic(Nic::default()),
        path: PathChoice::default(),
        impairment: LinkImpairment::default(),
        timetable: Timetable::default(),
    }));
    links
}

/// A link for each access point of the network.
fn access_links(document: &Document, layout: &Layout) -> Vec<LinkPart> {
    let unbounded = Rate::from_bps(USER_RATE).expect("this is a rate");
    let link = |(number, laid): (u32, &LaidAccess)| LinkPart {
        number,
        tag: number,
        carrier: Carrier::Ipip,
        rate: document
            .access
            .get(&laid.name)
            .and_then(|access| access.rate)
            .unwrap_or(unbounded),
        near: laid.end.clone(),
        far: Far::Users(Users {
            access: laid.name.clone(),
            addresses: laid.addresses(number),
        }),
        path: PathChoice::default(),
        impairment: LinkImpairment::default(),
        timetable: Timetable::default(),
    };
    layout.access().map(link).collect()
}

/// Rate that a link to a physical card gets, bits a second: more than any card has.
const CARD_RATE: u64 = 1_000_000_000_000;
/// Rate of each user, bits a second, if the document does not specify one.
const USER_RATE: u64 = 10_000_000_000;

/// The link as the host of its end `side` (0 or 1) gets it.
fn link_part(
    document: &Document,
    (number, laid): (u32, &LaidLink),
    side: usize,
    hosts: [&String; 2],
    placement: &Placement,
) -> Result<LinkPart, DivisionError> {
    let wanted = &document.link[laid.place];
    let tag = placement.tags.get(&number);
    let far = if hosts[0] == hosts[1] {
        Far::Here(laid.ends[1].clone())
    } else {
        let outer = placement.outer.get(&number);
        let outer = outer.ok_or(DivisionError::NoOuter(number))?;
        Far::Host(FarHost {
            host: hosts[1 - side].clone(),
            local: outer[side],
            remote: outer[1 - side],
        })
    };
    Ok(LinkPart {
        number,
        tag: *tag.ok_or(DivisionError::NoTag(number))?,
        carrier: wanted.carrier,
        rate: wanted.rate,
        near: laid.ends[side].clone(),
        path: wanted.path,
        timetable: wanted.timetable(),
        impairment: match far {
            Far::Here(_) => wanted.impairment(),
            _ => wanted.impairment().at_end(side),
        },
        far,
    })
}
