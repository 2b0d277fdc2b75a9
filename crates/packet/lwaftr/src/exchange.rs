//! What workers of an AFTR learn from the network and tell one another.
//!
//! A frame reaches one worker. Of most frames no other need know, because an AFTR keeps no state of
//! flows; the MAC address of a next hop, and what a router says of the path to a B4, concern all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_engine::frames::WORKERS_MAX;

/// What a worker has learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// A next hop of the external side has answered.
    NextHop4 {
        /// Its IP address.
        ip: [u8; 4],
        /// Its MAC address.
        mac: [u8; 6],
    },
    /// A next hop of the internal side has answered.
    NextHop6 {
        /// Its IP address.
        ip: [u8; 16],
        /// Its MAC address.
        mac: [u8; 6],
    },
    /// A path carries less than the access network.
    PathMtu {
        /// The B4 to which it leads.
        b4: [u8; 16],
        /// What it carries, in bytes.
        mtu: usize,
    },
}

/// A worker's place among several.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its number, from 0.
    pub worker: usize,
    /// How many there are.
    pub workers: usize,
    /// It asks for next hops: it is the first of those with its addresses.
    pub asks: bool,
    /// Where they tell one another what they learn.
    pub exchange: Arc<Exchange>,
}

impl PartialEq for Share {
    fn eq(&self, other: &Share) -> bool {
        (self.worker, self.workers, self.asks) == (other.worker, other.workers, other.asks)
            && Arc::ptr_eq(&self.exchange, &other.exchange)
    }
}

/// An inbox for each worker.
#[derive(Debug)]
pub struct Exchange {
    inboxes: Vec<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Looked at for each burst; the lock is taken when there is something.
    has_some: AtomicBool,
    learnt: Mutex<Vec<Learnt>>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As much waits for a worker at most; what finds no room is learnt again when the network says it
/// again.
pub const WAITING_MAX: usize = 1024;

impl Exchange {
    /// One for as many workers as a graph can have.
    #[must_use]
    pub fn new() -> Arc<Exchange> {
        let inboxes = (0..WORKERS_MAX).map(|_| Inbox::default()).collect();
        Arc::new(Exchange { inboxes })
    }

    /// Tells all of `workers` but the one it comes from. Returns how many had no room.
    pub fn tell(&self, from: usize, workers: usize, learnt: Learnt) -> usize {
        let mut untold = 0;
        for (worker, inbox) in self.inboxes.iter().enumerate().take(workers) {
            if worker == from {
                continue;
            }
            let mut waiting = inbox.lock();
            // A router repeats itself for each packet that is too long.
            if waiting.last() == Some(&learnt) {
                continue;
            }
            if waiting.len() >= WAITING_MAX {
                untold += 1;
                continue;
            }
            waiting.push(learnt);
            // What was pushed is seen by who sees this, for the lock is taken in between.
            inbox.has_some.store(true, Ordering::Release);
        }
        untold
    }

    /// Takes what waits for a worker.
    #[must_use]
    #[inline]
    pub fn take(&self, worker: usize) -> Vec<Learnt> {
        match self.inboxes.get(worker) {
            Some(inbox) if inbox.has_some.load(Ordering::Relaxed) => {
                let mut waiting = inbox.lock();
                inbox.has_some.store(false, Ordering::Relaxed);
                std::mem::take(&mut waiting)
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_others_hear_once_and_within_bounds() {
        let exchange = Exchange::new();
        let path = |mtu| Learnt::PathMtu { b4: [1; 16], mtu };
        assert_eq!(exchange.tell(1, 3, path(1300)), 0);
        assert_eq!(exchange.tell(1, 3, path(1300)), 0);
        assert_eq!(exchange.take(0), [path(1300)]);
        assert_eq!(exchange.take(0), []);
        assert_eq!(exchange.take(1), []);
        assert_eq!(exchange.take(3), [], "there is no such worker");
        for mtu in 0..WAITING_MAX {
            assert_eq!(exchange.tell(1, 2, path(mtu)), 0);
        }
        assert_eq!(exchange.tell(1, 3, path(9999)), 1);
        assert_eq!(exchange.take(0).len(), WAITING_MAX);
        assert_eq!(exchange.take(2), [path(1300), path(9999)]);
        assert_eq!(exchange.take(usize::MAX), []);
    }
}
