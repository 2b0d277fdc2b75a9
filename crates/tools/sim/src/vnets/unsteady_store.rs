//! A store with faults: accesses fail, changes become visible late, other processes work between a
//! read and a write, and a process can be made to die at any write.

use std::cell::RefCell;
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::store::{
    Changes, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError, Transaction,
};

use super::interrupt::Others;
use super::{FOR_EVER, Mutant};

/// The access of one process to a shared store.
#[derive(Clone, Debug)]
pub(super) struct UnsteadyStore {
    store: Rc<RefCell<MemoryStore>>,
    trouble: Rc<RefCell<Trouble>>,
    others: Others,
}

/// Faults of one process's access to its store.
#[derive(Debug)]
pub(super) struct Trouble {
    /// Number of changes after which the process dies. The last change may or may not have reached
    /// the store.
    pub(super) changes_left: Option<u64>,
    /// Whether the process has died because `changes_left` reached zero.
    pub(super) is_dead: bool,
    /// Time until which the store does not answer.
    pub(super) away_until: Instant,
    pub(super) shares: Shares,
    /// Whether the process has changed something since its last read.
    has_changed: bool,
    random: Random,
}

/// How often accesses to a store fail or are disturbed in each way. The numbers are shares in
/// 1/10000 of all accesses or, where a field says so, of all watches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// The access fails. If the access is a change, the store has executed it in half of the cases.
    pub(super) unanswered: u32,
    /// The simulator lets another process of the same role do some of its work before the access.
    pub(super) interleaved: u32,
    /// Share of watches that do not report yet what other processes have written. A watch of a
    /// process that has changed something since its last read is never late.
    pub(super) late: u32,
    /// Share of watches before which the store discards its history of changes.
    pub(super) compacted: u32,
    /// The safeguard that the store lacks on purpose; `None` for no missing safeguard.
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

    /// Resets the faults for a process that starts again.
    pub(super) fn begin(&mut self) {
        self.is_dead = false;
        self.changes_left = None;
        self.has_changed = false;
    }

    /// Ends all faults. Other processes still work in between.
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

    /// Lets other processes work, as if this process had waited for the store.
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
                // The change reaches the store, but the store's answer does not reach the process.
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
                // The state at the process's last read.
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
