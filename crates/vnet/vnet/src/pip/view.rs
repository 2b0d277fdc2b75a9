//! What a provider shows to those who run it: its hosts and links with what is promised of them,
//! and all parts of networks with where they are. There are names of the substrate in it.

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

/// All that a provider knows.
#[derive(Clone, Debug, Serialize)]
pub struct PipView {
    /// Its hosts, in the order of the inventory.
    pub hosts: Vec<HostView>,
    /// Links between them, then those to other providers.
    pub links: Vec<GroundLinkView>,
    /// Parts of networks, by their uids.
    pub parts: Vec<PartView>,
    /// What was discarded, by reason.
    pub discarded: BTreeMap<&'static str, u64>,
    /// Of what more is promised than there is.
    pub excess: Vec<String>,
}

/// A host.
#[derive(Clone, Debug, Serialize)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub location: String,
    /// Its address on the substrate.
    pub address: Ipv4Addr,
    /// What else it has.
    pub labels: BTreeMap<String, String>,
    /// Whether its agent has reported lately.
    pub is_there: bool,
    /// Whether it takes no new nodes.
    pub is_drained: bool,
    /// How long ago that was, ms; never, since this process began, without it.
    pub heard_ms: Option<u64>,
    /// Processors.
    pub cpus: Share,
    /// Memory, MiB.
    pub memory_mib: Share,
    /// Network cards of the host that are given to nodes, and how many there are.
    pub nics: Share,
}

/// Something of which there is so much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// In all.
    pub all: u64,
    /// Of parts that are held or made: what no one else can have.
    pub promised: u64,
    /// Of parts that are made.
    pub used: u64,
}

/// A link of the substrate.
#[derive(Clone, Debug, Serialize)]
pub struct GroundLinkView {
    /// Its name.
    pub name: String,
    /// The hosts at its ends; one, where it leads to another provider.
    pub hosts: Vec<String>,
    /// Bits a second.
    pub rate_bps: Share,
    /// Its delay, µs.
    pub delay_us: u64,
}

/// A part of a network.
#[derive(Clone, Debug, Serialize)]
pub struct PartView {
    /// The network.
    pub vnet: VnetId,
    /// Its name, which its operator chose.
    pub name: String,
    /// The VNP that it is for.
    pub vnp: String,
    /// The attempt of the VNP.
    pub round: u64,
    /// How far it is.
    pub state: PartState,
    /// When it goes unless its VNP names it again: in so many ms. Of one that is held the store
    /// knows it.
    pub expires_in_ms: Option<u64>,
    /// Its nodes.
    pub nodes: Vec<NodeView>,
    /// Its links.
    pub links: Vec<LinkView>,
    /// Hosts that have still to let go of what it was before.
    pub leaving_hosts: Vec<String>,
}

/// How far a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartState {
    /// It is held on a lease of the store, and not made.
    Held,
    /// It is made, or is being made.
    Made,
    /// It is being removed.
    Leaving,
}

/// A node and where it is.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// What makes it.
    pub kind: Kind,
    /// Its image.
    pub image: String,
    /// Processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Its host.
    pub host: String,
    /// What that says of it; a reason is in the words of the host.
    pub state: NodeState,
}

/// A link and what it is over the substrate.
#[derive(Clone, Debug, Serialize)]
pub struct LinkView {
    /// Its number.
    pub number: u32,
    /// Its ends, `NODE:INTERFACE`, or `border NAME`.
    pub ends: [String; 2],
    /// What carries it.
    pub carrier: Carrier,
    /// Its rate.
    pub rate: Rate,
    /// The tag of its tunnel.
    pub tag: u32,
    /// The outer address of each end at a node.
    pub outer: [Option<Ipv4Addr>; 2],
    /// The links of the substrate that it passes.
    pub path: Vec<String>,
    /// What the host of its first end here says of it.
    pub state: LinkState,
}

impl<S: Store> Pip<S> {
    /// All that it knows now.
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
                is_there: self.is_there(now, id),
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
            let at = |host: HostId| self.ground.host_entry(host).map(|it| it.name.clone());
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
            .map(|(vnet, it)| self.made(now, vnet, it));
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
        let old = made.hosts().into_iter().filter(|it| !wanted.contains(it));
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
            let said = self.said(vnet, &host);
            let said = said.and_then(|said| said.nodes.get(&node.name));
            NodeView {
                name: node.name.clone(),
                kind: node.kind,
                image: node.image.clone(),
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                state: said.map(|it| it.state.clone()).unwrap_or_default(),
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
        let said = near.and_then(|host| self.said(vnet, host));
        let said = said.and_then(|said| said.links.get(&link.number));
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
            state: said.map(|it| it.state.clone()).unwrap_or_default(),
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
