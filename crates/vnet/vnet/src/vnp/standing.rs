//! The state of a network for its operator, without names of hosts or providers.

use crate::host_part::VnetId;
use crate::message::{Condition, FromVnp, Obstacle, PartStatus, Reason, ReasonCode, Standing};
use crate::store::Store;

use super::record::{Record, Step};
use super::{Output, Progress, Vnp};

impl<S: Store> Vnp<S> {
    /// Sends the VNO the state of a network, if it has changed or if `always`.
    pub(super) fn tell_standing(&mut self, vnet: VnetId, always: bool) {
        let record = self.records.get(&vnet);
        let (Some(record), Some(progress)) = (record, self.progress.get_mut(&vnet)) else {
            return;
        };
        if self.unheard.contains(&vnet) {
            // The VNO still has the state from before this process began.
            if statuses(record, progress).any(|status| status.is_none()) {
                return;
            }
            self.unheard.remove(&vnet);
        }
        let standing = standing(record, progress);
        if always || progress.told.as_ref() != Some(&standing) {
            progress.told = Some(standing.clone());
            progress.looks = 0;
            let generation = record.generation;
            let message = FromVnp::Standing {
                vnet,
                generation,
                standing,
            };
            let vno = record.vno.clone();
            self.outputs.push_back(Output::ToVno { vno, message });
        }
    }

    /// Sends a VNO the state of a network for which the VNO has not asked for long. If the VNO has
    /// removed the network meanwhile, it answers with a removal.
    pub(super) fn tell_again(&mut self, vnet: VnetId) {
        if let Some(progress) = self.progress.get_mut(&vnet) {
            progress.looks += 1;
            let always = progress.looks > LOOKS_MAX;
            self.tell_standing(vnet, always);
        }
    }
}

/// Checks of a network until its VNO gets its state again unasked: with the default timing, two and
/// a half minutes. A VNO asks every minute.
const LOOKS_MAX: u32 = 30;

/// The last status of each provider of the live round; `None` for a provider that has not reported.
pub(super) fn statuses<'a>(
    record: &'a Record,
    progress: &'a Progress,
) -> impl Iterator<Item = Option<&'a PartStatus>> {
    let live = record.live.iter();
    live.flat_map(move |live| {
        live.pips.iter().map(move |pip| {
            let known = progress.statuses.get(pip);
            let current = known.filter(|(round, _)| *round == live.round);
            current.map(|(_, status)| status)
        })
    })
}

/// The most important obstacle of a network.
pub(super) fn obstacle<'a>(record: &'a Record, progress: &'a Progress) -> Option<&'a Obstacle> {
    let parts = statuses(record, progress).flatten();
    Obstacle::heaviest(parts.filter_map(|part| part.obstacle.as_ref()))
}

/// An obstacle as a reason for the operator.
pub(super) fn reason_of(obstacle: &Obstacle) -> Reason {
    let code = match obstacle {
        Obstacle::NodeFailed(..) | Obstacle::NodeRefused(..) => ReasonCode::Failed,
        _ => ReasonCode::Working,
    };
    Reason {
        code,
        message: obstacle.to_string(),
        node: obstacle.node().map(str::to_owned),
    }
}

pub(super) fn standing(record: &Record, progress: &Progress) -> Standing {
    let mut standing = Standing::default();
    let is_refused = record.refused == Some(record.generation);
    if !is_refused {
        standing.holds.insert(Condition::Admitted);
    }
    if record.live.is_some() {
        standing.holds.insert(Condition::Reserved);
        let parts: Vec<Option<&PartStatus>> = statuses(record, progress).collect();
        let all = |holds: fn(&PartStatus) -> bool| parts.iter().all(|part| part.is_some_and(holds));
        let conditions = [
            (
                Condition::Provisioned,
                all(|candidate| candidate.are_nodes_up),
            ),
            (Condition::LinksUp, all(|candidate| candidate.are_links_up)),
            (
                Condition::ConsoleReady,
                all(|candidate| candidate.are_consoles_ready),
            ),
        ];
        let holding = conditions.iter().filter(|(_, holds)| *holds);
        standing
            .holds
            .extend(holding.map(|(condition, _)| *condition));
        let is_current = matches!(record.step, Step::Settled) && !record.is_behind();
        if conditions.iter().all(|(_, holds)| *holds) && is_current && !is_refused {
            standing.holds.insert(Condition::Ready);
        }
        standing.reason = obstacle(record, progress).map(reason_of);
    }
    if is_refused {
        standing.is_refused = true;
        standing.reason = record.reason.clone();
    } else if !standing.is_ready() {
        let why = why(record, standing.reason.take());
        standing.reason = Some(why);
    } else {
        standing.reason = None;
    }
    standing
}

/// Why a network that was not refused is not ready.
fn why(record: &Record, obstacle: Option<Reason>) -> Reason {
    let working = |words: &str| Reason::new(ReasonCode::Working, words);
    if !record.is_wanted {
        return Reason::new(ReasonCode::Removing, "it is being removed");
    }
    match &record.step {
        Step::Planning => working("hosts and paths are being searched for its nodes and links"),
        Step::Waiting { .. } => match &record.reason {
            Some(reason) => Reason {
                code: ReasonCode::Queued,
                ..reason.clone()
            },
            None => Reason::new(ReasonCode::Queued, "it waits for resources"),
        },
        Step::Reserving(_) => working("its resources are being reserved"),
        Step::Committing { .. } => working("all its resources are reserved; it is being created"),
        Step::Releasing { .. } => working("another attempt is being prepared"),
        Step::Settled => obstacle.unwrap_or_else(|| working("it is being created")),
    }
}
