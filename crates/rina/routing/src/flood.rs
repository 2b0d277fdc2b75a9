//! What must still be sent to each neighbour.
//!
//! Only keys of objects are queued. So a slow neighbour costs at most one entry for each object,
//! and gets only the newest version.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use carina_time::Instant;

use crate::database::Database;
use crate::message::{Address, Message};

/// The send queues of all neighbours.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: BTreeMap<Address, Peer>,
    /// The neighbour that was served last; the next one is served first.
    last: Address,
}

#[derive(Debug, Default)]
struct Peer {
    /// Keys of the objects to send.
    pending: BTreeSet<(Address, Address)>,
    /// Members whose objects must be requested from this neighbour.
    wanted: BTreeSet<Address>,
    /// First address of the next summary to send.
    summary_from: Option<Address>,
    /// Whether the member must send this neighbour a digest of its objects.
    compare: bool,
}

impl Peers {
    /// Adds a neighbour, and schedules a comparison of databases with it.
    pub(crate) fn add(&mut self, neighbour: Address) {
        let peer = Peer {
            compare: true,
            ..Peer::default()
        };
        self.peers.insert(neighbour, peer);
    }

    /// Removes a neighbour.
    pub(crate) fn remove(&mut self, neighbour: Address) {
        self.peers.remove(&neighbour);
    }

    /// Queues an object for all neighbours except `except`.
    pub(crate) fn flood(&mut self, key: (Address, Address), except: Option<Address>) {
        for (address, peer) in &mut self.peers {
            if Some(*address) != except {
                peer.pending.insert(key);
            }
        }
    }

    /// Notes that a neighbour has this member's version of an object.
    pub(crate) fn has(&mut self, neighbour: Address, key: (Address, Address)) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.pending.remove(&key);
        }
    }

    /// Queues objects for one neighbour.
    pub(crate) fn lacks(
        &mut self,
        neighbour: Address,
        keys: impl IntoIterator<Item = (Address, Address)>,
    ) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.pending.extend(keys);
        }
    }

    /// Removes an object from all queues, because it no longer exists.
    pub(crate) fn forget(&mut self, key: (Address, Address)) {
        for peer in self.peers.values_mut() {
            peer.pending.remove(&key);
        }
    }

    /// Queues a request to a neighbour for the objects of an origin.
    pub(crate) fn want(&mut self, neighbour: Address, origin: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.wanted.insert(origin);
        }
    }

    /// Queues a summary of this member's database for a neighbour.
    pub(crate) fn summarise(&mut self, neighbour: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            // A summary that is partly sent starts again, because the changed part may already be
            // sent.
            peer.summary_from = Some(0);
        }
    }

    /// Queues the digest of this member's database for a neighbour.
    pub(crate) fn compare(&mut self, neighbour: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.compare = true;
        }
    }

    /// Queues the digest for all neighbours.
    pub(crate) fn compare_all(&mut self) {
        for peer in self.peers.values_mut() {
            peer.compare = true;
        }
    }

    /// Returns the next message. Neighbours are served in turn.
    pub(crate) fn poll(
        &mut self,
        database: &Database,
        now: Instant,
        batch: usize,
    ) -> Option<(Address, Message)> {
        let after = self.last.saturating_add(1);
        let order: Vec<Address> = self
            .peers
            .range(after..)
            .chain(self.peers.range(..after))
            .filter(|(_, peer)| !peer.is_idle())
            .map(|(address, _)| *address)
            .collect();
        for address in order {
            let peer = self.peers.get_mut(&address)?;
            if let Some(message) = peer.poll(database, now, batch) {
                self.last = address;
                return Some((address, message));
            }
        }
        None
    }
}

impl Peer {
    fn is_idle(&self) -> bool {
        let is_told = self.pending.is_empty() && self.wanted.is_empty();
        is_told && self.summary_from.is_none() && !self.compare
    }

    /// Returns the next message for this neighbour. Objects come first, so that a digest covers
    /// what the neighbour has received.
    fn poll(&mut self, database: &Database, now: Instant, batch: usize) -> Option<Message> {
        let mut objects = Vec::new();
        while objects.len() < batch {
            let Some(key) = self.pending.pop_first() else {
                break;
            };
            objects.extend(database.object(now, key));
        }
        if !objects.is_empty() {
            return Some(Message::Objects(objects));
        }
        if !self.wanted.is_empty() {
            let mut origins = Vec::new();
            while origins.len() < ORIGINS_MAX {
                let Some(origin) = self.wanted.pop_first() else {
                    break;
                };
                origins.push(origin);
            }
            return Some(Message::Want(origins));
        }
        if let Some(first) = self.summary_from.take() {
            let summary = database.summary(first, ORIGINS_MAX);
            self.summary_from = summary.last.checked_add(1);
            return Some(Message::Summary(summary));
        }
        if core::mem::take(&mut self.compare) {
            return Some(Message::Digest(database.digest()));
        }
        None
    }
}

/// Largest number of origins in one summary or request.
pub(crate) const ORIGINS_MAX: usize = 256;
