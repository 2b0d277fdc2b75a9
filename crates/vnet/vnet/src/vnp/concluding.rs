//! How the making of a network comes to its end: it is ready; or a node of it can never be made; or
//! the time of its queue has ended.

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
    /// When the time of its queue ends, if it has any, ms since 1970.
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
    /// Looks at a network of which a provider has said how far it is.
    pub(super) fn follow_status(&mut self, now: Instant, vnet: VnetId) {
        let record = self.records.get(&vnet);
        if record
            .is_some_and(|record| record.is_running() && record.ready != Some(record.generation))
        {
            self.advance(now, vnet);
        }
    }

    /// The record of a network that is with its providers when its making has come to an end; none
    /// while it goes on, or if it had ended before.
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
            .filter(|it| has_failed(it, record, progress));
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
            message: format!("the time of its queue has ended, and {failed}"),
            node: failed.node().map(str::to_owned),
        };
        Some(end(record, reason))
    }

    /// Of networks whose providers have not said anything for long, operators hear that.
    pub(super) fn end_waiting(&mut self, now: Instant) {
        if self.is_young(now) {
            return;
        }
        for vnet in std::mem::take(&mut self.unheard) {
            self.tell_standing(vnet, false);
        }
    }

    /// Whether this process has begun so lately that others may not have found it yet.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        let began = self.began.unwrap_or(now);
        now.since(began) < self.timing.silence
    }
}

/// Whether an obstacle is one that does not go by itself. What keeps links and consoles from
/// answering shows only when all nodes run.
fn has_failed(obstacle: &Obstacle, record: &Record, progress: &Progress) -> bool {
    match obstacle {
        Obstacle::NodeFailed(..) | Obstacle::NodeRefused(..) => true,
        Obstacle::NodeAbsent(_) | Obstacle::NodeStarts(_) => false,
        Obstacle::ConsoleSilent(_) | Obstacle::LinkDown(..) => {
            statuses(record, progress).all(|it| it.is_some_and(|it| it.are_nodes_up))
        }
    }
}

/// The record of a network that cannot be made as it is wanted. One that was never ready goes; of
/// one that was, what runs goes on, and its operator decides.
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
