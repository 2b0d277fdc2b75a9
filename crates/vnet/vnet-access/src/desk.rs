//! What the engine's thread and the one that decides about users say to one another.
//!
//! The engine's thread never waits here for long: a holder of the lock copies a few values.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::access_point::{PeerConfig, PeerSeen};
use crate::control::{Reply, Request};
use crate::key::PublicKey;

/// A desk between two threads. Copies are of the same desk.
#[derive(Clone, Debug, Default)]
pub struct Desk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Asked>,
    answers: Answers,
    /// What the engine's thread has not taken yet.
    peers: Option<Vec<PeerConfig>>,
    /// All of them, for one that begins.
    all_peers: Vec<PeerConfig>,
    seen: BTreeMap<PublicKey, PeerSeen>,
    is_closed: bool,
}

/// A request of a user's system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The session that the answer goes to.
    pub index: u32,
    /// The address from which it came.
    pub from: IpAddr,
    /// The key of the system.
    pub key: PublicKey,
    /// What it asks.
    pub request: Request,
}

/// Answers, and news for users.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Answers, by the sessions of their requests.
    pub replies: Vec<(u32, Reply)>,
    /// News, by the keys of systems.
    pub news: Vec<(PublicKey, Reply)>,
}

/// What the engine's thread takes.
#[derive(Debug, Default)]
pub struct Orders {
    /// Answers and news, which go out before the users change.
    pub answers: Answers,
    /// Other users than before.
    pub peers: Option<Vec<PeerConfig>>,
}

impl Desk {
    /// A desk with users who joined earlier.
    #[must_use]
    pub fn with_peers(peers: Vec<PeerConfig>) -> Desk {
        let desk = Desk::default();
        desk.lock().all_peers = peers;
        desk
    }

    /// Leaves a request; false where enough of them wait.
    pub fn ask(&self, asked: Asked) -> bool {
        let mut state = self.lock();
        let has_room = state.requests.len() < REQUESTS_MAX;
        if has_room {
            state.requests.push_back(asked);
            self.0.rung.notify_all();
        }
        has_room
    }

    /// The next request, at once or within some time; none also when the desk is closed.
    #[must_use]
    pub fn next(&self, wait: Duration) -> Option<Asked> {
        let mut state = self.lock();
        if state.requests.is_empty() && !state.is_closed {
            let waited = self.0.rung.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.requests.pop_front()
    }

    /// Ends the wait of [`Desk::next`], for good.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.0.rung.notify_all();
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Answers a request; where users change by it, they change after the answer has gone out.
    pub fn answer(&self, index: u32, reply: Reply, peers: Option<Vec<PeerConfig>>) {
        let mut state = self.lock();
        state.answers.replies.push((index, reply));
        if let Some(peers) = peers {
            state.set_peers(peers);
        }
    }

    /// Has other users; news reach their users before.
    pub fn set_peers(&self, peers: Vec<PeerConfig>, news: Vec<(PublicKey, Reply)>) {
        let mut state = self.lock();
        state.answers.news.extend(news);
        state.set_peers(peers);
    }

    /// What was ordered since the last time, for the engine's thread.
    #[must_use]
    pub fn take_orders(&self) -> Orders {
        let mut state = self.lock();
        Orders {
            answers: std::mem::take(&mut state.answers),
            peers: state.peers.take(),
        }
    }

    /// All users, for an engine's thread that begins.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerConfig> {
        let mut state = self.lock();
        state.peers = None;
        state.all_peers.clone()
    }

    /// Says what is known of users' systems.
    pub fn see(&self, seen: impl Iterator<Item = (PublicKey, PeerSeen)>) {
        self.lock().seen = seen.collect();
    }

    /// What is known of users' systems.
    #[must_use]
    pub fn seen(&self) -> BTreeMap<PublicKey, PeerSeen> {
        self.lock().seen.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_peers(&mut self, peers: Vec<PeerConfig>) {
        self.all_peers.clone_from(&peers);
        self.peers = Some(peers);
    }
}

impl PartialEq for Desk {
    /// Whether both are the same desk.
    fn eq(&self, other: &Desk) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Desk {}

/// Requests that wait at a time.
const REQUESTS_MAX: usize = 64;
