//! Messages that a VNP receives from its PIPs.

use std::sync::Arc;

use carina_time::Instant;

use crate::host_part::{EndPart, VnetId};
use crate::message::{Advertisement, FromPip, Obstacle, PartKey, TunnelEnd};
use crate::store::Store;

use super::record::{Record, Step};
use super::{Vnp, view};

impl<S: Store> Vnp<S> {
    /// Processes a message of a PIP.
    pub fn handle_pip(&mut self, now: Instant, pip: &str, message: FromPip) {
        if !self.pips.contains(pip) {
            return self.count("message of a provider that is not configured");
        }
        if let Err(error) = self.refresh(now) {
            return self.discard(&error);
        }
        match message {
            FromPip::Advertisement(seen) => self.take_advertisement(now, pip, seen),
            FromPip::Offered { key, ends } => self.take_offer(now, pip, key, ends),
            FromPip::Refused { key, reason } => {
                self.take_refusal(now, pip, key, reason.in_short());
            }
            FromPip::Committed { key } => {
                self.take(now, pip, key, |step| {
                    matches!(step, Step::Committing { .. })
                });
            }
            FromPip::Released { key } => {
                self.take(now, pip, key, |step| matches!(step, Step::Releasing { .. }));
            }
            // `Cancelled` does not answer a `Release`, which may have been lost.
            FromPip::Cancelled { key } => {
                let is_over = |step: &Step| matches!(step, Step::Releasing { all: false, .. });
                self.take(now, pip, key, is_over);
            }
            FromPip::Lapsed { key } => self.take_loss(now, pip, key),
            FromPip::Status { key, .. } if !self.records.contains_key(&key.vnet) => {
                self.count("answer that is late");
            }
            FromPip::Status { key, mut status } => {
                let record = &self.records[&key.vnet];
                let nodes = &record.document.node;
                let is_known = |obstacle: &Obstacle| {
                    obstacle.node().is_none_or(|node| nodes.contains_key(node))
                };
                // The operator sees the obstacle: a name that is not in the document might be one
                // of the substrate.
                if status
                    .obstacle
                    .take_if(|obstacle| !is_known(obstacle))
                    .is_some()
                {
                    self.count("obstacle that is no node of the network");
                }
                let progress = self.progress_of(now, key.vnet);
                let known = progress.statuses.get(pip);
                if known.is_none_or(|(round, _)| *round <= key.round) {
                    let status = (key.round, status);
                    progress.statuses.insert(pip.to_owned(), status);
                    self.tell_standing(key.vnet, false);
                    self.follow_status(now, key.vnet);
                }
            }
            FromPip::Held { key } => self.judge_held(now, pip, key),
            FromPip::Repoint(wanted) => self.pass_repoint(pip, wanted),
            FromPip::RepointAnswer(answer) => self.pass_repoint_answer(pip, answer),
        }
    }

    fn take_advertisement(&mut self, now: Instant, pip: &str, seen: Advertisement) {
        if !view::is_sound(&seen) {
            return self.count("advertisement that contradicts itself");
        }
        self.asked.remove(pip);
        self.seen.insert(pip.to_owned(), (now, seen));
        let is_planned = |record: &&Arc<Record>| matches!(record.step, Step::Planning);
        let plans = self.records.iter().filter(|(_, record)| is_planned(record));
        let plans: Vec<VnetId> = plans.map(|(vnet, _)| *vnet).collect();
        for vnet in plans {
            self.advance(now, vnet);
        }
    }

    fn take_offer(
        &mut self,
        now: Instant,
        pip: &str,
        key: PartKey,
        ends: Vec<(EndPart, TunnelEnd)>,
    ) {
        self.seen.remove(pip);
        let record = self.records.get(&key.vnet);
        let part = record.filter(|record| record.round == key.round);
        let part = part.and_then(|record| match &record.step {
            Step::Reserving(intent) => intent.parts.get(pip),
            _ => None,
        });
        let Some(part) = part else {
            return self.count("offer that is late");
        };
        // A tunnel end for another provider's link end would redirect that provider's link.
        if !ends.iter().all(|(near, _)| part.border_of(near).is_some()) {
            return self.count("offer for ends of others");
        }
        let progress = self.progress_of(now, key.vnet);
        progress.offers.insert(pip.to_owned(), ends);
        self.advance(now, key.vnet);
    }

    /// Records that a provider has done what the current step asks for.
    fn take(&mut self, now: Instant, pip: &str, key: PartKey, is_right: impl Fn(&Step) -> bool) {
        let record = self.records.get(&key.vnet);
        if !record.is_some_and(|record| record.round == key.round && is_right(&record.step)) {
            return self.count("answer that is late");
        }
        self.progress_of(now, key.vnet).done.insert(pip.to_owned());
        self.advance(now, key.vnet);
    }
}
