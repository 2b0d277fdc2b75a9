//! Allocation of port-ids, which are the keys of flows. A freed port-id is held back for a while.

use carina_ipcp::api::FlowKey;
use carina_time::Instant;

use super::{Codec, Flow, FlowAllocator, Role};

impl<C: Codec> FlowAllocator<C> {
    /// The lowest free port-id that is not held back. `None` when there are too many flows.
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

    /// Like `remove`, for a flow whose [`Event::Closed`] follows. The key is not reused until the
    /// owner of the IPCP has received that event.
    pub(in crate::interop) fn remove_closed(
        &mut self,
        now: Instant,
        key: FlowKey,
    ) -> Option<Flow<C::Request>> {
        let flow = self.take(key)?;
        self.unknown_ends.insert(key, now + self.profile.rest);
        Some(flow)
    }

    /// Releases the key of a flow, since the owner of the IPCP has received the flow's end.
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
                // After the answer, the same invoke id may belong to a newer flow's request.
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
