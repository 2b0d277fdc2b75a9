//! The steps of a network at its VNP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carina_time::{Duration, Instant};

use crate::document::OnInsufficient;
use crate::host_part::{EndPart, VnetId};
use crate::layout::Layout;
use crate::message::{PartKey, PartRequest, Reason, ReasonCode, ToPip, TunnelEnd};
use crate::store::Store;

use super::Vnp;
use super::far_ends::far;
use super::record::{Intent, Live, Record, Step, Then};
use super::splitting::{Bounds, split};
use super::view::View;

impl<S: Store> Vnp<S> {
    /// Executes the steps of a network until one has to wait.
    pub(super) fn advance(&mut self, now: Instant, vnet: VnetId) {
        for _ in 0..STEPS_MAX {
            let Some(record) = self.records.get(&vnet).cloned() else {
                return;
            };
            let Some(then) = self.next(now, vnet, &record) else {
                return;
            };
            self.write(now, vnet, &then);
            let is_written = |now: &Arc<Record>| **now == then;
            if !self.records.get(&vnet).is_some_and(is_written) {
                return; // Another process wrote, or the record is deleted.
            }
        }
    }

    /// The record after the next step; `None` if the step has to wait.
    fn next(&mut self, now: Instant, vnet: VnetId, record: &Record) -> Option<Record> {
        match &record.step {
            Step::Planning | Step::Waiting { .. } if !record.is_wanted => {
                Some(release(record, true, Then::Forget))
            }
            Step::Planning => self.plan(now, vnet, record),
            Step::Waiting { until_ms } if now.as_millis() >= *until_ms => Some(Record {
                step: Step::Planning,
                refusals: BTreeSet::new(),
                ..record.clone()
            }),
            Step::Waiting { until_ms } => {
                self.set_due(vnet, Instant::from_millis(*until_ms));
                None
            }
            Step::Reserving(intent) => self.reserve(now, vnet, record, intent),
            Step::Committing { intent, far } => self.commit(now, vnet, record, intent, far),
            Step::Settled => self.after_settling(now, vnet, record),
            Step::Releasing { all, then } => self.release(now, vnet, record, *all, *then),
        }
    }

    /// Plans an attempt: splits the network, once the providers' advertisements are fresh or the
    /// time to wait for them has passed.
    fn plan(&mut self, now: Instant, vnet: VnetId, record: &Record) -> Option<Record> {
        let since = self.progress_of(now, vnet).since;
        let oldest = now - self.timing.advertisement;
        let is_fresh = |pip: &&String| self.seen.get(*pip).is_some_and(|(at, _)| *at >= oldest);
        let fresh: BTreeSet<String> = self.pips.iter().filter(is_fresh).cloned().collect();
        let waits = self.timing.repeat * 2;
        if fresh.len() < self.pips.len() && now < since + waits {
            self.ask(now, &fresh);
            self.set_due(vnet, now + self.timing.repeat);
            return None;
        }
        if fresh.is_empty() {
            return Some(self.after_failure(now, record, Record::unreachable()));
        }
        let live = record.live.as_ref();
        let roomy = live.map_or_else(BTreeSet::new, |live| live.pips.clone());
        let seen = self.seen.iter().filter(|(pip, _)| fresh.contains(*pip));
        let seen = seen.map(|(pip, (_, seen))| (pip.as_str(), seen)).collect();
        let view = View::new(&seen, &roomy);
        let layout = Layout::of(&record.document, &record.layout);
        let bounds = Bounds {
            refusals: &record.refusals,
            at: &record.at,
        };
        match split(vnet, &record.document, &layout, &view, bounds) {
            Ok(parts) => Some(self.intend(now, record, layout, parts)),
            // The silent providers may have what the others lack.
            Err(_) if fresh.len() < self.pips.len() && record.tries + 1 < PASSING_MAX => {
                Some(self.after_failure(now, record, Record::unreachable()))
            }
            Err(unsplit) => {
                let asked = (record.generation, record.refusals.clone());
                let mut reason = self
                    .reason_cache
                    .reason(now, vnet, &asked)
                    .unwrap_or_else(|| {
                        let reason = unsplit.reason();
                        self.reason_cache.keep(now, vnet, asked, reason.clone());
                        reason
                    });
                if fresh.len() < self.pips.len() {
                    reason.message.push_str("; a provider has not answered");
                }
                Some(self.after_failure(now, record, self.better(record, reason)))
            }
        }
    }

    /// The reason of a provider's refusal, if there was one: it says more than that no other
    /// provider has room.
    fn better(&self, record: &Record, reason: Reason) -> Reason {
        let known = record.reason.clone();
        known
            .filter(|_| !record.refusals.is_empty())
            .unwrap_or(reason)
    }

    fn intend(
        &self,
        now: Instant,
        record: &Record,
        layout: Layout,
        parts: BTreeMap<String, PartRequest>,
    ) -> Record {
        let mut may_hold = record.may_hold.clone();
        may_hold.extend(parts.keys().cloned());
        Record {
            layout,
            round: record.round + 1,
            may_hold,
            step: Step::Reserving(Intent {
                generation: record.generation,
                parts,
                until_ms: (now + self.timing.attempt).as_millis(),
            }),
            ..record.clone()
        }
    }

    /// Asks the providers without a fresh advertisement for one, unless they were asked a moment
    /// ago.
    fn ask(&mut self, now: Instant, fresh: &BTreeSet<String>) {
        let repeat = self.timing.repeat;
        let asked = &self.asked;
        let is_due = |pip: &&String| asked.get(*pip).is_none_or(|at| *at + repeat <= now);
        let pips = self.pips.difference(fresh).filter(is_due);
        let pips: Vec<String> = pips.cloned().collect();
        for pip in pips {
            self.send(&pip, ToPip::Advertise);
            self.asked.insert(pip, now);
        }
    }

    /// The record after an attempt that failed and holds no reservations any more: another attempt
    /// later, or a refusal.
    fn after_failure(&mut self, now: Instant, record: &Record, reason: Reason) -> Record {
        let tries = record.tries + 1;
        let back_off = self.timing.back_off(tries, &mut self.random);
        let later = Step::Waiting {
            until_ms: (now + back_off).as_millis(),
        };
        let then = Record {
            tries,
            reason: Some(reason.clone()),
            refusals: BTreeSet::new(),
            ..record.clone()
        };
        let is_passing = matches!(reason.code, ReasonCode::Conflict | ReasonCode::Unreachable);
        if is_passing && tries < PASSING_MAX {
            return Record {
                step: later,
                ..then
            };
        }
        if let OnInsufficient::Queue(time) = record.document.vnet.on_insufficient
            && reason.code != ReasonCode::Impossible
        {
            let until_ms = record.queued_until_ms;
            let until_ms = until_ms.unwrap_or((now + time.duration()).as_millis());
            if now.as_millis() < until_ms {
                let queued_until_ms = Some(until_ms);
                return Record {
                    step: later,
                    queued_until_ms,
                    ..then
                };
            }
        }
        Record {
            step: Step::Settled,
            refused: Some(record.generation),
            queued_until_ms: None,
            tries: 0,
            ..then
        }
    }

    fn reserve(
        &mut self,
        now: Instant,
        vnet: VnetId,
        record: &Record,
        intent: &Intent,
    ) -> Option<Record> {
        if !record.is_wanted || intent.generation != record.generation {
            return Some(release(record, false, Then::Plan));
        }
        let progress = self.progress_of(now, vnet);
        if intent
            .parts
            .keys()
            .all(|pip| progress.offers.contains_key(pip))
        {
            let far = far(&record.layout, &progress.offers);
            let intent = intent.clone();
            return Some(Record {
                step: Step::Committing { intent, far },
                ..record.clone()
            });
        }
        if now.as_millis() >= intent.until_ms {
            let reason = Some(Record::unreachable());
            let record = Record {
                reason,
                ..record.clone()
            };
            return Some(release(&record, false, Then::Judge));
        }
        let key = record.key(vnet);
        self.repeat(now, vnet, |progress| {
            let left = intent.parts.iter();
            let left = left.filter(|(pip, _)| !progress.offers.contains_key(*pip));
            let message = |part: &PartRequest| ToPip::Reserve {
                key,
                part: Box::new(part.clone()),
            };
            left.map(|(pip, part)| (pip.clone(), message(part)))
                .collect()
        });
        None
    }

    /// Processes a provider's refusal: the other providers release their parts, and another split
    /// is tried if that can help.
    pub(super) fn take_refusal(&mut self, now: Instant, pip: &str, key: PartKey, reason: Reason) {
        self.seen.remove(pip);
        let record = self
            .records
            .get(&key.vnet)
            .filter(|record| record.round == key.round);
        let (record, intent) = match record.map(|record| (record, &record.step)) {
            Some((record, Step::Reserving(intent))) => (record, intent),
            Some((record, Step::Committing { intent, .. })) if intent.parts.contains_key(pip) => {
                // The provider cannot make what it has reserved. Others may already have made their
                // parts, so that all is released.
                let then = Record {
                    reason: Some(reason),
                    ..Record::clone(record)
                };
                let then = release(&then, true, Then::Judge);
                self.write(now, key.vnet, &then);
                return self.advance(now, key.vnet);
            }
            _ => return self.count("refusal that is late"),
        };
        let nodes = intent.parts.get(pip).map_or(&[][..], |part| &part.nodes);
        let largest = nodes
            .iter()
            .max_by_key(|node| (node.node.cpus, node.node.memory_mib));
        let named = reason
            .node
            .clone()
            .filter(|node| nodes.iter().any(|candidate| candidate.node.name == *node));
        let node = named.or(largest.map(|largest| largest.node.name.clone()));
        let is_worth = self.pips.len() > 1 && record.refusals.len() < SPLITS_MAX;
        // What one provider can never make, another one may be able to.
        let may_fit_elsewhere = match reason.code {
            ReasonCode::Insufficient => true,
            ReasonCode::Impossible => reason.node.is_some() && node == reason.node,
            _ => false,
        };
        // Of several refusals, one for lack of resources is reported rather than one that is final.
        let passing = record.reason.clone().filter(|known| {
            let is_passing = known.code == ReasonCode::Insufficient;
            !record.refusals.is_empty() && is_passing && reason.code == ReasonCode::Impossible
        });
        let mut then = Record {
            reason: Some(passing.unwrap_or(reason)),
            ..Record::clone(record)
        };
        let next = match node {
            Some(node) if may_fit_elsewhere && is_worth => {
                then.refusals.insert((node, pip.to_owned()));
                Then::Plan
            }
            _ => Then::Judge,
        };
        let then = release(&then, false, next);
        self.write(now, key.vnet, &then);
        self.advance(now, key.vnet);
    }

    fn commit(
        &mut self,
        now: Instant,
        vnet: VnetId,
        record: &Record,
        intent: &Intent,
        far: &BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
    ) -> Option<Record> {
        let progress = self.progress_of(now, vnet);
        if intent.parts.keys().all(|pip| progress.done.contains(pip)) {
            let mut may_hold = record.may_hold.clone();
            may_hold.extend(record.live.iter().flat_map(|live| live.pips.clone()));
            may_hold.retain(|pip| !intent.parts.contains_key(pip));
            let at = intent.parts.iter().flat_map(|(pip, part)| {
                let names = part.nodes.iter().map(|node| node.node.name.clone());
                names.map(|name| (name, pip.clone()))
            });
            return Some(Record {
                step: Step::Settled,
                live: Some(Live {
                    round: record.round,
                    generation: intent.generation,
                    pips: intent.parts.keys().cloned().collect(),
                }),
                at: at.collect(),
                may_hold,
                tries: 0,
                reason: None,
                queued_until_ms: record.queue_end_ms(now),
                refusals: BTreeSet::new(),
                ..record.clone()
            });
        }
        let key = record.key(vnet);
        self.repeat(now, vnet, |progress| {
            let left = intent
                .parts
                .keys()
                .filter(|pip| !progress.done.contains(*pip));
            let message = |pip: &String| ToPip::Commit {
                key,
                far: far.get(pip).cloned().unwrap_or_default(),
            };
            left.map(|pip| (pip.clone(), message(pip))).collect()
        });
        None
    }

    /// Processes a provider's message that it has no such part: if it should have it, the whole
    /// network is released and made again.
    pub(super) fn take_loss(&mut self, now: Instant, pip: &str, key: PartKey) {
        let Some(record) = self.records.get(&key.vnet) else {
            return self.count("answer that is late");
        };
        let is_lost = match &record.step {
            Step::Committing { intent, .. } => {
                record.round == key.round && intent.parts.contains_key(pip)
            }
            Step::Settled => record
                .live
                .as_ref()
                .is_some_and(|live| live.round == key.round && live.pips.contains(pip)),
            _ => false,
        };
        if !is_lost {
            return self.count("answer that is late");
        }
        let then = release(record, true, Then::Plan);
        self.write(now, key.vnet, &then);
        self.advance(now, key.vnet);
    }

    fn after_settling(&mut self, now: Instant, vnet: VnetId, record: &Record) -> Option<Record> {
        if !record.is_wanted {
            return Some(release(record, true, Then::Forget));
        }
        if !record.may_hold.is_empty() {
            // Providers of the previous round that have no part in this one must release theirs.
            return Some(release(record, false, Then::Plan));
        }
        if record.is_behind() {
            return Some(Record {
                step: Step::Planning,
                refused: None,
                ..record.clone()
            });
        }
        self.set_due(vnet, now + LONG);
        self.tell_standing(vnet, false);
        self.conclude(now, vnet, record)
    }

    fn release(
        &mut self,
        now: Instant,
        vnet: VnetId,
        record: &Record,
        all: bool,
        then: Then,
    ) -> Option<Record> {
        let targets = record.to_release(all);
        let progress = self.progress_of(now, vnet);
        if targets.keys().all(|pip| progress.done.contains(*pip)) {
            let left = Record {
                may_hold: BTreeSet::new(),
                live: record.live.clone().filter(|_| !all),
                at: if all {
                    BTreeMap::new()
                } else {
                    record.at.clone()
                },
                ..record.clone()
            };
            return Some(match then {
                Then::Forget => left,
                Then::Judge if record.is_wanted => {
                    let reason = left.reason.clone().unwrap_or_else(Record::unreachable);
                    self.after_failure(now, &left, reason)
                }
                Then::Judge | Then::Plan => Record {
                    step: if left.is_behind() || !left.is_wanted {
                        Step::Planning
                    } else {
                        Step::Settled
                    },
                    ..left
                },
            });
        }
        let key = record.key(vnet);
        let targets: BTreeMap<String, bool> = targets
            .into_iter()
            .map(|(pip, all)| (pip.to_owned(), all))
            .collect();
        self.repeat(now, vnet, |progress| {
            let left = targets
                .iter()
                .filter(|(pip, _)| !progress.done.contains(*pip));
            let message = |all: &bool| {
                if *all {
                    ToPip::Release { key }
                } else {
                    ToPip::Cancel { key }
                }
            };
            left.map(|(pip, all)| (pip.clone(), message(all))).collect()
        });
        None
    }

    /// Sends messages if they are due, and schedules the next repetition.
    fn repeat(
        &mut self,
        now: Instant,
        vnet: VnetId,
        messages: impl Fn(&super::Progress) -> Vec<(String, ToPip)>,
    ) {
        let progress = self.progress_of(now, vnet);
        if now < progress.send_at {
            let at = progress.send_at;
            return self.set_due(vnet, at);
        }
        let messages = messages(progress);
        let tries = progress.tries;
        let wait = self.timing.back_off(tries, &mut self.random);
        let progress = self.progress_of(now, vnet);
        progress.tries += 1;
        progress.send_at = now + wait;
        for (pip, message) in messages {
            self.send(&pip, message);
        }
        self.set_due(vnet, now + wait);
    }
}

/// The record with the step that makes providers release their parts.
fn release(record: &Record, all: bool, then: Then) -> Record {
    Record {
        step: Step::Releasing { all, then },
        ..record.clone()
    }
}

/// Steps executed in one call at most.
const STEPS_MAX: u32 = 8;

/// Attempts that may fail for a silent provider or a conflict before the network is refused.
const PASSING_MAX: u32 = 8;

/// Other splits that are tried after providers have refused.
const SPLITS_MAX: usize = 6;

/// Time between two checks of a network without problems.
pub(super) const LONG: Duration = Duration::from_secs(60);
