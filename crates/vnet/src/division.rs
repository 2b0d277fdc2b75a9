//! A network divided among hosts: what each of them has to make.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::document::Document;
use crate::host_part::{Far, FarHost, HostPart, LinkPart, NodePart, VnetId};
use crate::layout::{LaidLink, Layout};

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
    Ok(parts)
}

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
