//! Requests that wait for their answer.

use alloc::collections::BTreeMap;

use crate::opcode::Opcode;

/// A request that will have no answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its invoke id.
    pub invoke_id: i32,
    /// What it asked for.
    pub opcode: Opcode,
    /// The time was up; otherwise the connection ended.
    pub is_timeout: bool,
}

/// Requests by invoke id, of one direction, as many as allowed.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    requests: BTreeMap<i32, Request>,
    max: usize,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub opcode: Opcode,
    /// When waiting is over, in nanoseconds.
    pub until: u64,
    /// A read whose cancellation was asked for.
    pub is_cancelled: bool,
    /// A cancelled read whose last answer was under way already.
    pub is_complete: bool,
}

impl Pending {
    pub(crate) fn new(max: usize) -> Pending {
        Pending {
            requests: BTreeMap::new(),
            max,
        }
    }

    /// Adds a request; false when there are as many as allowed or the id is taken.
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

    /// When the first of them is given up.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.requests.values().map(|request| request.until).min()
    }

    /// Takes out one whose time is up.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<(i32, Request)> {
        let found = self.requests.iter().find(|(_, r)| r.until <= now);
        let (id, request) = found.map(|(id, request)| (*id, *request))?;
        self.requests.remove(&id);
        Some((id, request))
    }

    /// Takes out any.
    pub(crate) fn take_any(&mut self) -> Option<(i32, Request)> {
        self.requests.pop_first()
    }
}
