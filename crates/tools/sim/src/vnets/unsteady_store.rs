//! A store that breaks off, is late, and serves others between a read and a write; and with which a
//! process can be made to die at any write.

use std::cell::RefCell;
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::store::{
    Changes, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError, Transaction,
};

use super::process::Others;
use super::{FOR_EVER, Mutant};

/// One process's way to a store that others share.
#[derive(Clone, Debug)]
pub(super) struct UnsteadyStore {
    store: Rc<RefCell<MemoryStore>>,
    trouble: Rc<RefCell<Trouble>>,
    others: Others,
}

/// What goes wrong on the way to a store.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The process dies after so many changes; the last may have reached the store or not.
    pub(super) changes_left: Option<u64>,
    /// Whether it has died of that.
    pub(super) is_dead: bool,
    /// Until when the store does not answer.
    pub(super) away_until: Instant,
    pub(super) shares: Shares,
    /// Whether the process has changed something that it has not read since.
    has_changed: bool,
    random: Random,
}

/// The shares of calls, of 10,000, to which something happens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// They break off. Half of those that change something have been done.
    pub(super) unanswered: u32,
    /// Before them, another process does what it has got.
    pub(super) interleaved: u32,
    /// Watches that have not heard yet of what others have written.
    pub(super) late: u32,
    /// Watches before which the store has forgotten its history.
    pub(super) compacted: u32,
    /// What the store does not do at all.
    pub(super) mutant: Option<Mutant>,
}

impl Trouble {
    pub(super) fn new(shares: Shares, random: Random) -> Trouble {
        Trouble {
            changes_left: None,
            is_dead: false,
            away_until: Instant::ZERO,
            shares,
            has_changed: false,
            random,
        }
    }

    /// Goes on with a process that starts again.
    pub(super) fn begin(&mut self) {
        self.is_dead = false;
        self.changes_left = None;
        self.has_changed = false;
    }

    /// Nothing goes wrong any more. Others still write in between.
    pub(super) fn end(&mut self) {
        self.changes_left = None;
        self.away_until = Instant::ZERO;
        self.shares = Shares {
            interleaved: self.shares.interleaved,
            mutant: self.shares.mutant,
            ..Shares::default()
        };
    }

    /// Lets the process die at one of its next changes.
    pub(super) fn die_soon(&mut self) {
        self.changes_left = Some(1 + self.random.below(5));
    }
}

impl UnsteadyStore {
    pub(super) fn new(
        store: Rc<RefCell<MemoryStore>>,
        trouble: Rc<RefCell<Trouble>>,
        others: Others,
    ) -> UnsteadyStore {
        UnsteadyStore {
            store,
            trouble,
            others,
        }
    }

    /// Others do what they have got, as if this process had waited for the store.
    fn wait(&mut self, now: Instant) {
        for other in &self.others {
            let mut trouble = self.trouble.borrow_mut();
            let share = trouble.shares.interleaved;
            if trouble.is_dead || !trouble.random.chance(share) {
                continue;
            }
            drop(trouble);
            if let Some(other) = other.upgrade() {
                other.go_on(now);
            }
        }
    }

    fn read<T>(
        &mut self,
        now: Instant,
        read: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.wait(now);
        let mut trouble = self.trouble.borrow_mut();
        let share = trouble.shares.unanswered;
        let is_away = trouble.is_dead || now < trouble.away_until;
        if is_away || trouble.random.chance(share) {
            return Err(broken_off());
        }
        trouble.has_changed = false;
        read(&mut self.store.borrow_mut())
    }

    fn change<T>(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.wait(now);
        let mut trouble = self.trouble.borrow_mut();
        if trouble.is_dead || now < trouble.away_until {
            return Err(broken_off());
        }
        if let Some(left) = &mut trouble.changes_left {
            *left = left.saturating_sub(1);
            trouble.is_dead = *left == 0;
        }
        trouble.has_changed = true;
        let share = trouble.shares.unanswered;
        if trouble.is_dead || trouble.random.chance(share) {
            if trouble.random.chance(5000) {
                // It was done, and the answer is lost.
                let _ = change(&mut self.store.borrow_mut());
            }
            return Err(broken_off());
        }
        change(&mut self.store.borrow_mut())
    }
}

fn broken_off() -> StoreError {
    StoreError::Unavailable("it broke off".to_owned())
}

impl Store for UnsteadyStore {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.read(now, |store| store.range(now, range))
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        let mut trouble = self.trouble.borrow_mut();
        let Shares {
            late, compacted, ..
        } = trouble.shares;
        let is_late = trouble.random.chance(late) && !trouble.has_changed;
        let is_compacted = trouble.random.chance(compacted);
        drop(trouble);
        if is_compacted {
            let mut store = self.store.borrow_mut();
            let through = store.range(now, &KeyRange::key("-"))?.revision;
            store.compact(now, through)?;
        }
        self.read(now, |store| {
            if is_late {
                // As it was when the process looked last.
                Ok(Changes {
                    through: after,
                    ..Changes::default()
                })
            } else {
                store.changes(now, range, after)
            }
        })
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let mutant = self.trouble.borrow().shares.mutant;
        let blind = (mutant == Some(Mutant::AnyWriteWins)).then(|| Transaction {
            compares: Vec::new(),
            ..transaction.clone()
        });
        let forgetful = (mutant == Some(Mutant::DrainsAreForgotten)).then(|| {
            let mut transaction = transaction.clone();
            transaction
                .writes
                .retain(|write| !write.key().contains("/drained/"));
            transaction
        });
        let transaction = blind.as_ref().or(forgetful.as_ref()).unwrap_or(transaction);
        self.change(now, |store| store.commit(now, transaction))
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        let ttl = match self.trouble.borrow().shares.mutant {
            Some(Mutant::HoldsNeverEnd) => FOR_EVER,
            _ => ttl,
        };
        self.change(now, |store| store.grant(now, ttl))
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.change(now, |store| store.renew(now, lease))
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.change(now, |store| store.revoke(now, lease))
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.change(now, |store| store.compact(now, through))
    }
}
