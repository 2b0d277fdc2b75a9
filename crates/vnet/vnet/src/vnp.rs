//! A virtual network provider (VNP): makes one network of parts that several providers lease to it.
//!
//! The state machine does no I/O; everything that must survive the process is in the store. For
//! each network it reads the current step and does what comes next, so that it may end at any point
//! and continue after a restart.
//!
//! ```text
//!                 no: Waiting (queue) or refused
//!                   ^
//! Want --> Planning +-> Reserving --all hold--> Committing --all made--> Settled
//!             ^             | one refuses,          | one has lost         | it changes,
//!             |             | or time is over       v its part             v or goes
//!             +-------------+--<-- Releasing <------+-------------------<--+
//! ```
//!
//! - The record of what each provider is asked for is written before the first message is sent.
//! - All providers are asked at the same time. If one refuses, all release their parts before the
//!   next attempt: a VNP never waits while it has reservations, so that two VNPs never wait for
//!   each other.
//! - Each attempt has a number, the round, by which late messages are recognized.
//! - The VNP repeatedly names to each provider the parts that it wants, and providers report the
//!   parts that were not named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use carina_random::Random;
use carina_time::Instant;

use crate::document::Document;
use crate::host_part::{EndPart, VnetId};
use crate::message::{
    Advertisement, FromVnp, PartStatus, Reason, ReasonCode, Standing, ToPip, ToVnp, TunnelEnd,
};
use crate::reason_cache::ReasonCache;
use crate::store::{Outcome, Store, StoreError, Transaction};
use crate::store_copy::{StoreCopy, from_value, to_value};
use crate::timing::Timing;

use self::record::{Record, Step, Then};

mod concluding;
mod far_ends;
mod hearing;
mod inside;
mod keeping;
mod record;
mod repointing;
mod splitting;
mod standing;
mod steps;
mod view;

/// The state machine of a VNP. `S` is its store.
#[derive(Debug)]
pub struct Vnp<S> {
    prefix: String,
    pips: BTreeSet<String>,
    store: S,
    timing: Timing,
    networks_per_vno: usize,
    random: Random,
    copy: StoreCopy,
    records: BTreeMap<VnetId, Arc<Record>>,
    progress: BTreeMap<VnetId, Progress>,
    /// For each network, the time at which the VNP processes it next.
    due: BTreeSet<(Instant, VnetId)>,
    /// The last advertisement of each provider, and when it came.
    seen: BTreeMap<String, (Instant, Advertisement)>,
    /// Providers that were asked for an advertisement and have not answered, and when they were
    /// asked.
    asked: BTreeMap<String, Instant>,
    /// Cached reasons why networks could not be split, for a generation and its set of refusals.
    reason_cache: ReasonCache<(u64, BTreeSet<(String, String)>)>,
    next_check: Instant,
    /// When this process got its first message or timer; `None` before.
    began: Option<Instant>,
    /// Networks whose providers have not all reported since this process began.
    unheard: BTreeSet<VnetId>,
    outputs: VecDeque<Output>,
    discarded: BTreeMap<&'static str, u64>,
}

/// A message that the state machine wants to be sent, with its receiver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A message to a PIP.
    ToPip {
        /// Name of the PIP.
        pip: String,
        /// The message to send to the PIP.
        message: ToPip,
    },
    /// A message to a VNO.
    ToVno {
        /// Name of the VNO.
        vno: String,
        /// The message to send to the VNO.
        message: FromVnp,
    },
}

/// The volatile state of a network. All fields but `statuses` and `told` belong to one step of one
/// round, and are reset when any process of the VNP writes another step.
#[derive(Clone, Debug)]
struct Progress {
    /// When the step began.
    since: Instant,
    due: Instant,
    /// When the step's messages are sent again.
    send_at: Instant,
    /// How often the step's messages were sent.
    tries: u32,
    offers: BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
    done: BTreeSet<String>,
    /// For each PIP, by name: the last status that the PIP has reported of its part. The number is
    /// the round (attempt to make the network) that reserved this part.
    statuses: BTreeMap<String, (u64, PartStatus)>,
    told: Option<Standing>,
    /// How often this process has checked the network since it last sent a message about it to the
    /// VNO.
    looks: u32,
}

impl<S: Store> Vnp<S> {
    /// A VNP `name` that leases from the providers `pips` and keeps its state in `store`.
    pub fn new(
        name: &str,
        pips: impl IntoIterator<Item = String>,
        store: S,
        timing: Timing,
        random: Random,
    ) -> Vnp<S> {
        let prefix = format!("vnp/{name}/vnet/");
        Vnp {
            copy: StoreCopy::new(&prefix),
            prefix,
            pips: pips.into_iter().collect(),
            store,
            timing,
            networks_per_vno: NETWORKS_PER_VNO,
            random,
            records: BTreeMap::new(),
            progress: BTreeMap::new(),
            due: BTreeSet::new(),
            seen: BTreeMap::new(),
            asked: BTreeMap::new(),
            reason_cache: ReasonCache::new(),
            next_check: Instant::ZERO,
            began: None,
            unheard: BTreeSet::new(),
            outputs: VecDeque::new(),
            discarded: BTreeMap::new(),
        }
    }

    /// Sets how many networks each VNO may have at the same time, including those that wait or are
    /// being removed (default: [`NETWORKS_PER_VNO`]).
    #[must_use]
    pub fn with_networks_per_vno(mut self, networks: usize) -> Vnp<S> {
        self.networks_per_vno = networks;
        self
    }

    /// Processes a message of a VNO.
    pub fn handle_vno(&mut self, now: Instant, vno: &str, message: ToVnp) {
        if let Err(error) = self.refresh(now) {
            return self.discard(&error);
        }
        let vnet = match &message {
            ToVnp::Want { vnet, .. } | ToVnp::Remove { vnet } => *vnet,
        };
        let known = self.records.get(&vnet);
        if known.is_some_and(|record| record.vno != vno) {
            return self.count("request about another's network");
        }
        match message {
            ToVnp::Want {
                generation,
                document,
                ..
            } => self.want(now, (vnet, vno), generation, *document),
            ToVnp::Remove { .. } => self.remove(now, vnet, vno),
        }
    }

    fn want(
        &mut self,
        now: Instant,
        (vnet, vno): (VnetId, &str),
        generation: u64,
        document: Document,
    ) {
        if let Err(error) = document.check() {
            self.count("document that is wrong");
            let reason = Reason::new(ReasonCode::Impossible, error.to_string());
            return self.refuse_at_once(vno, vnet, generation, reason);
        }
        let document = document.extended();
        match self.records.get(&vnet) {
            None if !self.has_share(vno) => {
                self.count("network beyond the VNO's share");
                let words = format!(
                    "you have {} networks at this provider, the limit for one operator; remove \
                     one of them first",
                    self.networks_per_vno
                );
                let reason = Reason::new(ReasonCode::Insufficient, words);
                return self.refuse_at_once(vno, vnet, generation, reason);
            }
            None => {
                let record = Record::new(vno, generation, document);
                self.write(now, vnet, &record);
            }
            Some(known) if known.generation < generation && known.is_wanted => {
                let changed = Record {
                    generation,
                    document,
                    tries: 0,
                    queued_until_ms: None,
                    refusals: BTreeSet::new(),
                    ..Record::clone(known)
                };
                self.write(now, vnet, &changed);
            }
            Some(_) => self.tell_standing(vnet, true),
        }
        self.advance(now, vnet);
    }

    /// Whether a VNO may have another network.
    fn has_share(&self, vno: &str) -> bool {
        let own_records = self.records.values().filter(|record| record.vno == vno);
        own_records.count() < self.networks_per_vno
    }

    /// Refuses a request without recording it.
    fn refuse_at_once(&mut self, vno: &str, vnet: VnetId, generation: u64, reason: Reason) {
        let standing = Standing {
            is_refused: true,
            ..Standing::without(reason)
        };
        let message = FromVnp::Standing {
            vnet,
            generation,
            standing,
        };
        let vno = vno.to_owned();
        self.outputs.push_back(Output::ToVno { vno, message });
    }

    fn remove(&mut self, now: Instant, vnet: VnetId, vno: &str) {
        match self.records.get(&vnet) {
            // Another process may have written the network since the last read. The VNO asks again.
            None => match self.is_current(now, vnet) {
                Ok(true) => {
                    let (vno, message) = (vno.to_owned(), FromVnp::Removed { vnet });
                    self.outputs.push_back(Output::ToVno { vno, message });
                }
                Ok(false) => {}
                Err(error) => self.discard(&error),
            },
            Some(known) if known.is_wanted => {
                let gone = Record {
                    is_wanted: false,
                    ..Record::clone(known)
                };
                self.write(now, vnet, &gone);
                self.advance(now, vnet);
            }
            Some(_) => self.tell_standing(vnet, true),
        }
    }

    /// Processes all networks that are due. The caller calls it at the time of
    /// [`Vnp::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.refresh(now) {
            self.next_check = self.next_check.max(now + self.timing.repeat);
            self.discard(&error);
            let late: Vec<VnetId> = self.due_until(now);
            let at = now + self.timing.repeat;
            late.into_iter().for_each(|vnet| self.set_due(vnet, at));
            return;
        }
        for vnet in self.due_until(now) {
            self.set_due(vnet, now + self.timing.check_interval);
            self.advance(now, vnet);
            self.tell_again(vnet);
        }
        if self.next_check <= now {
            self.next_check = now + self.timing.check_interval;
            self.reason_cache.tidy(now);
            self.renew();
            self.end_waiting(now);
        }
    }

    fn due_until(&self, now: Instant) -> Vec<VnetId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, vnet)| *vnet).collect()
    }

    /// When [`Vnp::handle_timeout`] is due. Any `handle_*` may change the time.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let first = self.due.first().map(|(at, _)| *at);
        first.map_or(self.next_check, |at| at.min(self.next_check))
    }

    /// Removes and returns the next message to send; `None` if no message waits. Any `handle_*` may
    /// add messages.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The VNO that requests a network. If the store does not answer, the result is as of the last
    /// successful read.
    pub fn owner(&mut self, now: Instant, vnet: VnetId) -> Option<&str> {
        if let Err(error) = self.refresh(now) {
            self.discard(&error);
        }
        self.records.get(&vnet).map(|record| record.vno.as_str())
    }

    /// Number of discarded messages and failed operations, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// Updates the records from the store.
    fn refresh(&mut self, now: Instant) -> Result<(), StoreError> {
        self.began.get_or_insert(now);
        for key in self.copy.refresh(&mut self.store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Ok(vnet) = name.parse::<VnetId>() else {
                continue;
            };
            match self.copy.entry(&key).map(from_value).transpose()? {
                Some(record) => self.take_record(now, vnet, record),
                None => {
                    self.records.remove(&vnet);
                    self.unheard.remove(&vnet);
                    if let Some(progress) = self.progress.remove(&vnet) {
                        self.due.remove(&(progress.due, vnet));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adopts a record that this or another process of the VNP has written, and schedules its
    /// processing.
    fn take_record(&mut self, now: Instant, vnet: VnetId, record: Record) {
        let before = self.records.get(&vnet);
        let is_same =
            before.is_some_and(|before| before.round == record.round && before.step == record.step);
        let is_found = before.is_none() && record.is_running();
        if is_found && self.is_young(now) {
            self.unheard.insert(vnet);
        } else if !record.is_running() {
            self.unheard.remove(&vnet);
        }
        self.records.insert(vnet, Arc::new(record));
        let progress = self.progress_of(now, vnet);
        if !is_same {
            progress.begin(now);
        }
        self.set_due(vnet, now);
    }

    fn progress_of(&mut self, now: Instant, vnet: VnetId) -> &mut Progress {
        let due = &mut self.due;
        self.progress.entry(vnet).or_insert_with(|| {
            due.insert((now, vnet));
            Progress {
                since: now,
                due: now,
                send_at: now,
                tries: 0,
                offers: BTreeMap::new(),
                done: BTreeSet::new(),
                statuses: BTreeMap::new(),
                told: None,
                looks: 0,
            }
        })
    }

    fn set_due(&mut self, vnet: VnetId, at: Instant) {
        if let Some(progress) = self.progress.get_mut(&vnet) {
            self.due.remove(&(progress.due, vnet));
            progress.due = at;
            self.due.insert((at, vnet));
        }
    }

    /// Writes a record, unless the store's record has changed since it was read. In that case, or
    /// if the store does not answer, the network is processed again later.
    fn write(&mut self, now: Instant, vnet: VnetId, record: &Record) {
        let key = format!("{}{vnet}", self.prefix);
        let write = Transaction::new().if_as_read(&*key, self.copy.revision(&key));
        let forgets = matches!(
            record.step,
            Step::Releasing {
                then: Then::Forget,
                ..
            }
        ) && record.to_release(true).is_empty();
        let write = if forgets {
            write.delete(key)
        } else {
            write.put(key, to_value(record))
        };
        let outcome = self.store.commit(now, &write);
        let outcome = outcome.and_then(|outcome| self.refresh(now).map(|()| outcome));
        match outcome {
            Ok(Outcome::Done(_)) if forgets => {
                let (vno, message) = (record.vno.clone(), FromVnp::Removed { vnet });
                self.outputs.push_back(Output::ToVno { vno, message });
            }
            Ok(Outcome::Done(_)) => self.tell_standing(vnet, false),
            Ok(Outcome::Conflict) => self.set_due(vnet, now + self.timing.repeat),
            Err(error) => {
                self.discard(&error);
                self.set_due(vnet, now + self.timing.repeat);
            }
        }
    }

    /// Whether the store's record of a network has not changed since this VNP read it.
    fn is_current(&mut self, now: Instant, vnet: VnetId) -> Result<bool, StoreError> {
        let key = format!("{}{vnet}", self.prefix);
        let check = Transaction::new().if_as_read(&*key, self.copy.revision(&key));
        let outcome = self.store.commit(now, &check)?;
        Ok(outcome != Outcome::Conflict)
    }

    fn send(&mut self, pip: &str, message: ToPip) {
        let pip = pip.to_owned();
        self.outputs.push_back(Output::ToPip { pip, message });
    }

    fn discard(&mut self, error: &StoreError) {
        self.count(error.kind());
    }

    fn count(&mut self, reason: &'static str) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}

/// Networks that each VNO may have at a VNP (default).
pub const NETWORKS_PER_VNO: usize = 1000;

impl Progress {
    /// Begins a step: answers that belong to the previous step are forgotten.
    fn begin(&mut self, now: Instant) {
        self.since = now;
        self.send_at = now;
        self.tries = 0;
        self.offers.clear();
        self.done.clear();
    }
}

impl Record {
    fn is_being_removed(&self) -> bool {
        matches!(self.step, Step::Releasing { all: true, .. })
    }

    /// The reason of an attempt that failed because a provider did not answer.
    fn unreachable() -> Reason {
        let words = "a provider that the network needs did not answer in time";
        Reason::new(ReasonCode::Unreachable, words)
    }
}
