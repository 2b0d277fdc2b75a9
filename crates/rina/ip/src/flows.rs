//! The flows of a member to destinations: which exist, which are requested, and which were refused.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::class::Class;
use crate::counters::Reason;
use crate::prefix::IpPrefix;

/// What a flow carries: packets from one prefix to another, of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The prefix of this member with the source.
    pub local: IpPrefix,
    /// The prefix of the other member with the destination.
    pub remote: IpPrefix,
    /// The class of the packets.
    pub class: Class,
}

/// Number of a flow, unique within the member.
pub type FlowId = u32;

/// The limits of [`FlowTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLimits {
    /// Largest number of flows, requested and open.
    pub flows_max: usize,
    /// Largest number of requests to destinations that no directory has.
    pub unknown_max: usize,
    /// Largest number of refusals to remember.
    pub refused_max: usize,
    /// How long the member waits after a refused request before it requests the same flow again.
    pub refused_for: Duration,
    /// Time without packets after which a flow is deallocated.
    pub idle: Duration,
}

/// The flows to destinations, by what they carry.
#[derive(Debug)]
pub(crate) struct FlowTable {
    limits: FlowLimits,
    ids: HashMap<FlowKey, FlowId>,
    flows: HashMap<FlowId, FlowEntry>,
    refused: HashMap<FlowKey, Instant>,
    /// Requests under way to destinations that no directory has.
    unknown: usize,
    last_id: FlowId,
}

#[derive(Debug)]
struct FlowEntry {
    key: FlowKey,
    used_at: Instant,
    /// The flow is requested to a destination that no directory has.
    is_unknown: bool,
}

/// Whether the member must request a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The flow exists or is requested.
    Known(FlowId),
    /// The flow is new: the member must request it now.
    New(FlowId),
}

impl FlowTable {
    pub(crate) fn new(limits: FlowLimits) -> FlowTable {
        FlowTable {
            limits,
            ids: HashMap::new(),
            flows: HashMap::new(),
            refused: HashMap::new(),
            unknown: 0,
            last_id: 0,
        }
    }

    /// Finds the flow for a packet, or makes an entry for a new one. `is_unknown`: no directory has
    /// the destination.
    pub(crate) fn find(
        &mut self,
        key: FlowKey,
        is_unknown: bool,
        now: Instant,
    ) -> Result<Found, Reason> {
        if let Some(id) = self.ids.get(&key) {
            if let Some(entry) = self.flows.get_mut(id) {
                entry.used_at = now;
            }
            return Ok(Found::Known(*id));
        }
        if self.refused.get(&key).is_some_and(|until| now < *until) {
            return Err(Reason::FlowRefused);
        }
        if self.flows.len() >= self.limits.flows_max {
            return Err(Reason::FlowsFull);
        }
        if is_unknown {
            if self.unknown >= self.limits.unknown_max || self.is_full_of_refusals(now) {
                return Err(Reason::RequestsLimited);
            }
            self.unknown += 1;
        }
        // A number is used again only after 4 billion flows.
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        let entry = FlowEntry {
            key,
            used_at: now,
            is_unknown,
        };
        self.ids.insert(key, id);
        self.flows.insert(id, entry);
        Ok(Found::New(id))
    }

    /// Finds the flow for a packet if the flow exists or is requested, and notes its use.
    pub(crate) fn known(&mut self, key: FlowKey, now: Instant) -> Option<FlowId> {
        let id = *self.ids.get(&key)?;
        self.flows.get_mut(&id)?.used_at = now;
        Some(id)
    }

    /// Whether no further refusal can be remembered.
    fn is_full_of_refusals(&mut self, now: Instant) -> bool {
        if self.refused.len() < self.limits.refused_max {
            return false;
        }
        self.refused.retain(|_, until| now < *until);
        self.refused.len() >= self.limits.refused_max
    }

    /// Notes that a requested flow is open.
    pub(crate) fn opened(&mut self, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(&id)
            && std::mem::take(&mut entry.is_unknown)
        {
            self.unknown -= 1;
        }
    }

    /// Notes that a requested flow was refused: it is not requested again for a while.
    pub(crate) fn refused(&mut self, id: FlowId, now: Instant) {
        if let Some(key) = self.remove(id)
            && !self.is_full_of_refusals(now)
        {
            self.refused.insert(key, now + self.limits.refused_for);
        }
    }

    /// Forgets refusals, for example because the directory has changed.
    pub(crate) fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// Removes a flow. Returns what it carried.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<FlowKey> {
        let entry = self.flows.remove(&id)?;
        self.ids.remove(&entry.key);
        self.unknown -= usize::from(entry.is_unknown);
        Some(entry.key)
    }

    /// Removes the flows that have been idle for too long, and returns them.
    pub(crate) fn remove_idle(&mut self, now: Instant) -> Vec<FlowId> {
        let idle = self.limits.idle;
        let old = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.used_at + idle <= now);
        let old: Vec<FlowId> = old.map(|(id, _)| *id).collect();
        for id in &old {
            self.remove(*id);
        }
        old
    }

    /// What a flow carries.
    pub(crate) fn key(&self, id: FlowId) -> Option<FlowKey> {
        self.flows.get(&id).map(|entry| entry.key)
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }
}
