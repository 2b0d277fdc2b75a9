//! The store's record of a network at its VNP.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::host_part::{EndPart, VnetId};
use crate::layout::Layout;
use crate::message::{PartKey, PartRequest, Reason, TunnelEnd};

/// The record of a network at its VNP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Name of the VNO that requests the network.
    pub(super) vno: String,
    /// The requested generation and its document.
    pub(super) generation: u64,
    pub(super) document: Document,
    /// Whether the VNO still wants the network.
    pub(super) is_wanted: bool,
    /// Numbers, interfaces and addresses of the links; they stay the same as long as the network
    /// exists.
    pub(super) layout: Layout,
    /// Number of the last attempt.
    pub(super) round: u64,
    /// Number of attempts since the request last changed.
    pub(super) tries: u32,
    /// When the queueing time ends and the network is refused unless it is ready, ms since 1970.
    pub(super) queued_until_ms: Option<u64>,
    /// Pairs of a node and a provider that has refused it.
    pub(super) refusals: BTreeSet<(String, String)>,
    /// Providers that may have something of the network other than its `live` round.
    pub(super) may_hold: BTreeSet<String>,
    /// The round that the providers make or have made; `None` if they have nothing to make.
    pub(super) live: Option<Live>,
    /// The provider of each node of `live`.
    pub(super) at: BTreeMap<String, String>,
    pub(super) step: Step,
    /// Why the last attempt failed; `None` if none has failed.
    pub(super) reason: Option<Reason>,
    /// The generation that was refused.
    pub(super) refused: Option<u64>,
    /// The last generation that was ready.
    #[serde(default)]
    pub(super) ready: Option<u64>,
}

/// The round of a network that its providers make or have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Live {
    pub(super) round: u64,
    pub(super) generation: u64,
    pub(super) pips: BTreeSet<String>,
}

/// An attempt to reserve and commit a network; written before the first message is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Intent {
    /// The generation that the attempt makes.
    pub(super) generation: u64,
    /// The part that each provider is asked for.
    pub(super) parts: BTreeMap<String, PartRequest>,
    /// Time at which the VNP releases the reservation, in ms since 1970.
    pub(super) until_ms: u64,
}

/// The current step of a VNP for a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// Split the network among providers.
    Planning,
    /// Wait before planning again; nothing is reserved meanwhile.
    Waiting {
        /// Time at which the VNP plans again, in ms since 1970.
        until_ms: u64,
    },
    /// Wait until all providers have reserved the parts that this intent gives them.
    Reserving(Intent),
    /// All parts are reserved: wait until all providers make them. A network in this step cannot
    /// return to planning; the VNP can only release everything.
    Committing {
        intent: Intent,
        /// For each provider, the far tunnel end of each link that leaves it.
        far: BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
    },
    /// Nothing to do until something changes.
    Settled,
    /// Wait until providers have released their parts.
    Releasing {
        /// Whether to release parts that providers have made already, in addition to parts that are
        /// only reserved.
        all: bool,
        then: Then,
    },
}

/// The step after providers have released their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Then {
    /// Plan another attempt without waiting.
    Plan,
    /// Plan another attempt later, or refuse the network, depending on the recorded reason.
    Judge,
    /// Delete the network's record from the store.
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

    /// The network and its last round, as messages name them.
    pub(super) fn key(&self, vnet: VnetId) -> PartKey {
        let round = self.round;
        PartKey { vnet, round }
    }

    /// Whether the requested generation is neither made nor refused.
    pub(super) fn is_behind(&self) -> bool {
        let live = self.live.as_ref().map(|live| live.generation);
        live != Some(self.generation) && self.refused != Some(self.generation)
    }

    /// Whether all of the network is at its providers and no step is in progress.
    pub(super) fn is_running(&self) -> bool {
        self.live.is_some() && matches!(self.step, Step::Settled)
    }

    /// The providers that must release something, and whether they release the whole part or only
    /// reservations.
    pub(super) fn to_release(&self, all: bool) -> BTreeMap<&str, bool> {
        let live = self.live.iter().flat_map(|live| &live.pips);
        let is_live = |pip: &str| live.clone().any(|candidate| candidate == pip);
        let held = self.may_hold.iter();
        let held = held.map(|pip| (pip.as_str(), all || !is_live(pip)));
        let made = live.clone().filter(|_| all);
        held.chain(made.map(|pip| (pip.as_str(), true))).collect()
    }
}
