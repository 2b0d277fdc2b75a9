//! Port-ids, which are the keys of flows: which one is free, and which rests after its flow.

use carina_ipcp::api::FlowKey;
use carina_time::Instant;

use super::{Codec, Flow, FlowAllocator, Role};

impl<C: Codec> FlowAllocator<C> {
    /// The lowest port-id that is free and has rested.
    pub(super) fn free_key(&mut self, now: Instant) -> Option<FlowKey> {
        while let Some((_, port)) = self.resting.pop_front_if(|(until, _)| *until <= now) {
            self.free.insert(port);
        }
        if self.flows.len() + self.unknown_ends.len() >= self.profile.flows {
            return None;
        }
        let port = self.free.pop_first().unwrap_or_else(|| {
            self.next_port += 1;
            self.next_port - 1
        });
        Some(FlowKey(port))
    }

    pub(in crate::interop) fn remove(
        &mut self,
        now: Instant,
        key: FlowKey,
    ) -> Option<Flow<C::Request>> {
        let flow = self.take(key)?;
        self.resting.push_back((now + self.profile.rest, key.0));
        Some(flow)
    }

    /// As `remove`, for a flow of which [`Event::Closed`] follows: the key is not used again before
    /// its owner has that.
    pub(in crate::interop) fn remove_closed(
        &mut self,
        now: Instant,
        key: FlowKey,
    ) -> Option<Flow<C::Request>> {
        let flow = self.take(key)?;
        self.unknown_ends.insert(key, now + self.profile.rest);
        Some(flow)
    }

    /// The owner of the IPCP knows that a flow has ended.
    pub(crate) fn end_is_known(&mut self, key: FlowKey) {
        if let Some(until) = self.unknown_ends.remove(&key) {
            let at = self.resting.partition_point(|(other, _)| *other <= until);
            self.resting.insert(at, (until, key.0));
        }
    }

    fn take(&mut self, key: FlowKey) -> Option<Flow<C::Request>> {
        let flow = self.flows.remove(&key)?;
        match flow.role {
            Role::Initiator => {
                // Once answered, the invoke id may be that of a newer flow's request.
                if self.asked.get(&flow.invoke_id) == Some(&key) {
                    self.asked.remove(&flow.invoke_id);
                }
            }
            Role::Responder => {
                self.by_initiator.remove(&(flow.address, flow.remote_port));
            }
        }
        self.update_deadline(key);
        Some(flow)
    }
}
