//! Unanswered requests.

use alloc::collections::BTreeMap;

use crate::opcode::Opcode;

/// A request that will not be answered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Invoke id of the request.
    pub invoke_id: i32,
    /// Operation of the request.
    pub opcode: Opcode,
    /// Whether the time limit has passed; otherwise the connection has ended.
    pub is_timeout: bool,
}

/// Unanswered requests of one direction, by invoke id. Their number is limited.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    requests: BTreeMap<i32, Request>,
    max: usize,
}

/// State of an unanswered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub opcode: Opcode,
    /// Time at which the request is given up, in nanoseconds.
    pub until: u64,
    /// Whether this is a read for which M_CANCELREAD was sent.
    pub is_cancelled: bool,
    /// Whether this is a cancelled read whose last answer has arrived all the same.
    pub is_complete: bool,
}

impl Pending {
    pub(crate) fn new(max: usize) -> Pending {
        Pending {
            requests: BTreeMap::new(),
            max,
        }
    }

    /// Adds a request. Returns false if the limit is reached or the id is in use.
    pub(crate) fn add(&mut self, invoke_id: i32, opcode: Opcode, until: u64) -> bool {
        if self.requests.len() >= self.max || self.requests.contains_key(&invoke_id) {
            return false;
        }
        let request = Request {
            opcode,
            until,
            is_cancelled: false,
            is_complete: false,
        };
        self.requests.insert(invoke_id, request);
        true
    }

    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= self.max
    }

    pub(crate) fn get(&self, invoke_id: i32) -> Option<&Request> {
        self.requests.get(&invoke_id)
    }

    pub(crate) fn get_mut(&mut self, invoke_id: i32) -> Option<&mut Request> {
        self.requests.get_mut(&invoke_id)
    }

    pub(crate) fn remove(&mut self, invoke_id: i32) {
        self.requests.remove(&invoke_id);
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Time at which the first request ends without an answer, on the caller's clock; `None`
    /// without requests.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.requests.values().map(|request| request.until).min()
    }

    /// Removes and returns a request whose time limit has passed.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<(i32, Request)> {
        let found = self.requests.iter().find(|(_, r)| r.until <= now);
        let (id, request) = found.map(|(id, request)| (*id, *request))?;
        self.requests.remove(&id);
        Some((id, request))
    }

    /// Removes and returns any request.
    pub(crate) fn take_any(&mut self) -> Option<(i32, Request)> {
        self.requests.pop_first()
    }
}
