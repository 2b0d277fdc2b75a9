//! A virtual network operator (VNO): requests networks and learns their states.
//!
//! The state machine does no I/O; the requests are in the store. A VNO sends each request to its
//! VNP until the VNP has answered, and repeats it from time to time. It knows its own documents and
//! their conditions, but nothing of the substrate: [`FromVnp`] has no words for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carina_random::Random;
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::grant::{Grant, GrantError};
use crate::host_part::VnetId;
use crate::message::{FromVnp, Reason, ReasonCode, Standing, ToVnp};
use crate::store::{Outcome, Store, StoreError, Transaction};
use crate::store_copy::{StoreCopy, from_value, to_value};
use crate::timing::Timing;

mod granting;

/// The state machine of an operator (VNO). `S` is its store.
#[derive(Debug)]
pub struct Vno<S> {
    prefix: String,
    store: S,
    timing: Timing,
    random: Random,
    copy: StoreCopy,
    records: BTreeMap<VnetId, Record>,
    answers: BTreeMap<VnetId, Answer>,
    due: BTreeSet<(Instant, VnetId)>,
    /// When to read the store for the first time; `Instant::MAX` afterwards.
    read_at: Instant,
    outputs: VecDeque<ToVnp>,
    discarded: BTreeMap<&'static str, u64>,
}

/// The store's record of a network that an operator wants, or wants removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    generation: u64,
    document: Document,
    is_wanted: bool,
    /// When the network's lease ends, ms since 1970; `None`: never.
    expires_ms: Option<u64>,
    /// The grants for the network, by the names of their holders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    grants: BTreeMap<String, Grant>,
}

/// The VNP's last answer about a network, and when to ask next.
#[derive(Clone, Debug, Default)]
struct Answer {
    due: Instant,
    tries: u32,
    standing: Option<(u64, Standing)>,
}

/// The state of a network, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Identifier (uid) of the network whose state this is.
    pub vnet: VnetId,
    /// Name of the network whose state this is.
    pub name: String,
    /// Grows with each change of the document.
    pub generation: u64,
    /// State of the network.
    pub standing: Standing,
}

/// Why a change that an operator wanted was not written to the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WishError {
    /// The store did not carry out the write, or does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process changed the network after this one had read it.
    #[error("another client changed `{0}` at the same time; read it again, and retry")]
    Conflict(String),
    /// A network of this name is still being removed.
    #[error("`{0}` is being removed; try again once it is removed")]
    Leaving(String),
    /// There is no network of this name.
    #[error("there is no network `{0}`")]
    Unknown(String),
    /// The operator wants to grant rights that cannot be granted.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The delegate of this name has no grant that could be withdrawn.
    #[error("{0} has no grant here")]
    NotGranted(String),
    /// The network would have more grants than this number, the largest allowed one.
    #[error("a network has {0} grants at most")]
    Grants(usize),
}

impl<S: Store> Vno<S> {
    /// An operator `name` that keeps its requests in `store`.
    pub fn new(name: &str, store: S, timing: Timing, random: Random) -> Vno<S> {
        let prefix = format!("vno/{name}/vnet/");
        Vno {
            copy: StoreCopy::new(&prefix),
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

    /// Requests a network, or a change of an existing one of the same name; its lease starts again.
    /// Returns the uid.
    ///
    /// # Errors
    /// A network of this name is still being removed, or the request was not written to the store.
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

    /// Requests that a network be removed. Returns its uid.
    ///
    /// # Errors
    /// There is no network of this name, or the request was not written to the store.
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

    /// The last known state of a network; `None` if there is no network of this name.
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

    /// The requested document of a network; `None` if there is no such network.
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

    /// Processes a message of the VNP.
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
                    // Another process may have written the network since the last read. The VNP
                    // repeats its message.
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
                    self.timing.check_interval
                };
                self.set_due(vnet, now + wait);
            }
            FromVnp::Removed { vnet } => {
                let is_leaving = |record: &&Record| !record.is_wanted;
                if self.records.get(&vnet).filter(is_leaving).is_some() {
                    let key = format!("{}{vnet}", self.prefix);
                    let write = Transaction::new().if_as_read(&*key, self.copy.revision(&key));
                    let outcome = self.store.commit(now, &write.delete(key));
                    if let Err(error) = outcome.and_then(|_| self.refresh(now)) {
                        self.count(error.kind());
                    }
                }
            }
        }
    }

    /// Sends the requests that are due. The caller calls it at the time of [`Vno::poll_timeout`].
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

    /// When [`Vno::handle_timeout`] is due. Any call may change the time.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let first = self.due.first().map(|(at, _)| *at);
        first.map_or(self.read_at, |at| at.min(self.read_at))
    }

    /// Removes and returns the next message for the VNP; `None` if no message waits. Any call may
    /// add messages.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<ToVnp> {
        self.outputs.pop_front()
    }

    /// Number of discarded messages and failed operations, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// Reads changes of the store, or everything if called for the first time.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn refresh(&mut self, now: Instant) -> Result<(), StoreError> {
        for key in self.copy.refresh(&mut self.store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Ok(vnet) = name.parse::<VnetId>() else {
                continue;
            };
            match self.copy.entry(&key).map(from_value).transpose()? {
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

    /// Whether the store was read at least once. Before that no network is known, even if the store
    /// has some.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.read_at == Instant::MAX
    }

    /// Whether the store's record of a network has not changed since this VNO read it.
    fn is_current(&mut self, now: Instant, vnet: VnetId) -> Result<bool, StoreError> {
        let key = format!("{}{vnet}", self.prefix);
        let check = Transaction::new().if_as_read(&*key, self.copy.revision(&key));
        Ok(self.store.commit(now, &check)? != Outcome::Conflict)
    }

    fn find(&self, name: &str) -> Option<(VnetId, &Record)> {
        let mut records = self.records.iter();
        let found = records.find(|(_, record)| record.document.vnet.name == name);
        found.map(|(vnet, record)| (*vnet, record))
    }

    fn write(&mut self, now: Instant, vnet: VnetId, record: &Record) -> Result<(), WishError> {
        let key = format!("{}{vnet}", self.prefix);
        let write = Transaction::new().if_as_read(&*key, self.copy.revision(&key));
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

    /// Schedules the next request about a network at `at`, or at the end of its lease if that is
    /// earlier.
    fn set_due(&mut self, vnet: VnetId, at: Instant) {
        let record = self.records.get(&vnet).filter(|record| record.is_wanted);
        let expiry = record.and_then(|record| record.expires_ms);
        let at = expiry.map_or(at, |expiry| at.min(Instant::from_millis(expiry)));
        self.put_due(vnet, at);
    }

    /// Schedules the next request about a network at `at`, even if its lease ends earlier.
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

/// Time between two requests about a network that is ready or refused.
const LONG: Duration = Duration::from_secs(60);
