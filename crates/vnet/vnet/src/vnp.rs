//! A virtual network provider: makes one network of parts that several providers lease to it.
//!
//! The machine does no I/O; what it must not forget is in the store. It works by level: for each
//! network it reads how far it is and does what comes next, so that it may end at any point and go
//! on after a restart.
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
//! - What is asked of whom is written before the first message goes out.
//! - All providers are asked at once. If one refuses, all let go before the next attempt: a VNP
//!   never waits while it holds, so that two of them never wait for each other.
//! - An attempt has a number, its round. What is late is known by it.
//! - Providers hear again and again which parts are wanted, and answer with those that are not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use carina_random::Random;
use carina_time::Instant;

use crate::document::Document;
use crate::host_part::{EndPart, VnetId};
use crate::lately::Lately;
use crate::message::{
    Advertisement, FromVnp, PartStatus, Reason, ReasonCode, Standing, ToPip, ToVnp, TunnelEnd,
};
use crate::mirror::{Mirror, from_value, to_value};
use crate::store::{Outcome, Store, StoreError, Transaction};
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

/// A VNP's machine.
#[derive(Debug)]
pub struct Vnp<S> {
    prefix: String,
    pips: BTreeSet<String>,
    store: S,
    timing: Timing,
    networks_per_vno: usize,
    random: Random,
    mirror: Mirror,
    records: BTreeMap<VnetId, Arc<Record>>,
    progress: BTreeMap<VnetId, Progress>,
    /// When each network is looked at next.
    due: BTreeSet<(Instant, VnetId)>,
    /// What providers show, and since when.
    seen: BTreeMap<String, (Instant, Advertisement)>,
    /// Providers that were asked what they have, and have not answered.
    asked: BTreeMap<String, Instant>,
    /// Why networks of these generations, with these refusals, were not split.
    lately: Lately<(u64, BTreeSet<(String, String)>)>,
    next_look: Instant,
    /// When it began.
    began: Option<Instant>,
    /// Networks of which providers have not said yet how far they are, since this process began.
    unheard: BTreeSet<VnetId>,
    outputs: VecDeque<Output>,
    discarded: BTreeMap<&'static str, u64>,
}

/// What a VNP sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// To a PIP.
    ToPip {
        /// Its name.
        pip: String,
        /// The message.
        message: ToPip,
    },
    /// To a VNO.
    ToVno {
        /// Its name.
        vno: String,
        /// The message.
        message: FromVnp,
    },
}

/// What is known of a network and need not outlive the process. All but `statuses` and `told` is
/// about one step of one round: it begins anew when the store has another, by
/// whichever process.
#[derive(Clone, Debug)]
struct Progress {
    /// Since when it is in its step.
    since: Instant,
    due: Instant,
    /// When its messages go out again.
    send_at: Instant,
    /// Messages sent in vain in this step.
    tries: u32,
    offers: BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
    done: BTreeSet<String>,
    /// What providers say of their parts of a round.
    statuses: BTreeMap<String, (u64, PartStatus)>,
    told: Option<Standing>,
    /// How often it was looked at since.
    looks: u32,
}

impl<S: Store> Vnp<S> {
    /// A VNP of this name that leases from these providers, and keeps its state in a store.
    pub fn new(
        name: &str,
        pips: impl IntoIterator<Item = String>,
        store: S,
        timing: Timing,
        random: Random,
    ) -> Vnp<S> {
        let prefix = format!("vnp/{name}/vnet/");
        Vnp {
            mirror: Mirror::new(&prefix),
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
            lately: Lately::new(),
            next_look: Instant::ZERO,
            began: None,
            unheard: BTreeSet::new(),
            outputs: VecDeque::new(),
            discarded: BTreeMap::new(),
        }
    }

    /// As many networks each VNO may have at a time, also those that wait or are being removed;
    /// without this, [`NETWORKS_PER_VNO`].
    #[must_use]
    pub fn with_networks_per_vno(mut self, networks: usize) -> Vnp<S> {
        self.networks_per_vno = networks;
        self
    }

    /// Takes a message of a VNO.
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
                    "you have {} networks at this provider, as many as it gives one operator; \
                     take down one of them first",
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

    /// Whether a VNO may have one more network.
    fn has_share(&self, vno: &str) -> bool {
        let its = self.records.values().filter(|record| record.vno == vno);
        its.count() < self.networks_per_vno
    }

    /// Says no to what is not even noted.
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
            // What is known here may be behind another process; the VNO asks again.
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

    /// Does what is due; to be called when [`Vnp::poll_timeout`] says.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.refresh(now) {
            self.next_look = self.next_look.max(now + self.timing.repeat);
            self.discard(&error);
            let late: Vec<VnetId> = self.due_until(now);
            let at = now + self.timing.repeat;
            late.into_iter().for_each(|vnet| self.set_due(vnet, at));
            return;
        }
        for vnet in self.due_until(now) {
            self.set_due(vnet, now + self.timing.look);
            self.advance(now, vnet);
            self.tell_again(vnet);
        }
        if self.next_look <= now {
            self.next_look = now + self.timing.look;
            self.lately.tidy(now);
            self.renew();
            self.end_waiting(now);
        }
    }

    fn due_until(&self, now: Instant) -> Vec<VnetId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, vnet)| *vnet).collect()
    }

    /// When [`Vnp::handle_timeout`] is due. May change after any `handle_*`.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let first = self.due.first().map(|(at, _)| *at);
        first.map_or(self.next_look, |at| at.min(self.next_look))
    }

    /// The next message to send. May change after any `handle_*`.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The VNO that wants a network, as far as the store answers.
    pub fn owner(&mut self, now: Instant, vnet: VnetId) -> Option<&str> {
        if let Err(error) = self.refresh(now) {
            self.discard(&error);
        }
        self.records.get(&vnet).map(|record| record.vno.as_str())
    }

    /// What was discarded, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// Brings the records up to date with the store.
    fn refresh(&mut self, now: Instant) -> Result<(), StoreError> {
        self.began.get_or_insert(now);
        for key in self.mirror.refresh(&mut self.store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Ok(vnet) = name.parse::<VnetId>() else {
                continue;
            };
            match self.mirror.entry(&key).map(from_value).transpose()? {
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

    /// Takes a record that this process or another of the VNP has written, and looks at it soon.
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

    /// Writes a record if it is as it was read. When it was not, or the store does not answer, the
    /// network is looked at again.
    fn write(&mut self, now: Instant, vnet: VnetId, record: &Record) {
        let key = format!("{}{vnet}", self.prefix);
        let write = Transaction::new().if_as_read(&*key, self.mirror.revision(&key));
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

    /// Whether the store has of a network what was read of it.
    fn is_current(&mut self, now: Instant, vnet: VnetId) -> Result<bool, StoreError> {
        let key = format!("{}{vnet}", self.prefix);
        let check = Transaction::new().if_as_read(&*key, self.mirror.revision(&key));
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

/// Networks that a VNO may have at a VNP where nothing else is said.
pub const NETWORKS_PER_VNO: usize = 1000;

impl Progress {
    /// Begins a step: what was heard in another one is no answer in this.
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

    /// Why nothing came of an attempt that was not refused.
    fn unreachable() -> Reason {
        let words = "a provider that has to take part did not answer in time";
        Reason::new(ReasonCode::Unreachable, words)
    }
}
