//! The end of making a network: it is ready, some node of it can never be made, or its queueing
//! time has ended.

use carina_time::Instant;

use crate::document::OnInsufficient;
use crate::host_part::VnetId;
use crate::message::{Obstacle, Reason, ReasonCode};
use crate::store::Store;

use super::record::{Record, Step, Then};
use super::standing::{obstacle, reason_of, standing, statuses};
use super::steps::LONG;
use super::{Progress, Vnp};

impl Record {
    /// When the network's queueing time ends, ms since 1970; `None` if the document has none.
    pub(super) fn queue_end_ms(&self, now: Instant) -> Option<u64> {
        match self.document.vnet.on_insufficient {
            OnInsufficient::Queue(time) => {
                let end = (now + time.duration()).as_millis();
                Some(self.queued_until_ms.unwrap_or(end))
            }
            OnInsufficient::Reject => None,
        }
    }
}

impl<S: Store> Vnp<S> {
    /// Processes a network after a provider has reported the state of its part.
    pub(super) fn follow_status(&mut self, now: Instant, vnet: VnetId) {
        let record = self.records.get(&vnet);
        if record
            .is_some_and(|record| record.is_running() && record.ready != Some(record.generation))
        {
            self.advance(now, vnet);
        }
    }

    /// The record of a network whose making has just ended, by success or failure. `None` while the
    /// making continues, or if it had already ended.
    pub(super) fn conclude(
        &mut self,
        now: Instant,
        vnet: VnetId,
        record: &Record,
    ) -> Option<Record> {
        let is_over = [record.ready, record.refused].contains(&Some(record.generation));
        if is_over || record.live.is_none() {
            return None;
        }
        let making = self.timing.making;
        let progress = self.progress_of(now, vnet);
        if standing(record, progress).is_ready() {
            return Some(Record {
                ready: Some(record.generation),
                queued_until_ms: None,
                ..record.clone()
            });
        }
        let since = progress.since;
        let obstacle = obstacle(record, progress).cloned();
        let failed = obstacle
            .as_ref()
            .filter(|obstacle| has_failed(obstacle, record, progress));
        if let Some(refused @ Obstacle::NodeRefused(..)) = &obstacle {
            let reason = Reason {
                code: ReasonCode::Impossible,
                ..reason_of(refused)
            };
            return Some(end(record, reason));
        }
        let queue_ends = Instant::from_millis(record.queued_until_ms?);
        let at = queue_ends.max(since + making);
        if now < at {
            self.set_due(vnet, at.min(now + LONG));
            return None;
        }
        let failed = failed?;
        let reason = Reason {
            code: ReasonCode::Insufficient,
            message: format!("its time in the queue has expired, and {failed}"),
            node: failed.node().map(str::to_owned),
        };
        Some(end(record, reason))
    }

    /// Reports the states of networks whose providers have been silent since this process began,
    /// once they had time enough to report.
    pub(super) fn end_waiting(&mut self, now: Instant) {
        if self.is_young(now) {
            return;
        }
        for vnet in std::mem::take(&mut self.unheard) {
            self.tell_standing(vnet, false);
        }
    }

    /// Whether this process began so recently that providers may not have connected yet.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        let began = self.began.unwrap_or(now);
        now.since(began) < self.timing.silence_max
    }
}

/// Whether an obstacle counts as a failure when the queueing time ends. Silent links and consoles
/// count only if all nodes run, because a node that starts explains them.
fn has_failed(obstacle: &Obstacle, record: &Record, progress: &Progress) -> bool {
    match obstacle {
        Obstacle::NodeFailed(..) | Obstacle::NodeRefused(..) => true,
        Obstacle::NodeAbsent(_) | Obstacle::NodeStarts(_) => false,
        Obstacle::ConsoleSilent(_) | Obstacle::LinkDown(..) => statuses(record, progress)
            .all(|status| status.is_some_and(|candidate| candidate.are_nodes_up)),
    }
}

/// The record of a network that cannot be made as requested. If it was never ready, it is released.
/// If it was, its running parts stay, and its operator decides.
fn end(record: &Record, reason: Reason) -> Record {
    let ended = Record {
        reason: Some(reason),
        ..record.clone()
    };
    match record.ready {
        None => Record {
            step: Step::Releasing {
                all: true,
                then: Then::Judge,
            },
            ..ended
        },
        Some(_) => Record {
            refused: Some(record.generation),
            queued_until_ms: None,
            ..ended
        },
    }
}
