//! Probes links with an echo request over each, sent from inside a node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carina_vnet::document::{Carrier, Kind};
use carina_vnet::host_part::{Cause, Far, HostPart, LinkPart, LinkState};

use super::Vnet;
use crate::error::{Error, Result};
use crate::nics;
use crate::probe::{self, Asks, EchoRequest};
use crate::steps::Steps;
use crate::threads::each;

impl Vnet {
    /// Probes every link: an echo request passes in one direction, and its reply in the other.
    ///
    /// # Errors
    /// The first link over which no reply comes within `limit`.
    pub(crate) fn probe(&self, part: &HostPart, limit: Duration) -> Result<()> {
        let links: Vec<&LinkPart> = part.links.iter().collect();
        self.probe_links(part, &links, limit)
    }

    /// The links that no probe has passed.
    pub(crate) fn silent<'a>(&self, part: &'a HostPart) -> Vec<&'a LinkPart> {
        let status = self.progress.status();
        let is_up = |link: &LinkPart| {
            let known = status.links.get(&link.number);
            known.is_some_and(|known| known.state == LinkState::Up)
        };
        let off = self.switched_off();
        let is_silent = |link: &&LinkPart| !is_up(link) && off.reason(link).is_none();
        part.links.iter().filter(is_silent).collect()
    }

    /// The links that a change may have affected, and those that are not up. A change that has no
    /// steps is a request to check everything.
    pub(super) fn links_to_probe<'a>(
        &self,
        current: &HostPart,
        part: &'a HostPart,
        steps: &Steps,
    ) -> Vec<&'a LinkPart> {
        if *steps == Steps::default() {
            return part.links.iter().collect();
        }
        let before: BTreeMap<u32, &LinkPart> = current
            .links
            .iter()
            .map(|link| (link.number, link))
            .collect();
        // A namespace that stays keeps its interfaces; a machine may have been replaced.
        let nodes = part.nodes.iter();
        let changed =
            nodes.filter(|node| node.kind == Kind::Vm && steps.changed.contains(&node.name));
        let touched: BTreeSet<&str> = changed
            .map(|changed| changed.name.as_str())
            .chain(steps.made.iter().map(String::as_str))
            .collect();
        let status = self.progress.status();
        let is_untouched = |link: &LinkPart| {
            let state = status.links.get(&link.number).map(|link| &link.state);
            state == Some(&LinkState::Up)
                && before.get(&link.number) == Some(&link)
                && !steps.touches(link.number)
                && !link.ends().any(|end| touched.contains(end.node.as_str()))
        };
        let links = part.links.iter();
        links.filter(|link| !is_untouched(link)).collect()
    }

    pub(super) fn probe_links(
        &self,
        part: &HostPart,
        links: &[&LinkPart],
        limit: Duration,
    ) -> Result<()> {
        let off = self.switched_off();
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for link in links {
            if let Some(reason) = off.reason(link) {
                self.link_is_down(link, reason, Cause::Operator);
            } else if let Some(ask) = self.ask_of(part, link) {
                together.push((*link, ask));
            } else {
                alone.push(*link);
            }
        }
        let (links, asks): (Vec<&LinkPart>, Vec<EchoRequest>) = together.into_iter().unzip();
        let mut first = Ok(());
        let others = std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                each(&alone, |link| {
                    self.progress.check()?;
                    self.note_probe(link, self.probe_link(part, link, limit))
                })
            });
            let is_cancelled = || self.progress.check().is_err();
            probe::echo_all(&asks, limit, is_cancelled, |place, outcome| {
                let noted = self.note_probe(links[place], outcome);
                if first.is_ok() {
                    first = noted;
                }
            });
            others.join()
        });
        first.and(others.unwrap_or(Err(Error::Ended("the probes of links"))))
    }

    /// Records the outcome of a probe.
    fn note_probe(&self, link: &LinkPart, outcome: Result<Duration>) -> Result<()> {
        match &outcome {
            Err(Error::Cancelled) => {}
            Ok(round_trip) => self.link_is_up(link, *round_trip),
            Err(error) => self.link_is_down(link, error.to_string(), error.cause()),
        }
        outcome.map(drop)
    }

    /// What to ask over a link that is probed from a namespace by nothing but an echo request.
    /// `None` for other links.
    fn ask_of(&self, part: &HostPart, link: &LinkPart) -> Option<EchoRequest> {
        let is_plain = !matches!(link.far, Far::Nic(_)) && link.carrier != Carrier::Dif;
        let mut from = link.ends().filter(|_| is_plain);
        let from = from.find(|end| self.node(&end.node).is_ok_and(|node| !node.is_foreign()))?;
        let interface = part.interface(from)?;
        let node = self.node(&from.node).ok()?;
        Some(EchoRequest {
            namespace: node.namespace()?.to_owned(),
            own: interface.address.address(),
            peer: interface.peer,
            asks: Asks::Again,
        })
    }

    /// Round trip over a link, from its near end if a command can be executed there, else from its
    /// far end. Zero if no end on this host takes commands: such a link is up while its flow exists
    /// and its machines on this host run.
    fn probe_link(&self, part: &HostPart, link: &LinkPart, limit: Duration) -> Result<Duration> {
        if let Far::Nic(nic) = &link.far {
            // Nothing is known about the other end of a card's wire.
            return nics::probe(nic);
        }
        self.has_flow(link)?;
        let mut from = link.ends();
        let from = from.find(|end| self.node(&end.node).is_ok_and(|node| !node.is_foreign()));
        let Some(from) = from else {
            return self.foreign_ends_run(link).map(|()| Duration::ZERO);
        };
        let interface = part.interface(from);
        let interface = interface.expect("the part was checked: its links end at interfaces");
        let own = interface.address.address();
        let node = self.node(&from.node)?;
        let by_frames = node.echo(own, interface.peer, limit, Asks::Again)?;
        match link.carrier {
            Carrier::Dif => self.probe_flow(part, link, limit),
            _ => Ok(by_frames),
        }
    }

    /// Checks that the machines at a link's ends on this host run.
    fn foreign_ends_run(&self, link: &LinkPart) -> Result<()> {
        for end in link.ends() {
            let node = self.node(&end.node)?;
            if !node.is_alive() {
                let what = format!("the machine of node {} has ended", node.name());
                return Err(Error::NotReady(what));
            }
        }
        Ok(())
    }
}
