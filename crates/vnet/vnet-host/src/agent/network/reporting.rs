//! Reports about a network.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_frame_engine::counter_file;
use carina_frame_engine::{LinkCounts, LinkName};
use carina_vnet::host_part::{HostPart, HostStatus};

use super::{Network, Outcome};
use crate::directory::Requester;
use crate::impairment::{Drops, of_link};
use crate::names::{impair_app, link_of_app, rate_app};
use crate::port_selection::is_port_app;
use crate::vnet::Vnet;
use carina_vnet::impairment::{Impairments, LinkImpairment};
use carina_vnet::report::{InterfaceReport, LinkReport, NodeReport, Passed, VnetReport, VnetState};

impl Network {
    /// The report of the network.
    pub(crate) fn report(&self) -> VnetReport {
        let (record, vnet, outcome, ready_after) = {
            let state = self.shared.lock();
            let vnet = state.vnet.clone();
            (
                Arc::clone(&state.record),
                vnet,
                state.outcome.clone(),
                state.ready_after,
            )
        };
        let status = self.shared.progress.status();
        let counts = vnet.as_ref().and_then(|vnet| vnet.counts().ok());
        let counts = by_link(counts.unwrap_or_default());
        // Without a counter file nothing was dropped yet.
        let counters = counter_file::read(&self.dir.counters()).unwrap_or_default();
        let counters = Drops::of(&counters);
        let passed = |link: u32, side: usize| {
            let rate = rate_app(link, side);
            // The difference between frames into and out of the shaper would not do: a link behind
            // the shaper that was just made counts from zero.
            let mut passed = Passed {
                dropped: counters.of_app(&rate),
                ..Passed::default()
            };
            let mut from_afar = None;
            for (name, count) in counts.get(&link).into_iter().flatten() {
                if is_port_app(&name.from.app, (link, side)) {
                    (passed.frames, passed.bytes) = (count.packets, count.bytes);
                    passed.dropped += count.drops;
                }
                if name.from.app == rate {
                    passed.dropped += count.drops;
                } else if side == 1 && is_first_from_afar(link, &rate, name) {
                    passed.dropped += count.drops;
                    from_afar = Some((count.packets, count.bytes));
                }
            }
            // Frames of the other direction pass the shaper on the other host.
            if let Some(frames_and_bytes) = from_afar {
                (passed.frames, passed.bytes) = frames_and_bytes;
            }
            passed
        };
        let (state, obstacles) = match outcome {
            Outcome::Changing => (VnetState::Changing, status.obstacles()),
            Outcome::Failed(failed) => (VnetState::Failed, vec![failed.reason]),
            Outcome::Done if status.is_ready() => (VnetState::Ready, Vec::new()),
            Outcome::Done => (VnetState::Degraded, status.obstacles()),
        };
        let mut links = links_of(&record.part, &status, passed);
        if let Some(vnet) = vnet {
            note_paths(&mut links, &record.part, &vnet);
            note_impairments(&mut links, &record.part, &vnet.impairments(), &counters);
        }
        VnetReport {
            name: self.dir.name(),
            vnet: record.vnet,
            generation: record.part.generation,
            state,
            obstacles,
            nodes: placed(nodes_of(&record.part, &status), &record.wanted),
            links,
            phases: self.shared.progress.phases(),
            ready_after_ms: ready_after.map(|time| time.as_secs_f64() * 1000.0),
        }
    }
}

/// The counters of the graph's links, by the number of the network's link that they are part of.
fn by_link(counts: Vec<(LinkName, LinkCounts)>) -> BTreeMap<u32, Vec<(LinkName, LinkCounts)>> {
    let mut all: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (name, count) in counts {
        let number = link_of_app(&name.from.app).or_else(|| link_of_app(&name.to.app));
        if let Some(number) = number {
            all.entry(number).or_default().push((name, count));
        }
    }
    all
}

/// Whether a link of the graph is the first behind the tunnel, flow or card that brings the frames
/// of a network's link to its port on this host. `rate` is the app that limits their rate, if they
/// are impaired by a rate.
fn is_first_from_afar(link: u32, rate: &str, name: &LinkName) -> bool {
    let impair = impair_app(link, 1);
    let is_inside = |app: &str| app == rate || app == impair;
    let leads_in = is_inside(&name.to.app) || is_port_app(&name.to.app, (link, 0));
    let comes_from_here = is_inside(&name.from.app) || is_port_app(&name.from.app, (link, 1));
    leads_in && !comes_from_here
}

/// The report of a part of which nothing was made.
pub(crate) fn report_of_absent(name: &str, part: &HostPart, status: HostStatus) -> VnetReport {
    VnetReport {
        name: name.to_owned(),
        vnet: part.vnet,
        generation: part.generation,
        state: VnetState::Failed,
        obstacles: status.obstacles(),
        nodes: nodes_of(part, &status),
        links: links_of(part, &status, |_, _| Passed::default()),
        phases: Vec::new(),
        ready_after_ms: None,
    }
}

fn nodes_of(part: &HostPart, status: &HostStatus) -> Vec<NodeReport> {
    let node = |node: &carina_vnet::host_part::NodePart| {
        let now = status.nodes.get(&node.name).cloned().unwrap_or_default();
        let interfaces = node.interfaces.iter().map(InterfaceReport::from);
        NodeReport {
            name: node.name.clone(),
            kind: node.kind,
            state: now.state,
            is_console_ready: now.is_console_ready,
            interfaces: interfaces.collect(),
            position: None,
        }
    };
    part.nodes.iter().map(node).collect()
}

/// Gives nodes the positions of their document. This host has none of a provider's network.
fn placed(mut nodes: Vec<NodeReport>, wanted: &Requester) -> Vec<NodeReport> {
    if let Requester::Here { document, .. } = wanted {
        for node in &mut nodes {
            let known = document.node.get(&node.name);
            node.position = known.and_then(|known| known.position);
        }
    }
    nodes
}

fn links_of(
    part: &HostPart,
    status: &HostStatus,
    passed: impl Fn(u32, usize) -> Passed,
) -> Vec<LinkReport> {
    let mut links = Vec::new();
    for link in &part.links {
        let now = status.links.get(&link.number).cloned().unwrap_or_default();
        links.push(LinkReport {
            number: link.number,
            ends: [link.near.to_string(), link.far.to_string()],
            carrier: link.carrier,
            rate: link.rate,
            path: None,
            state: now.state,
            rtt_ns: now.rtt_ns,
            passed: [0, 1].map(|side| passed(link.number, side)),
            impairment: LinkImpairment::default(),
        });
    }
    links
}

/// Adds to each link how its frames travel on this host, and the counters of frames that do not
/// pass the engine.
fn note_paths(links: &mut [LinkReport], part: &HostPart, vnet: &Vnet) {
    let outside = vnet.sent_outside_engine(part);
    for link in links {
        link.path = Some(vnet.path_of(link.number));
        for (side, passed) in link.passed.iter_mut().enumerate() {
            let more = outside.get(&(link.number, side));
            let more = more.copied().unwrap_or_default();
            passed.frames += more.frames;
            passed.bytes += more.bytes;
            passed.dropped += more.dropped;
        }
    }
}

/// Adds to each link its impairments and the frames that they have dropped.
fn note_impairments(
    links: &mut [LinkReport],
    part: &HostPart,
    all: &Impairments,
    counters: &Drops,
) {
    // The reports of links are in the order of the part.
    for (link, made) in links.iter_mut().zip(&part.links) {
        link.impairment = of_link(made, all);
        if !link.impairment.is_none() {
            for (side, passed) in link.passed.iter_mut().enumerate() {
                passed.lost = counters.of_app(&impair_app(link.number, side));
            }
        }
    }
}
