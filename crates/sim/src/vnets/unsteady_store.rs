//! A store that breaks off, and with which a process can be made to die at any write.

use std::cell::RefCell;
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::store::{
    Changes, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError, Transaction,
};

/// One process's way to a store that others share.
#[derive(Clone, Debug)]
pub(super) struct UnsteadyStore {
    store: Rc<RefCell<MemoryStore>>,
    trouble: Rc<RefCell<Trouble>>,
}

/// What goes wrong on the way to a store.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The process dies after so many changes; the last may have reached the store or not.
    pub(super) changes_left: Option<u64>,
    /// Whether it has died of that.
    pub(super) is_dead: bool,
    /// The share of calls, of 10,000, that break off.
    pub(super) unanswered: u32,
    pub(super) random: Random,
}

impl UnsteadyStore {
    pub(super) fn new(
        store: Rc<RefCell<MemoryStore>>,
        trouble: Rc<RefCell<Trouble>>,
    ) -> UnsteadyStore {
        UnsteadyStore { store, trouble }
    }

    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut trouble = self.trouble.borrow_mut();
        let share = trouble.unanswered;
        if trouble.is_dead || trouble.random.chance(share) {
            return Err(broken_off());
        }
        read(&mut self.store.borrow_mut())
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut trouble = self.trouble.borrow_mut();
        if trouble.is_dead {
            return Err(broken_off());
        }
        if let Some(left) = &mut trouble.changes_left {
            *left = left.saturating_sub(1);
            trouble.is_dead = *left == 0;
        }
        let share = trouble.unanswered;
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
        self.read(|store| store.range(now, range))
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        self.read(|store| store.changes(now, range, after))
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        self.change(|store| store.commit(now, transaction))
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.change(|store| store.grant(now, ttl))
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.change(|store| store.renew(now, lease))
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.change(|store| store.revoke(now, lease))
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.change(|store| store.compact(now, through))
    }
}
