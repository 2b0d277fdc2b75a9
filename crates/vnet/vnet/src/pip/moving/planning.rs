//! Plans moves: checks whether a node can move to a host, and computes the new placement.

use carina_embed::Residual;
use carina_time::{Duration, Instant};

use super::{Moving, round_of};
use crate::host_part::VnetId;
use crate::message::{PartNode, Reason, ReasonCode};
use crate::pip::Pip;
use crate::pip::books::Made;
use crate::pip::inventory::Host;
use crate::pip::placing::{self, Laid, Taken};
use crate::pip::repointing::outer_ends;
use crate::store::Store;

/// The resources that are free for a network, and the tags and addresses in use.
#[derive(Debug)]
pub(in crate::pip) struct Room {
    free: Residual,
    taken: Taken,
}

impl<S: Store> Pip<S> {
    /// The network and its part with this move begun, or the reason why the node cannot move.
    pub(in crate::pip) fn planned(
        &self,
        now: Instant,
        names: [&str; 3],
        number: u64,
        limit: Duration,
    ) -> Result<(VnetId, Made), Reason> {
        self.planned_in(now, names, number, limit, &mut None)
    }

    /// Like [`Pip::planned`], for callers that try several hosts for one node: the first call fills
    /// `room`, later ones reuse it.
    pub(in crate::pip) fn planned_in(
        &self,
        now: Instant,
        [vnet, node, to]: [&str; 3],
        number: u64,
        limit: Duration,
        room: &mut Option<Room>,
    ) -> Result<(VnetId, Made), Reason> {
        let conflict = |words: &str| Err(Reason::new(ReasonCode::Conflict, words));
        let (vnet, made) = self.made_named(vnet)?;
        let laid = &made.laid;
        if made.is_leaving {
            return conflict("the network is being removed");
        }
        if self.books.held(vnet).is_some() || !made.previous.is_empty() {
            return conflict("the network is being changed; try again");
        }
        if let Some(moving) = &made.moving {
            return conflict(&format!(
                "node {} of the network is moving; try again",
                moving.node
            ));
        }
        if made.untold.is_some() {
            return conflict(
                "another provider has not been notified yet that a node at the end of its links \
                 moved; try again",
            );
        }
        let mut nodes = laid.part.nodes.iter();
        let Some(wanted) = nodes.find(|candidate| candidate.node.name == node) else {
            let known = laid.part.nodes.iter().map(|node| node.node.name.as_str());
            let known: Vec<&str> = known.collect();
            let words = format!(
                "the network has no node {node} at this provider; it has: {}",
                known.join(", ")
            );
            return Err(Reason::new(ReasonCode::Impossible, words));
        };
        let from = laid.placement.hosts.get(node).cloned().unwrap_or_default();
        if let Some(why) = why_it_stays(laid, wanted) {
            let words = format!("node {node} cannot move to another host: {why}");
            return Err(Reason::new(ReasonCode::Impossible, words));
        }
        self.check_destination(now, (laid, wanted), &from, to)?;
        let mut hosts = laid.placement.hosts.clone();
        hosts.insert(node.to_owned(), to.to_owned());
        let room = room.get_or_insert_with(|| Room {
            free: self.free(now, Some(vnet)),
            taken: self.books.taken(vnet),
        });
        let taken = room.taken.clone();
        let placed = placing::place_at(&self.ground, &room.free, laid, &hosts, taken)?;
        let lacks = || {
            let words =
                format!("host {to} has no room for node {node}, or no links with its rates");
            Reason::new(ReasonCode::Insufficient, words)
        };
        let moving = Moving {
            number,
            node: node.to_owned(),
            from,
            to: to.to_owned(),
            placement: placed.ok_or_else(lacks)?,
            until_ms: (now + limit).as_millis(),
            is_decided: false,
            awaits: outer_ends(&laid.part, node),
        };
        let then = Made {
            moves: made.moves + 1,
            moving: Some(moving),
            ..made.clone()
        };
        if round_of(then.generation() + 1) == then.round {
            Ok((vnet, then))
        } else {
            conflict("nodes of the network have moved too often; change the network first")
        }
    }

    pub(super) fn made_named(&self, name: &str) -> Result<(VnetId, &Made), Reason> {
        let impossible = |words: String| Reason::new(ReasonCode::Impossible, words);
        if let Some(found) = name
            .parse()
            .ok()
            .and_then(|vnet| Some((vnet, self.books.made(vnet)?)))
        {
            return Ok(found);
        }
        let mut named = self.books.all_made();
        let mut named = named
            .by_ref()
            .filter(|(_, place)| place.laid.part.name == name);
        match (named.next(), named.next()) {
            (Some(found), None) => Ok(found),
            (Some((one, _)), Some((other, _))) => Err(impossible(format!(
                "several networks have the name {name}, {one} and {other} among them; give the uid"
            ))),
            (None, _) => {
                let name: String = name.chars().take(64).collect();
                let all = self.books.all_made();
                let known: Vec<String> = all
                    .map(|(vnet, made)| format!("{} ({vnet})", made.laid.part.name))
                    .collect();
                let words = format!(
                    "there is no network {name}; there are: {}",
                    known.join(", ")
                );
                Err(impossible(words))
            }
        }
    }

    fn check_destination(
        &self,
        now: Instant,
        (laid, wanted): (&Laid, &PartNode),
        from: &str,
        to: &str,
    ) -> Result<(), Reason> {
        let refusal = |code: ReasonCode, words: String| Err(Reason::new(code, words));
        let node = &wanted.node.name;
        let host = self.ground.host(to);
        let Some(host) = host.and_then(|host| self.ground.host_entry(host)) else {
            let words = format!("the inventory has no host {to}");
            return refusal(ReasonCode::Impossible, words);
        };
        if self.books.is_drained(to) {
            let words = format!("host {to} is drained");
            return refusal(ReasonCode::Impossible, words);
        }
        if from == to {
            let words = format!("node {node} is already on host {to}");
            return refusal(ReasonCode::Impossible, words);
        }
        let hosts = laid.hosts().into_iter();
        let mut hosts = hosts.chain([to]);
        if let Some(silent) = hosts.find(|host| !self.is_present_by_name(now, host)) {
            return match self
                .ground
                .host(silent)
                .filter(|host| self.is_unheard(now, *host))
            {
                Some(_) => {
                    let words = format!("host {silent} has not reported yet; try again");
                    refusal(ReasonCode::Conflict, words)
                }
                None => {
                    let words = format!("host {silent} does not answer");
                    refusal(ReasonCode::Unreachable, words)
                }
            };
        }
        let limits = self.ground.host(to).and_then(|to| self.limits.get(&to));
        if let Some(error) = limits.and_then(|limit| limit.check_node(&wanted.node).err()) {
            let words = format!("host {to}: {error}");
            return refusal(ReasonCode::Impossible, words);
        }
        check_placement(laid, wanted, to, host)?;
        let report = self.report_of(to).map(|(_, report)| report);
        if report.is_none_or(|report| report.moves_at.is_none()) {
            let words = format!(
                "the agent of host {to} accepts no moving nodes; start it with --moves ADDRESS:PORT"
            );
            return refusal(ReasonCode::Impossible, words);
        }
        Ok(())
    }
}

/// Checks host `to` against the location, the labels and the separations that the document wants
/// for the node.
fn check_placement(laid: &Laid, wanted: &PartNode, to: &str, host: &Host) -> Result<(), Reason> {
    let refused = |words: String| Err(Reason::new(ReasonCode::Impossible, words));
    let node = &wanted.node.name;
    if !wanted.location.is_empty() && !wanted.location.contains(&host.location) {
        let words = format!(
            "node {node} must not be in location {}, where host {to} is",
            host.location
        );
        return refused(words);
    }
    let mut labels = wanted.labels.iter();
    if let Some((key, value)) = labels.find(|(key, value)| host.labels.get(*key) != Some(value)) {
        let words = format!("node {node} needs a host with {key}={value}, which host {to} lacks");
        return refused(words);
    }
    let is_at_destination = |name: &String| {
        laid.placement
            .hosts
            .get(name)
            .is_some_and(|host| host == to)
    };
    let mut all = laid.part.nodes.iter();
    let apart = all.find(|candidate| {
        let name = &candidate.node.name;
        let is_apart = wanted.apart_from.contains(name) || candidate.apart_from.contains(node);
        is_apart && is_at_destination(name)
    });
    if let Some(other) = apart {
        let words = format!(
            "node {node} must not be on the same host as {}",
            other.node.name
        );
        return refused(words);
    }
    Ok(())
}

/// Why a node can never move from its host; `None` if it can.
fn why_it_stays(laid: &Laid, wanted: &PartNode) -> Option<&'static str> {
    let node = &wanted.node;
    if node.kind.has_namespace() {
        return Some("it is a namespace of its host; only virtual machines can move");
    }
    let mut access = laid.part.access.iter();
    if wanted.nics > 0 || access.any(|link| link.near.node == node.name) {
        return Some("it uses a network card of its host, or has users who join there");
    }
    None
}
