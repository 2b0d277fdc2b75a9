//! Splits a network among providers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carina_embed::joint::Joint;
use carina_embed::request::{Node, Sharing, VirtualLink};
use carina_embed::{Embedder, Embedding, HostId, NodeId, Request, Residual, embedding};
use carina_time::Duration;

use crate::division::outer_links;
use crate::document::{Document, Link, ResolvedNode};
use crate::founders::founders;
use crate::host_part::{EndPart, NodePart, VnetId};
use crate::layout::Layout;
use crate::message::{PartEnd, PartLink, PartNode, PartRequest, Reason, ReasonCode};
use crate::names::{DocumentNames, insufficient};

use super::view::View;

/// Restrictions on which provider may get which node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// Pairs of a node and a provider that has refused it.
    pub(super) refusals: &'a BTreeSet<(String, String)>,
    /// The provider that each node has now, and keeps if possible.
    pub(super) at: &'a BTreeMap<String, String>,
}

/// The part for each provider.
pub(super) fn split(
    vnet: VnetId,
    document: &Document,
    layout: &Layout,
    view: &View,
    bounds: Bounds,
) -> Result<BTreeMap<String, PartRequest>, Unsplit> {
    let nodes = document.node.keys();
    let resolved = |name: &String| Some((name.clone(), document.resolved(name)?));
    let nodes: Vec<(String, ResolvedNode)> = nodes.filter_map(resolved).collect();
    let substrate = Arc::new(view.substrate.clone());
    let residual = Residual::new(substrate);
    let anywhere = BTreeMap::new();
    let mut last = None;
    // If no node has a provider yet, both tries would be the same.
    let tries = if bounds.at.is_empty() { 1 } else { 2 };
    for at in [bounds.at, &anywhere].into_iter().take(tries) {
        let request = request(document, &nodes, view, Bounds { at, ..bounds })?;
        match Joint::default().embed(&residual, &request) {
            Ok(embedding) => {
                let split = Split {
                    vnet,
                    document,
                    layout,
                    view,
                    nodes: &nodes,
                };
                return Ok(split.parts(&embedding));
            }
            Err(_) => last = Some(request),
        }
    }
    Err(Unsplit::NoRoom(Box::new(NoRoom {
        residual,
        request: last,
        nodes,
    })))
}

/// Why a network could not be split.
#[derive(Debug)]
pub(super) enum Unsplit {
    /// Resources do not suffice.
    NoRoom(Box<NoRoom>),
    /// The network could not be split for another reason.
    Because(Reason),
}

/// A network for which resources do not suffice, with all that [`Unsplit::reason`] needs.
#[derive(Debug)]
pub(super) struct NoRoom {
    residual: Residual,
    request: Option<Request>,
    nodes: Vec<(String, ResolvedNode)>,
}

impl From<Reason> for Unsplit {
    fn from(reason: Reason) -> Unsplit {
        Unsplit::Because(reason)
    }
}

impl Unsplit {
    /// The reason with its text. Finding the binding constraint takes some 10 to 100 times as long
    /// as detecting that the network does not fit.
    pub(super) fn reason(self) -> Reason {
        let shortage = match self {
            Unsplit::Because(reason) => return reason,
            Unsplit::NoRoom(shortage) => shortage,
        };
        let nodes = shortage.nodes.iter();
        let names = DocumentNames {
            nodes: nodes.clone().map(|(name, _)| name.clone()).collect(),
            places: nodes.map(|(_, node)| node.location.clone()).collect(),
        };
        match shortage.request {
            Some(request) => insufficient(&shortage.residual, &request, &names),
            None => Reason::new(ReasonCode::Insufficient, "it does not fit"),
        }
    }
}

fn request(
    document: &Document,
    nodes: &[(String, ResolvedNode)],
    view: &View,
    bounds: Bounds,
) -> Result<Request, Reason> {
    let names = nodes.iter().map(|(name, _)| name.as_str());
    let numbers: BTreeMap<&str, NodeId> = names.zip((0..).map(NodeId)).collect();
    let wanted = nodes.iter().map(|(name, node)| {
        let is_refused = |pip: &str| bounds.refusals.contains(&(name.clone(), pip.to_owned()));
        let stays = |pip: &str| bounds.at.get(name).is_none_or(|at| at == pip);
        let labels = node.labels.iter();
        let apart = document.node[name]
            .apart_from
            .iter()
            .filter(|_| view.is_exact);
        Node {
            cpu: u64::from(node.cpus),
            memory: node.memory,
            nics: u64::from(node.nics.count),
            locations: view.locations(&node.location, |pip| !is_refused(pip) && stays(pip)),
            labels: labels
                .map(|(key, value)| view.label(&format!("{key}={value}")))
                .collect(),
            apart_from: apart
                .filter_map(|name| numbers.get(name.as_str()).copied())
                .collect(),
            barred: Vec::new(),
        }
    });
    let links = document.link.iter().map(|link| VirtualLink {
        ends: [0, 1].map(|side| {
            numbers
                .get(&*link.ends[side].node)
                .copied()
                .unwrap_or_default()
        }),
        rate: link.rate.bps(),
        delay_max: link.delay_max.map(|delay_max| delay_max.duration()),
    });
    let request = Request::new(wanted.collect(), links.collect(), Sharing::UnlessApart);
    request.map_err(|error| Reason::new(ReasonCode::Impossible, error.to_string()))
}

struct Split<'a> {
    vnet: VnetId,
    document: &'a Document,
    layout: &'a Layout,
    view: &'a View,
    nodes: &'a [(String, ResolvedNode)],
}

impl Split<'_> {
    fn parts(&self, embedding: &Embedding) -> BTreeMap<String, PartRequest> {
        let mut parts: BTreeMap<String, PartRequest> = BTreeMap::new();
        let empty = || PartRequest {
            name: self.document.vnet.name.clone(),
            nodes: Vec::new(),
            links: Vec::new(),
            access: Vec::new(),
        };
        let named = self.nodes.iter().map(|(name, _)| name.as_str());
        let places: BTreeMap<&str, HostId> = named.zip(embedding.hosts.iter().copied()).collect();
        let (mut routes, mut routes6) = (self.layout.routes(), self.layout.routes6());
        let mut founders = founders(self.document, self.layout);
        for ((name, node), host) in self.nodes.iter().zip(&embedding.hosts) {
            let pip = self.view.pip(*host);
            let is_near = |other: &&String| {
                places
                    .get(other.as_str())
                    .is_some_and(|place| self.view.pip(*place) == pip)
            };
            let apart_from = self.document.node[name].apart_from.iter();
            let part = parts.entry(pip.to_owned()).or_insert_with(empty);
            part.nodes.push(PartNode {
                node: NodePart {
                    founder: founders.remove(name),
                    routes6: routes6.remove(name).unwrap_or_default(),
                    ..self.node_part(name, node, routes.remove(name).unwrap_or_default())
                },
                location: node.location.clone(),
                nics: node.nics.count,
                labels: node.labels.clone(),
                apart_from: apart_from.filter(is_near).cloned().collect(),
                host: self.view.number(*host),
            });
        }
        for (number, laid) in self.layout.links() {
            let link = &self.document.link[laid.place];
            let from = places[laid.ends[0].node.as_str()];
            let path = &embedding.paths[laid.place];
            for (pip, piece) in self.pieces((number, link), &laid.ends, from, path) {
                parts.entry(pip).or_insert_with(empty).links.push(piece);
            }
        }
        for point in outer_links(self.document, self.layout) {
            let host = places[point.near.node.as_str()];
            let part = parts.entry(self.view.pip(host).to_owned());
            part.or_insert_with(empty).access.push(point);
        }
        parts
    }

    fn node_part(
        &self,
        name: &str,
        node: &ResolvedNode,
        routes: Vec<crate::host_part::RoutePart>,
    ) -> NodePart {
        NodePart {
            name: name.to_owned(),
            kind: node.kind,
            image: node.image.clone(),
            cpus: node.cpus,
            memory_mib: node.memory,
            boot: node.boot,
            interfaces: self.layout.interfaces(self.vnet, name),
            routes,
            routes6: Vec::new(),
            founder: None,
            has_loop: self.layout.has_loop(name),
            start: node.start.clone(),
        }
    }

    /// The piece of a link within each provider along its path.
    fn pieces(
        &self,
        (number, link): (u32, &Link),
        ends: &[EndPart; 2],
        from: HostId,
        path: &[carina_embed::LinkId],
    ) -> Vec<(String, PartLink)> {
        let whole = embedding::delay(&self.view.substrate, path);
        let crossed = path.iter().filter(|hop| self.view.border(**hop).is_some());
        let count = crossed.count() as u64 + 1;
        let slack = link
            .delay_max
            .map(|delay_max| (delay_max.duration() - whole) / count);
        let piece = |ends: [PartEnd; 2], delay: Duration| PartLink {
            number,
            carrier: link.carrier,
            rate: link.rate,
            delay_max_us: slack.map(|slack| (delay + slack).as_micros()),
            ends,
            path: link.path,
            impairment: link.impairment(),
            timetable: link.timetable(),
        };
        let mut pieces = Vec::new();
        let mut at = from;
        let (mut begin, mut delay) = (PartEnd::Node(ends[0].clone()), Duration::ZERO);
        for hop in path {
            let next = self.view.substrate.other_end(*hop, at);
            let entry = &self.view.substrate.links()[hop.index()];
            match self.view.border(*hop) {
                None => delay += entry.delay,
                Some(border) => {
                    let side = usize::from(entry.ends[0] != at);
                    let border_end = PartEnd::Border(border.name.clone());
                    let halves = border.delays_us.map(Duration::from_micros);
                    let end = std::mem::replace(&mut begin, border_end.clone());
                    let done = piece([end, border_end], delay + halves[side]);
                    pieces.push((self.view.pip(at).to_owned(), done));
                    delay = halves[1 - side];
                }
            }
            at = next;
        }
        let last = piece([begin, PartEnd::Node(ends[1].clone())], delay);
        pieces.push((self.view.pip(at).to_owned(), last));
        pieces
    }
}
