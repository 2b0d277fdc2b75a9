//! Passes requests and orders between the engine's thread and the thread that decides about users.
//!
//! The engine's thread never waits long: the lock is only held while a few values are copied.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::access_point::{PeerConfig, PeerSeen};
use crate::control::{Reply, Request};
use crate::key::PublicKey;

/// A mailbox between the engine's thread and the thread that decides about users: requests in one
/// direction, answers and the set of users in the other. Clones refer to the same mailbox.
#[derive(Clone, Debug, Default)]
pub struct AccessMailbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Asked>,
    answers: Answers,
    /// A new set of users, until the engine's thread takes it.
    peers: Option<Vec<PeerConfig>>,
    /// The current set of users, for an engine's thread that starts.
    all_peers: Vec<PeerConfig>,
    seen: BTreeMap<PublicKey, PeerSeen>,
    is_closed: bool,
}

/// A request of a user's system, with the session in which it came and the system's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Index of the session to which the answer is sent.
    pub index: u32,
    /// IP address, outside the tunnel, from which the request came.
    pub from: IpAddr,
    /// Public key of the user's system that sent the request.
    pub key: PublicKey,
    /// The request that the user's system sent, such as joining with a token.
    pub request: Request,
}

/// Messages to send to users: answers to their requests, and messages that answer no request.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Answers, each with the index of the session in which the request came.
    pub replies: Vec<(u32, Reply)>,
    /// Messages that answer no request, such as changed settings. Each has the public key of the
    /// user's system to which it is sent.
    pub news: Vec<(PublicKey, Reply)>,
}

/// What the thread that decides about users wants the engine's thread to send and to change.
#[derive(Debug, Default)]
pub struct Orders {
    /// Answers and messages, to be sent before the set of users changes.
    pub answers: Answers,
    /// The new set of users; `None` if it has not changed.
    pub peers: Option<Vec<PeerConfig>>,
}

impl AccessMailbox {
    /// An open mailbox whose users are `peers`, who joined before.
    #[must_use]
    pub fn with_peers(peers: Vec<PeerConfig>) -> AccessMailbox {
        let mailbox = AccessMailbox::default();
        mailbox.lock().all_peers = peers;
        mailbox
    }

    /// Adds a request; returns false if too many are waiting.
    pub fn ask(&self, asked: Asked) -> bool {
        let mut state = self.lock();
        let has_room = state.requests.len() < REQUESTS_MAX;
        if has_room {
            state.requests.push_back(asked);
            self.0.rung.notify_all();
        }
        has_room
    }

    /// The next request, waiting for at most `wait`; `None` if none came or the mailbox is closed.
    #[must_use]
    pub fn next(&self, wait: Duration) -> Option<Asked> {
        let mut state = self.lock();
        if state.requests.is_empty() && !state.is_closed {
            let waited = self.0.rung.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.requests.pop_front()
    }

    /// Closes the mailbox, which also ends waiting in [`AccessMailbox::next`].
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.0.rung.notify_all();
    }

    /// Whether the mailbox is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Answers a request. If `peers` is given, the set of users changes after the answer was sent.
    pub fn answer(&self, index: u32, reply: Reply, peers: Option<Vec<PeerConfig>>) {
        let mut state = self.lock();
        state.answers.replies.push((index, reply));
        if let Some(peers) = peers {
            state.set_peers(peers);
        }
    }

    /// Sets the users. The engine's thread sends `news` before it takes the new set.
    pub fn set_peers(&self, peers: Vec<PeerConfig>, news: Vec<(PublicKey, Reply)>) {
        let mut state = self.lock();
        state.answers.news.extend(news);
        state.set_peers(peers);
    }

    /// Takes the orders since the last call, for the engine's thread.
    #[must_use]
    pub fn take_orders(&self) -> Orders {
        let mut state = self.lock();
        Orders {
            answers: std::mem::take(&mut state.answers),
            peers: state.peers.take(),
        }
    }

    /// All users, for an engine's thread that starts.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerConfig> {
        let mut state = self.lock();
        state.peers = None;
        state.all_peers.clone()
    }

    /// Stores what the engine's thread knows about the users' systems, for [`AccessMailbox::seen`].
    pub fn see(&self, seen: impl Iterator<Item = (PublicKey, PeerSeen)>) {
        self.lock().seen = seen.collect();
    }

    /// What the engine's thread last stored about the users' systems, by public key.
    #[must_use]
    pub fn seen(&self) -> BTreeMap<PublicKey, PeerSeen> {
        self.lock().seen.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_peers(&mut self, peers: Vec<PeerConfig>) {
        self.all_peers.clone_from(&peers);
        self.peers = Some(peers);
    }
}

impl PartialEq for AccessMailbox {
    /// Whether both values refer to the same mailbox.
    fn eq(&self, other: &AccessMailbox) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AccessMailbox {}

/// Largest number of requests that wait.
const REQUESTS_MAX: usize = 64;
