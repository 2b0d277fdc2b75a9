//! Whether all of a network has answered before it is called ready, and whether it remains so.

use std::collections::{BTreeMap, BTreeSet};

use carina_time::{Duration, Instant};
use carina_vnet::document::Document;
use carina_vnet::host_part::{LinkState, NodeState, VnetId};
use carina_vnet::message::{FromAgent, FromVnp, ReasonCode, ToVnp};

use super::Broken;

/// What has answered of each network so far, as hosts have said, and what was asked for.
#[derive(Debug, Default)]
pub(super) struct Answered {
    nodes: BTreeMap<VnetId, BTreeSet<String>>,
    links: BTreeMap<VnetId, BTreeSet<u32>>,
    documents: BTreeMap<(VnetId, u64), Document>,
    /// Networks that were called ready at any time.
    ever_ready: BTreeSet<VnetId>,
    /// Networks that have been ready since all was calm, and from when on they remain so.
    ready: BTreeMap<(VnetId, u64), Instant>,
}

impl Answered {
    /// Notes what a host says.
    pub(super) fn note(&mut self, said: &FromAgent) {
        for part in &said.parts {
            let answers = part.nodes.iter();
            let answers =
                answers.filter(|(_, it)| it.state == NodeState::Up && it.is_console_ready);
            let nodes = self.nodes.entry(part.vnet).or_default();
            nodes.extend(answers.map(|(name, _)| name.clone()));
            let links = part.links.iter();
            let passed = links.filter(|(_, it)| it.state == LinkState::Up);
            let links = self.links.entry(part.vnet).or_default();
            links.extend(passed.map(|(number, _)| *number));
        }
    }

    /// Notes what an operator asks for.
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

    /// Whether a network was ever called ready.
    pub(super) fn was_ready(&self, vnet: VnetId) -> bool {
        self.ever_ready.contains(&vnet)
    }

    /// A network of which something has never answered is not ready; one that is ready while all
    /// `is_calm` remains so until it is removed, but for what was said before and is heard now.
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
            let remains = self.ready.get(&key).is_some_and(|from| *from <= now);
            let is_lost = remains && code != Some(ReasonCode::Removing);
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
            self.ready.entry(key).or_insert(now + ON_ITS_WAY);
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
        // A link that stays keeps its number; one that changes ends does not.
        let passed = self.links.get(vnet).map_or(0, BTreeSet::len);
        if passed < document.link.len() {
            let wanted = document.link.len();
            let what = format!("{vnet} is ready, and {passed} of its {wanted} links were probed");
            return Err(Broken(what));
        }
        Ok(())
    }
}

/// How long what hosts and providers have said may be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(10);
