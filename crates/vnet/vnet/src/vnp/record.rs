//! What a VNP knows of a network, as the store has it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::host_part::{EndPart, VnetId};
use crate::layout::Layout;
use crate::message::{PartKey, PartRequest, Reason, TunnelEnd};

/// What a VNP knows of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Who wants it.
    pub(super) vno: String,
    /// What is wanted.
    pub(super) generation: u64,
    pub(super) document: Document,
    /// Whether it is wanted still.
    pub(super) is_wanted: bool,
    /// Numbers and interfaces of its links, which stay while it lives.
    pub(super) layout: Layout,
    /// The last attempt.
    pub(super) round: u64,
    /// Attempts since something was new.
    pub(super) tries: u32,
    /// When it is refused if it is not ready, ms since 1970.
    pub(super) queued_until_ms: Option<u64>,
    /// Nodes and the providers that have refused them.
    pub(super) refusals: BTreeSet<(String, String)>,
    /// Providers that may have something that does not belong to `live`.
    pub(super) may_hold: BTreeSet<String>,
    /// What is made.
    pub(super) live: Option<Live>,
    /// The provider of each node of it.
    pub(super) at: BTreeMap<String, String>,
    pub(super) step: Step,
    /// Why the last attempt was none.
    pub(super) reason: Option<Reason>,
    /// The generation that was refused.
    pub(super) refused: Option<u64>,
    /// The last generation that was ready.
    #[serde(default)]
    pub(super) ready: Option<u64>,
}

/// A network that its providers make or have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Live {
    pub(super) round: u64,
    pub(super) generation: u64,
    pub(super) pips: BTreeSet<String>,
}

/// A network that is being reserved or committed: written before the first message goes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Intent {
    /// The generation that is meant.
    pub(super) generation: u64,
    /// What each provider is asked for.
    pub(super) parts: BTreeMap<String, PartRequest>,
    /// When it is given up, ms since 1970.
    pub(super) until_ms: u64,
}

/// How far a VNP is with a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// It is to be split among providers.
    Planning,
    /// It is to be planned again later; nothing is held meanwhile.
    Waiting {
        /// When, ms since 1970.
        until_ms: u64,
    },
    /// Providers are asked to hold their parts.
    Reserving(Intent),
    /// All hold; they are to make them now. There is no way back but to release all.
    Committing {
        intent: Intent,
        /// For each provider, where links lead that leave it.
        far: BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
    },
    /// There is nothing to do, unless something changes.
    Settled,
    /// Providers let go.
    Releasing {
        /// Whether also of what is made.
        all: bool,
        then: Then,
    },
}

/// What comes after providers have let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Then {
    /// Another attempt, now.
    Plan,
    /// Another attempt later, or none, by the reason that was noted.
    Judge,
    /// The record goes.
    Forget,
}

impl Record {
    pub(super) fn new(vno: &str, generation: u64, document: Document) -> Record {
        Record {
            vno: vno.to_owned(),
            generation,
            document,
            is_wanted: true,
            layout: Layout::default(),
            round: 0,
            tries: 0,
            queued_until_ms: None,
            refusals: BTreeSet::new(),
            may_hold: BTreeSet::new(),
            live: None,
            at: BTreeMap::new(),
            step: Step::Planning,
            reason: None,
            refused: None,
            ready: None,
        }
    }

    /// The key of the last attempt.
    pub(super) fn key(&self, vnet: VnetId) -> PartKey {
        let round = self.round;
        PartKey { vnet, round }
    }

    /// Whether the generation that is wanted is neither made nor refused.
    pub(super) fn is_behind(&self) -> bool {
        let live = self.live.as_ref().map(|live| live.generation);
        live != Some(self.generation) && self.refused != Some(self.generation)
    }

    /// Whether all of it is with its providers, and nothing is to be changed.
    pub(super) fn is_running(&self) -> bool {
        self.live.is_some() && matches!(self.step, Step::Settled)
    }

    /// The providers that have to let go, and whether of all that they have.
    pub(super) fn to_release(&self, all: bool) -> BTreeMap<&str, bool> {
        let live = self.live.iter().flat_map(|live| &live.pips);
        let is_live = |pip: &str| live.clone().any(|it| it == pip);
        let held = self.may_hold.iter();
        let held = held.map(|pip| (pip.as_str(), all || !is_live(pip)));
        let made = live.clone().filter(|_| all);
        held.chain(made.map(|pip| (pip.as_str(), true))).collect()
    }
}
