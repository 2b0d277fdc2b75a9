//! Messages by which the workers of an AFTR pass on what they learn from the network.
//!
//! Each frame reaches one worker only. For most frames this suffices, because an AFTR keeps no
//! state per flow. Two facts concern all workers, however: the MAC address of a next hop, and the
//! path MTU to a B4.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_frame_engine::WORKERS_MAX;

/// A fact that a worker has learnt from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// A next hop of the external side has answered an ARP request.
    NextHop4 {
        /// The next hop's IPv4 address.
        ip: [u8; 4],
        /// The next hop's MAC address.
        mac: [u8; 6],
    },
    /// A next hop of the internal side has answered a neighbour solicitation.
    NextHop6 {
        /// The next hop's IPv6 address.
        ip: [u8; 16],
        /// The next hop's MAC address.
        mac: [u8; 6],
    },
    /// A router has reported that the path to a B4 has a smaller MTU than the access network.
    PathMtu {
        /// IPv6 address of the B4 at the end of the path.
        b4: [u8; 16],
        /// The path's MTU, in bytes.
        mtu: usize,
    },
}

/// The number of a worker among the workers of one AFTR, and how these pass on what they learn.
#[derive(Clone, Debug)]
pub struct Share {
    /// The worker's number, from 0.
    pub worker: usize,
    /// The number of workers.
    pub workers: usize,
    /// Whether this worker asks for next hops. The first worker of those with the same addresses
    /// does.
    pub asks: bool,
    /// The inboxes by which the workers pass on what they learn.
    pub exchange: Arc<Exchange>,
}

impl PartialEq for Share {
    fn eq(&self, other: &Share) -> bool {
        (self.worker, self.workers, self.asks) == (other.worker, other.workers, other.asks)
            && Arc::ptr_eq(&self.exchange, &other.exchange)
    }
}

/// An inbox for each worker, with facts from the other workers.
#[derive(Debug)]
pub struct Exchange {
    inboxes: Vec<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Whether the inbox holds something. The worker reads this flag for each burst, and takes the
    /// lock only if the flag is set.
    has_some: AtomicBool,
    learnt: Mutex<Vec<Learnt>>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of facts that wait in an inbox. A fact that finds no room is dropped; the worker
/// learns it again when the network repeats it.
pub const WAITING_MAX: usize = 1024;

impl Exchange {
    /// Makes inboxes for as many workers as a graph can have.
    #[must_use]
    pub fn new() -> Arc<Exchange> {
        let inboxes = (0..WORKERS_MAX).map(|_| Inbox::default()).collect();
        Arc::new(Exchange { inboxes })
    }

    /// Passes a fact to all of the first `workers` workers except `from`. Returns how many had no
    /// room.
    pub fn tell(&self, from: usize, workers: usize, learnt: Learnt) -> usize {
        let mut untold = 0;
        for (worker, inbox) in self.inboxes.iter().enumerate().take(workers) {
            if worker == from {
                continue;
            }
            let mut waiting = inbox.lock();
            // A router reports its MTU again for each packet that is too long.
            if waiting.last() == Some(&learnt) {
                continue;
            }
            if waiting.len() >= WAITING_MAX {
                untold += 1;
                continue;
            }
            waiting.push(learnt);
            // The reader takes the lock after it has seen this flag, so it also sees the fact that
            // was pushed.
            inbox.has_some.store(true, Ordering::Release);
        }
        untold
    }

    /// Takes all facts that wait for `worker`; returns an empty list at once without any.
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
