//! A virtual network operator: wants networks, and learns how far they are.
//!
//! The machine does no I/O; what is wanted is in the store. It asks its VNP until that has
//! answered, and then again from time to time. It knows its own documents and conditions, and
//! nothing of what carries them: [`FromVnp`] has no words for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carina_random::Random;
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::grant::{Grant, GrantError};
use crate::host_part::VnetId;
use crate::message::{FromVnp, Reason, ReasonCode, Standing, ToVnp};
use crate::mirror::{Mirror, from_value, to_value};
use crate::store::{Outcome, Store, StoreError, Transaction};
use crate::timing::Timing;

mod granting;

/// An operator's machine.
#[derive(Debug)]
pub struct Vno<S> {
    prefix: String,
    store: S,
    timing: Timing,
    random: Random,
    mirror: Mirror,
    records: BTreeMap<VnetId, Record>,
    answers: BTreeMap<VnetId, Answer>,
    due: BTreeSet<(Instant, VnetId)>,
    /// When the store is read, until it was for the first time.
    read_at: Instant,
    outputs: VecDeque<ToVnp>,
    discarded: BTreeMap<&'static str, u64>,
}

/// A network that an operator wants, or wants no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    generation: u64,
    document: Document,
    is_wanted: bool,
    /// When its lease ends, ms since 1970.
    expires_ms: Option<u64>,
    /// What others may do with it, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    grants: BTreeMap<String, Grant>,
}

/// What the VNP has said, and when it is asked again.
#[derive(Clone, Debug, Default)]
struct Answer {
    due: Instant,
    tries: u32,
    standing: Option<(u64, Standing)>,
}

/// A network as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Its uid.
    pub vnet: VnetId,
    /// Its name.
    pub name: String,
    /// Grows with each change of its document.
    pub generation: u64,
    /// How far it is.
    pub standing: Standing,
}

/// Why an operator's wish was not written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WishError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process wrote in between.
    #[error("another has changed `{0}` at the same time; look at it, and try again")]
    Conflict(String),
    /// It is still being removed.
    #[error("`{0}` is being removed; try again when it is gone")]
    Leaving(String),
    /// There is no such network.
    #[error("there is no network `{0}`")]
    Unknown(String),
    /// A grant that cannot be.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// There is no grant to withdraw.
    #[error("{0} has no grant here")]
    NotGranted(String),
    /// Too many grants.
    #[error("a network has {0} grants at most")]
    Grants(usize),
}

impl<S: Store> Vno<S> {
    /// An operator of this name, which keeps what it wants in a store.
    pub fn new(name: &str, store: S, timing: Timing, random: Random) -> Vno<S> {
        let prefix = format!("vno/{name}/vnet/");
        Vno {
            mirror: Mirror::new(&prefix),
            prefix,
            store,
            timing,
            random,
            records: BTreeMap::new(),
            answers: BTreeMap::new(),
            due: BTreeSet::new(),
            read_at: Instant::ZERO,
            outputs: VecDeque::new(),
            discarded: BTreeMap::new(),
        }
    }

    /// Wants a network, or wants it to change to this; its lease begins anew.
    ///
    /// # Errors
    /// It was not written down.
    pub fn apply(&mut self, now: Instant, document: Document) -> Result<VnetId, WishError> {
        self.refresh(now)?;
        let name = document.vnet.name.clone();
        let known = self.find(&name);
        let lease = document.vnet.lease.map(|lease| now + lease.duration());
        let expires_ms = lease.map(Instant::as_millis);
        let (vnet, generation, grants) = match known {
            Some((_, record)) if !record.is_wanted => return Err(WishError::Leaving(name)),
            Some((vnet, record)) => {
                let changes = u64::from(record.document != document);
                (vnet, record.generation + changes, record.grants.clone())
            }
            None => (VnetId::new(self.random.next_u64()), 1, BTreeMap::new()),
        };
        let record = Record {
            generation,
            document,
            is_wanted: true,
            expires_ms,
            grants,
        };
        self.write(now, vnet, &record)?;
        Ok(vnet)
    }

    /// Wants a network no longer.
    ///
    /// # Errors
    /// No network has this name, or it was not written down.
    pub fn remove(&mut self, now: Instant, name: &str) -> Result<VnetId, WishError> {
        self.refresh(now)?;
        let Some((vnet, record)) = self.find(name) else {
            return Err(WishError::Unknown(name.to_owned()));
        };
        let record = Record {
            is_wanted: false,
            ..record.clone()
        };
        self.write(now, vnet, &record)?;
        Ok(vnet)
    }

    /// A network as far as it is known.
    #[must_use]
    pub fn seen(&self, name: &str) -> Option<Seen> {
        let (vnet, record) = self.find(name)?;
        let answer = self
            .answers
            .get(&vnet)
            .and_then(|answer| answer.standing.as_ref());
        let current = answer.filter(|(generation, _)| *generation == record.generation);
        let unanswered = || {
            let words = "the provider has not answered yet";
            Standing::without(Reason::new(ReasonCode::Unreachable, words))
        };
        Some(Seen {
            vnet,
            name: name.to_owned(),
            generation: record.generation,
            standing: current.map_or_else(unanswered, |(_, standing)| standing.clone()),
        })
    }

    /// What is wanted of a network.
    #[must_use]
    pub fn document(&self, name: &str) -> Option<&Document> {
        self.find(name).map(|(_, record)| &record.document)
    }

    /// The names of all networks.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.records
            .values()
            .map(|record| record.document.vnet.name.as_str())
    }

    /// Takes a message of the VNP.
    pub fn handle_vnp(&mut self, now: Instant, message: FromVnp) {
        if let Err(error) = self.refresh(now) {
            return self.count(error.kind());
        }
        match message {
            FromVnp::Standing {
                vnet,
                generation,
                standing,
            } => {
                if !self.records.contains_key(&vnet) {
                    // What is known here may be behind another process; the VNP says it again.
                    match self.is_current(now, vnet) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return self.count(error.kind()),
                    }
                    self.count("standing of a network that is gone");
                    return self.outputs.push_back(ToVnp::Remove { vnet });
                }
                let rests = standing.is_ready() || standing.is_refused;
                let answer = self.answers.entry(vnet).or_default();
                if answer
                    .standing
                    .as_ref()
                    .is_some_and(|(known, _)| *known > generation)
                {
                    return self.count("standing that is late");
                }
                answer.standing = Some((generation, standing));
                answer.tries = 0;
                let is_current = self.records[&vnet].generation == generation;
                let wait = if rests && is_current {
                    LONG
                } else {
                    self.timing.look
                };
                self.set_due(vnet, now + wait);
            }
            FromVnp::Removed { vnet } => {
                let is_leaving = |record: &&Record| !record.is_wanted;
                if self.records.get(&vnet).filter(is_leaving).is_some() {
                    let key = format!("{}{vnet}", self.prefix);
                    let write = Transaction::new().if_as_read(&*key, self.mirror.revision(&key));
                    let outcome = self.store.commit(now, &write.delete(key));
                    if let Err(error) = outcome.and_then(|_| self.refresh(now)) {
                        self.count(error.kind());
                    }
                }
            }
        }
    }

    /// Asks what is due; to be called when [`Vno::poll_timeout`] says.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Err(error) = self.refresh(now) {
            self.count(error.kind());
            if self.read_at <= now {
                self.read_at = now + self.timing.repeat;
            }
        }
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<VnetId> = due.map(|(_, vnet)| *vnet).collect();
        for vnet in due {
            let Some(record) = self.records.get(&vnet).cloned() else {
                self.forget(vnet);
                continue;
            };
            if record.is_wanted && record.expires_ms.is_some_and(|at| at <= now.as_millis()) {
                let record = Record {
                    is_wanted: false,
                    ..record
                };
                if self.write(now, vnet, &record).is_err() {
                    self.count("the end of a lease that was not written down");
                    self.put_due(vnet, now + self.timing.repeat);
                }
                continue;
            }
            let answer = self.answers.entry(vnet).or_default();
            let tries = answer.tries;
            answer.tries += 1;
            let wait = self.timing.back_off(tries, &mut self.random);
            self.set_due(vnet, now + wait);
            self.outputs.push_back(if record.is_wanted {
                ToVnp::Want {
                    vnet,
                    generation: record.generation,
                    document: Box::new(record.document),
                }
            } else {
                ToVnp::Remove { vnet }
            });
        }
    }

    /// When [`Vno::handle_timeout`] is due. May change after any call.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let first = self.due.first().map(|(at, _)| *at);
        first.map_or(self.read_at, |at| at.min(self.read_at))
    }

    /// The next message for the VNP. May change after any call.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<ToVnp> {
        self.outputs.pop_front()
    }

    /// What was discarded, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// Reads what is wanted from the store, as after a restart.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn refresh(&mut self, now: Instant) -> Result<(), StoreError> {
        for key in self.mirror.refresh(&mut self.store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Ok(vnet) = name.parse::<VnetId>() else {
                continue;
            };
            match self.mirror.entry(&key).map(from_value).transpose()? {
                Some(record) => {
                    self.records.insert(vnet, record);
                    self.answers.entry(vnet).or_default().tries = 0;
                    self.set_due(vnet, now);
                }
                None => self.forget(vnet),
            }
        }
        self.read_at = Instant::MAX;
        Ok(())
    }

    /// Whether it has read its store since it began: before that it knows of no network, and there
    /// may be some.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.read_at == Instant::MAX
    }

    /// Whether the store has of a network what was read of it.
    fn is_current(&mut self, now: Instant, vnet: VnetId) -> Result<bool, StoreError> {
        let key = format!("{}{vnet}", self.prefix);
        let check = Transaction::new().if_as_read(&*key, self.mirror.revision(&key));
        Ok(self.store.commit(now, &check)? != Outcome::Conflict)
    }

    fn find(&self, name: &str) -> Option<(VnetId, &Record)> {
        let mut records = self.records.iter();
        let found = records.find(|(_, record)| record.document.vnet.name == name);
        found.map(|(vnet, record)| (*vnet, record))
    }

    fn write(&mut self, now: Instant, vnet: VnetId, record: &Record) -> Result<(), WishError> {
        let key = format!("{}{vnet}", self.prefix);
        let write = Transaction::new().if_as_read(&*key, self.mirror.revision(&key));
        let outcome = self.store.commit(now, &write.put(key, to_value(record)))?;
        self.refresh(now)?;
        match outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Conflict => Err(WishError::Conflict(record.document.vnet.name.clone())),
        }
    }

    fn forget(&mut self, vnet: VnetId) {
        self.records.remove(&vnet);
        if let Some(answer) = self.answers.remove(&vnet) {
            self.due.remove(&(answer.due, vnet));
        }
    }

    /// Has a network looked at then, or when its lease ends.
    fn set_due(&mut self, vnet: VnetId, at: Instant) {
        let record = self.records.get(&vnet).filter(|record| record.is_wanted);
        let expiry = record.and_then(|record| record.expires_ms);
        let at = expiry.map_or(at, |expiry| at.min(Instant::from_millis(expiry)));
        self.put_due(vnet, at);
    }

    /// Has a network looked at then, though its lease may be over by then.
    fn put_due(&mut self, vnet: VnetId, at: Instant) {
        let answer = self.answers.entry(vnet).or_default();
        self.due.remove(&(answer.due, vnet));
        answer.due = at;
        self.due.insert((at, vnet));
    }

    fn count(&mut self, reason: &'static str) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}

/// Between two questions about a network with which all is well, or that was refused.
const LONG: Duration = Duration::from_secs(60);
