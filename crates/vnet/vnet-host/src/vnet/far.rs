//! Follows the state of links between changes, mainly of links to other hosts.

use std::time::Duration;

use carina_vnet::host_part::{Cause, Far, HostPart, LinkPart, LinkState, NodeState};

use super::{FAR_PROBE, Vnet, lock};
use crate::error::{Error, Result};
use crate::node::away;
use crate::switched_off::BY_TIMETABLE;

impl Vnet {
    /// Makes the engine use new flows. Does nothing while the part is being changed, or while links
    /// lead to where a node will be after its move.
    pub(crate) fn use_new_flows(&self) {
        let Ok(current) = self.part.try_lock() else {
            return;
        };
        let is_here = |(node, _): &(String, u64)| current.node(node).is_some();
        let is_leaving = away(&self.dir).map_or(true, |sent| sent.iter().any(is_here));
        if is_leaving || !lock(&self.arrivals).is_empty() || !self.flows.have_changed(&current) {
            return;
        }
        if let Err(error) = self.run_links(&current) {
            self.progress
                .tell(format!("a flow cannot be accepted: {error}"));
        }
    }

    /// Makes the engine use new flows, reports links that have no flow, and probes links that no
    /// probe has passed yet.
    pub(crate) fn probe_silent(&self, part: &HostPart) {
        self.use_new_flows();
        for link in &part.links {
            if let Some(reason) = self.flows.missing(link) {
                self.link_is_down(link, no_flow(link, &reason).to_string(), Cause::Carrier);
            }
        }
        self.found_again(part);
        // Links that do not answer are reported in the status.
        let _ = self.probe_links(part, &self.silent(part), FAR_PROBE);
        let status = self.progress.status();
        for link in &part.links {
            let is_up = |node: &str| {
                let known = status.nodes.get(node);
                known.is_some_and(|known| known.state == NodeState::Up)
            };
            let state = status.links.get(&link.number).map(|link| &link.state);
            // A probe from a node that is not up says nothing about the flow.
            if is_up(&link.near.node) {
                let has_passed = state == Some(&LinkState::Up);
                self.flows.note_probe(link, has_passed);
            }
        }
    }

    /// Probes the links to other hosts, whose failure this host does not notice otherwise.
    pub(crate) fn probe_far(&self, part: &HostPart) {
        let links = part.links.iter();
        let far: Vec<&LinkPart> = links
            .filter(|link| matches!(link.far, Far::Host(_)))
            .collect();
        let _ = self.probe_links(part, &far, FAR_PROBE * 2);
    }

    /// Checks that a link to another host has its flow, if it needs one.
    ///
    /// # Errors
    /// Why the link has no flow.
    pub(crate) fn has_flow(&self, link: &LinkPart) -> Result<()> {
        match self.flows.missing(link) {
            Some(reason) => Err(no_flow(link, &reason)),
            None => Ok(()),
        }
    }

    pub(super) fn link_is_up(&self, link: &LinkPart, round_trip: Duration) {
        let mut was_down = false;
        self.progress.link(link.number, |report| {
            was_down = matches!(report.state, LinkState::Down { .. });
            report.state = LinkState::Up;
            // A card has no round trip.
            let ns = u64::try_from(round_trip.as_nanos()).ok();
            report.rtt_ns = ns.filter(|ns| *ns > 0);
        });
        if was_down {
            self.progress.tell(format!("link {} is up", link.number));
        }
    }

    pub(super) fn link_is_down(&self, link: &LinkPart, reason: String, cause: Cause) {
        let before = self.progress.status_of_link(link.number);
        let before = before.map(|before| before.state);
        let was_up = before == Some(LinkState::Up);
        let words = format!("link {} is down: {reason}", link.number);
        let is_frequent = reason == BY_TIMETABLE;
        let now = LinkState::Down { reason, cause };
        if before.as_ref() == Some(&now) {
            return;
        }
        self.progress.link(link.number, |report| report.state = now);
        if was_up && is_frequent {
            self.progress.tell_frequent(words);
        } else if was_up {
            self.progress.tell(words);
        }
    }

    /// Reports links as down whose nodes have ended.
    pub(super) fn links_are_down(&self, links: &[LinkPart], nodes: &[String]) {
        for link in links {
            if let Some(end) = link.ends().find(|end| nodes.contains(&end.node)) {
                let reason = format!("node {} has ended", end.node);
                self.link_is_down(link, reason, Cause::Ended);
            }
        }
    }
}

fn no_flow(link: &LinkPart, reason: &str) -> Error {
    Error::NoFlow {
        link: link.number,
        node: link.near.node.clone(),
        reason: format!("between the hosts: {reason}"),
    }
}
