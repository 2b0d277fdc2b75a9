//! Checks that everything in a network has answered before it is reported ready, and that a ready
//! network stays ready.

use std::collections::{BTreeMap, BTreeSet};

use carina_time::{Duration, Instant};
use carina_vnet::document::Document;
use carina_vnet::host_part::{LinkState, NodeState, VnetId};
use carina_vnet::message::{FromAgent, FromVnp, ReasonCode, ToVnp};

use super::Broken;

/// What has answered so far in each network, according to the reports of hosts, and what was
/// requested.
#[derive(Debug, Default)]
pub(super) struct Answered {
    nodes: BTreeMap<VnetId, BTreeSet<String>>,
    links: BTreeMap<VnetId, BTreeSet<u32>>,
    documents: BTreeMap<(VnetId, u64), Document>,
    /// Networks that were reported ready at any time.
    ever_ready: BTreeSet<VnetId>,
    /// Generations of networks that were reported ready since the faults ended, each with the time
    /// from which they must stay ready.
    ready: BTreeMap<(VnetId, u64), Instant>,
}

impl Answered {
    /// Records the report of a host.
    pub(super) fn note(&mut self, report: &FromAgent) {
        for part in &report.parts {
            let answers = part.nodes.iter();
            let answers =
                answers.filter(|(_, node)| node.state == NodeState::Up && node.is_console_ready);
            let nodes = self.nodes.entry(part.vnet).or_default();
            nodes.extend(answers.map(|(name, _)| name.clone()));
            let links = part.links.iter();
            let passed = links.filter(|(_, link)| link.state == LinkState::Up);
            let links = self.links.entry(part.vnet).or_default();
            links.extend(passed.map(|(number, _)| *number));
        }
    }

    /// Records a request of an operator.
    pub(super) fn asked(&mut self, message: &ToVnp) {
        if let ToVnp::Want {
            vnet,
            generation,
            document,
        } = message
        {
            let key = (*vnet, *generation);
            self.documents.insert(key, (**document).clone());
        }
    }

    /// Whether a network was ever reported ready.
    pub(super) fn was_ready(&self, vnet: VnetId) -> bool {
        self.ever_ready.contains(&vnet)
    }

    /// Checks a report about a network. If a part of the network has never answered, it must not be
    /// ready. If it was ready while `is_calm`, it must stay ready until it is removed; older
    /// reports may still arrive for a while.
    pub(super) fn check(
        &mut self,
        now: Instant,
        message: &FromVnp,
        is_calm: bool,
    ) -> Result<(), Broken> {
        let FromVnp::Standing {
            vnet,
            generation,
            standing,
        } = message
        else {
            return Ok(());
        };
        let key = (*vnet, *generation);
        if !standing.is_ready() {
            let code = standing.reason.as_ref().map(|reason| reason.code);
            let must_be_ready = self.ready.get(&key).is_some_and(|from| *from <= now);
            let is_lost = must_be_ready && code != Some(ReasonCode::Removing);
            return if is_lost {
                Err(Broken(format!(
                    "{vnet} was ready, and is no longer: {standing:?}"
                )))
            } else {
                Ok(())
            };
        }
        self.ever_ready.insert(*vnet);
        if is_calm {
            self.ready.entry(key).or_insert(now + REPORT_DELAY_MAX);
        }
        let Some(document) = self.documents.get(&key) else {
            return Err(Broken(format!("{vnet} is ready, and was not asked for")));
        };
        let answered = self.nodes.get(vnet);
        let is_silent = |node: &&String| answered.is_none_or(|all| !all.contains(*node));
        if let Some(node) = document.node.keys().find(is_silent) {
            let what = format!("{vnet} is ready, and its node {node} has never answered");
            return Err(Broken(what));
        }
        // An unchanged link keeps its number; a link with other ends gets a new one.
        let passed = self.links.get(vnet).map_or(0, BTreeSet::len);
        if passed < document.link.len() {
            let wanted = document.link.len();
            let what = format!("{vnet} is ready, and {passed} of its {wanted} links were probed");
            return Err(Broken(what));
        }
        Ok(())
    }
}

/// Longest time that reports of hosts and providers are on their way.
const REPORT_DELAY_MAX: Duration = Duration::from_secs(10);
