//! What is still to be sent to each neighbour.
//!
//! Only keys wait here, so that a slow neighbour costs no more than one entry for each object and
//! hears the newest version of each.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use carina_time::Instant;

use crate::database::Database;
use crate::message::{Address, Message};

/// All neighbours.
#[derive(Debug, Default)]
pub struct Peers {
    peers: BTreeMap<Address, Peer>,
    /// Served last; the next one is served first.
    last: Address,
}

#[derive(Debug, Default)]
struct Peer {
    /// Objects to send.
    pending: BTreeSet<(Address, Address)>,
    /// Origins to ask for.
    wanted: BTreeSet<Address>,
    /// First address of the next summary to send.
    summary_from: Option<Address>,
    /// A digest is to be sent.
    compare: bool,
}

impl Peers {
    /// A neighbour is there: it is compared with.
    pub fn add(&mut self, neighbour: Address) {
        let peer = Peer {
            compare: true,
            ..Peer::default()
        };
        self.peers.insert(neighbour, peer);
    }

    /// It is gone.
    pub fn remove(&mut self, neighbour: Address) {
        self.peers.remove(&neighbour);
    }

    /// All neighbours but `except` are to hear of an object.
    pub fn flood(&mut self, key: (Address, Address), except: Option<Address>) {
        for (address, peer) in &mut self.peers {
            if Some(*address) != except {
                peer.pending.insert(key);
            }
        }
    }

    /// A neighbour has our version of this object.
    pub fn has(&mut self, neighbour: Address, key: (Address, Address)) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.pending.remove(&key);
        }
    }

    /// A neighbour is to hear of these objects.
    pub fn lacks(
        &mut self,
        neighbour: Address,
        keys: impl IntoIterator<Item = (Address, Address)>,
    ) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.pending.extend(keys);
        }
    }

    /// The object is no more.
    pub fn forget(&mut self, key: (Address, Address)) {
        for peer in self.peers.values_mut() {
            peer.pending.remove(&key);
        }
    }

    /// A neighbour is to be asked for the objects of an origin.
    pub fn want(&mut self, neighbour: Address, origin: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.wanted.insert(origin);
        }
    }

    /// Queues a summary of what this member has, origin by origin, for a neighbour.
    pub fn summarise(&mut self, neighbour: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            // One that is under way starts again: it may have passed what has changed.
            peer.summary_from = Some(0);
        }
    }

    /// A neighbour is to be sent the digest.
    pub fn compare(&mut self, neighbour: Address) {
        if let Some(peer) = self.peers.get_mut(&neighbour) {
            peer.compare = true;
        }
    }

    /// All are.
    pub fn compare_all(&mut self) {
        for peer in self.peers.values_mut() {
            peer.compare = true;
        }
    }

    /// The next message; neighbours take turns.
    pub fn poll(
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

    /// Objects come first, so that a digest speaks of what the neighbour has heard.
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

/// Origins in one summary or request.
pub const ORIGINS_MAX: usize = 256;
