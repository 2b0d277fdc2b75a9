//! The provider's own view: its hosts and links with what is promised of them, and all parts with
//! their placements. It contains names of the substrate, and is for the provider's operators only.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_embed::HostId;
use carina_time::Instant;
use serde::Serialize;

use crate::document::{Carrier, Kind, Rate};
use crate::host_part::{LinkState, NodeState, VnetId};
use crate::message::{PartEnd, PartLink};
use crate::store::Store;

use super::Pip;
use super::books::Made;
use super::placing::{Laid, Tunnel};

/// Everything that a provider knows of its hosts and of the parts of networks on them.
#[derive(Clone, Debug, Serialize)]
pub struct PipView {
    /// The hosts, in the order of the inventory.
    pub hosts: Vec<HostView>,
    /// The links between hosts, followed by the borders.
    pub links: Vec<GroundLinkView>,
    /// The parts of networks, by uid.
    pub parts: Vec<PartView>,
    /// Number of discarded messages and failed operations, by reason.
    pub discarded: BTreeMap<&'static str, u64>,
    /// The hosts and links of which more is promised than exists, as text.
    pub excess: Vec<String>,
}

/// A host of the provider, with its resources and the time of its last report.
#[derive(Clone, Debug, Serialize)]
pub struct HostView {
    /// Name of the host, as in the provider's inventory.
    pub name: String,
    /// Name of the location.
    pub location: String,
    /// The host's address on the substrate.
    pub address: Ipv4Addr,
    /// Labels of the host, with their values.
    pub labels: BTreeMap<String, String>,
    /// Whether the host's agent has reported recently enough to count as present.
    pub is_there: bool,
    /// Whether the host is drained, so that it gets no new nodes.
    pub is_drained: bool,
    /// Time since the last report, ms; `None` if none came since this process began.
    pub heard_ms: Option<u64>,
    /// Processors available to networks.
    pub cpus: Share,
    /// Memory available to networks, MiB.
    pub memory_mib: Share,
    /// Physical network cards available to networks.
    pub nics: Share,
}

/// How much of one resource of a PIP (processors, memory, cards of a host; rate of a link) exists,
/// is promised to networks, and is used by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// How much of the resource the host or link has, free or not.
    pub all: u64,
    /// How much of the resource the PIP has promised to parts that are reserved or made; no other
    /// part can get it.
    pub promised: u64,
    /// How much of the resource the parts use that are made; `promised` includes it.
    pub used: u64,
}

/// A link of the substrate.
#[derive(Clone, Debug, Serialize)]
pub struct GroundLinkView {
    /// Name of the link.
    pub name: String,
    /// The hosts at its ends; only one for a border.
    pub hosts: Vec<String>,
    /// Rate of the link in bits per second: how much exists, is promised, and is used.
    pub rate_bps: Share,
    /// Delay, µs.
    pub delay_us: u64,
}

/// A provider's part of a network, with the hosts of its nodes and the paths of its links.
#[derive(Clone, Debug, Serialize)]
pub struct PartView {
    /// Identifier (uid) of the network of which this is a part.
    pub vnet: VnetId,
    /// The network's name, chosen by its operator.
    pub name: String,
    /// Name of the VNP to which this PIP leases the part.
    pub vnp: String,
    /// Number of the VNP's attempt to make the network.
    pub round: u64,
    /// State of the part.
    pub state: PartState,
    /// Time until the part is removed unless its VNP renews it, ms; `None` for a reservation, whose
    /// lease the store keeps.
    pub expires_in_ms: Option<u64>,
    /// The nodes of the part.
    pub nodes: Vec<NodeView>,
    /// The links of the part.
    pub links: Vec<LinkView>,
    /// Hosts that have not yet removed what belongs to an earlier placement.
    pub leaving_hosts: Vec<String>,
}

/// State of a part at its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartState {
    /// The part is reserved on a lease of the store, and not made.
    Held,
    /// Hosts make the part, or have made it.
    Made,
    /// The part is being removed.
    Leaving,
}

/// A node as its provider sees it: its size, its state, and the host on which it is placed.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Name of the node, as the provider knows it.
    pub name: String,
    /// The kind of the node: virtual machine, namespace or bridge.
    pub kind: Kind,
    /// Name of the image that the node boots.
    pub image: String,
    /// Number of processors of the node.
    pub cpus: u32,
    /// Memory of the node, MiB.
    pub memory_mib: u64,
    /// Name of the host on which the node is placed.
    pub host: String,
    /// State that the host reports; a reason is in the host's own words.
    pub state: NodeState,
}

/// A link and its path over the substrate.
#[derive(Clone, Debug, Serialize)]
pub struct LinkView {
    /// Number of the link in its network.
    pub number: u32,
    /// The ends, each `NODE:INTERFACE` or `border NAME`.
    pub ends: [String; 2],
    /// Encapsulation that carries the link.
    pub carrier: Carrier,
    /// Rate that the link carries in each direction.
    pub rate: Rate,
    /// GRE key or VXLAN VNI of the link; no other link of the substrate has it.
    pub tag: u32,
    /// The tunnel address of each end; `None` for an end at a border.
    pub outer: [Option<Ipv4Addr>; 2],
    /// Names of the substrate links along the path.
    pub path: Vec<String>,
    /// State that the host of the link's first end reports.
    pub state: LinkState,
}

impl<S: Store> Pip<S> {
    /// The provider's state at time `now`, as its web page shows it.
    #[must_use]
    pub fn view(&self, now: Instant) -> PipView {
        let used = self.books.used(&self.ground);
        let promised = self.books.promised();
        let hosts = self.ground.inventory.hosts.iter().enumerate();
        let hosts = hosts.map(|(number, host)| {
            let (used, promised) = (used.host(number), promised.host(number));
            let id = HostId::of(number);
            let heard = self.reports.get(&id).map(|(at, _)| *at);
            HostView {
                name: host.name.clone(),
                location: host.location.clone(),
                address: host.address,
                labels: host.labels.clone(),
                is_there: self.is_present(now, id),
                is_drained: self.books.is_drained(&host.name),
                heard_ms: heard.map(|at| now.since(at).as_millis()),
                cpus: Share::of(host.cpus, promised.cpu, used.cpu),
                memory_mib: Share::of(host.memory_mib, promised.memory, used.memory),
                nics: Share::of(host.nics, promised.nics, used.nics),
            }
        });
        let links = self.ground.link_names().into_iter().enumerate();
        let links = links.map(|(number, name)| {
            let link = &self.ground.substrate.links()[number];
            let at = |host: HostId| {
                self.ground
                    .host_entry(host)
                    .map(|host_entry| host_entry.name.clone())
            };
            let (promised, used) = (promised.rate(number), used.rate(number));
            GroundLinkView {
                name: name.to_owned(),
                hosts: link.ends.into_iter().filter_map(at).collect(),
                rate_bps: Share::of(link.rate, promised, used),
                delay_us: link.delay.as_micros(),
            }
        });
        let made = self
            .books
            .all_made()
            .map(|(vnet, held)| self.made(now, vnet, held));
        let held = self.books.all_held().map(|(vnet, held)| PartView {
            state: PartState::Held,
            ..self.part(vnet, (&held.vnp, held.round), &held.laid)
        });
        PipView {
            hosts: hosts.collect(),
            links: links.collect(),
            parts: made.chain(held).collect(),
            discarded: self.discarded.clone(),
            excess: self.excess(),
        }
    }

    fn made(&self, now: Instant, vnet: VnetId, made: &Made) -> PartView {
        let wanted = made.wanted_hosts();
        let old = made
            .hosts()
            .into_iter()
            .filter(|host| !wanted.contains(host));
        PartView {
            state: if made.is_leaving {
                PartState::Leaving
            } else {
                PartState::Made
            },
            expires_in_ms: Some(made.expires_ms.saturating_sub(now.as_millis())),
            leaving_hosts: old.map(str::to_owned).collect(),
            ..self.part(vnet, (&made.vnp, made.round), &made.laid)
        }
    }

    fn part(&self, vnet: VnetId, (vnp, round): (&str, u64), laid: &Laid) -> PartView {
        let hosts = &laid.placement.hosts;
        let nodes = laid.part.nodes.iter().map(|wanted| {
            let node = &wanted.node;
            let host = hosts.get(&node.name).cloned().unwrap_or_default();
            let status = self.status_of(vnet, &host);
            let status = status.and_then(|status| status.nodes.get(&node.name));
            NodeView {
                name: node.name.clone(),
                kind: node.kind,
                image: node.image.clone(),
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                state: status
                    .map(|status| status.state.clone())
                    .unwrap_or_default(),
                host,
            }
        });
        let links = laid.part.links.iter().zip(&laid.placement.tunnels);
        let links = links.zip(&laid.placement.paths);
        let links = links.map(|((link, tunnel), path)| self.link(vnet, laid, (link, tunnel), path));
        PartView {
            vnet,
            name: laid.part.name.clone(),
            vnp: vnp.to_owned(),
            round,
            state: PartState::Made,
            expires_in_ms: None,
            nodes: nodes.collect(),
            links: links.collect(),
            leaving_hosts: Vec::new(),
        }
    }

    fn link(
        &self,
        vnet: VnetId,
        laid: &Laid,
        (link, tunnel): (&PartLink, &Tunnel),
        path: &[String],
    ) -> LinkView {
        let ends = &link.ends;
        let near = ends.iter().find_map(|end| match end {
            PartEnd::Node(end) => laid.placement.hosts.get(&end.node),
            PartEnd::Border(_) => None,
        });
        let status = near.and_then(|host| self.status_of(vnet, host));
        let status = status.and_then(|status| status.links.get(&link.number));
        LinkView {
            number: link.number,
            ends: [0, 1].map(|side| match &ends[side] {
                PartEnd::Node(end) => end.to_string(),
                PartEnd::Border(name) => format!("border {name}"),
            }),
            carrier: link.carrier,
            rate: link.rate,
            tag: tunnel.tag,
            outer: tunnel.outer,
            path: path.to_vec(),
            state: status
                .map(|status| status.state.clone())
                .unwrap_or_default(),
        }
    }
}

impl Share {
    fn of(all: u64, promised: u64, used: u64) -> Share {
        Share {
            all,
            promised,
            used,
        }
    }
}
