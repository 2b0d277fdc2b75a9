//! A network divided among hosts: what each of them has to make.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::document::{Carrier, Document, Rate};
use crate::founders::founders;
use crate::host_part::{Far, FarHost, HostPart, LinkPart, Nic, NodePart, Users, VnetId};
use crate::layout::{LaidAccess, LaidLink, Layout};

/// Where the parts of a network are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The host of each node.
    pub hosts: BTreeMap<String, String>,
    /// What tells each link, by its number, from all others of the substrate.
    pub tags: BTreeMap<u32, u32>,
    /// Outer addresses of the ends of links between two hosts.
    pub outer: BTreeMap<u32, [Ipv4Addr; 2]>,
}

/// Why a network cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DivisionError {
    /// A node has no host.
    #[error("node {0} has no host")]
    NoHost(String),
    /// A link has no tag.
    #[error("link {0} has no tag")]
    NoTag(u32),
    /// A link between two hosts has no outer addresses.
    #[error("link {0} is between two hosts and has no outer addresses")]
    NoOuter(u32),
}

/// What each host has of a network: every host of `placement`, and only those.
///
/// # Errors
/// The placement lacks something.
pub fn divide(
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
    let mut routes = layout.routes();
    let mut founders = founders(document, layout);
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
            interfaces: layout.interfaces(vnet, name),
            routes: routes.remove(name).unwrap_or_default(),
            founder: founders.remove(name),
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

/// Links that leave the network at their far ends, of the hosts that have their nodes: access
/// points, and cards of which the hosts have not chosen any yet.
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
    }));
    links
}

/// The access points of a network.
fn access_links(document: &Document, layout: &Layout) -> Vec<LinkPart> {
    let unbounded = Rate::from_bps(USER_RATE).expect("this is a rate");
    let link = |(number, laid): (u32, &LaidAccess)| LinkPart {
        number,
        tag: number,
        carrier: Carrier::Ipip,
        rate: document
            .access
            .get(&laid.name)
            .and_then(|it| it.rate)
            .unwrap_or(unbounded),
        near: laid.end.clone(),
        far: Far::Users(Users {
            access: laid.name.clone(),
            addresses: laid.addresses(number),
        }),
    };
    layout.access().map(link).collect()
}

/// The rate of a card, which has none of its own, bits a second.
const CARD_RATE: u64 = 1_000_000_000_000;
/// The rate of a user of whom nothing is said, bits a second.
const USER_RATE: u64 = 10_000_000_000;

/// A link as the host at one side of it has it.
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
        far,
    })
}
