//! Deallocation of flows, by either side or because of a failure.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{Event, FlowKey};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner};
use carina_time::Instant;

use super::flow_allocator::{Codec, FlowAllocator, Role, State};

/// How many answering times an abandoned request waits for its answer.
const ABANDONED_TIMES: u64 = 4;

impl<C: Codec> FlowAllocator<C> {
    /// Ends a flow for its application. With an empty `reason`, what the application wrote is sent
    /// first. If that fails, a reliable flow fails by itself. A flow without retransmission might
    /// wait for a window for ever, if the answer to its request was lost, so it waits for R at
    /// most.
    pub(crate) fn deallocate(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        match &flow.state {
            State::Open if reason.is_empty() => {
                let is_reliable = flow.cube.retransmission;
                let until = (!is_reliable).then(|| now + flow.retransmission_time());
                flow.state = State::Draining { until };
                self.update_deadline(key);
                dt.finish(now, key);
            }
            State::Open => self.end(now, key, reason, dt),
            State::Draining { .. } | State::Abandoned { .. } => {}
            State::Pending { .. } => {
                let why = match reason {
                    "" => "the application does not want it",
                    why => why,
                };
                self.respond(now, key, Err(why.into()), dt);
            }
            State::Lingering { .. } => {
                self.remove(now, key);
                dt.close(now, Owner::Flow(key));
            }
            State::Requesting { .. } => self.abandon_request(now, key, dt),
        }
    }

    /// Continues the deallocation when all that the application wrote has been sent or
    /// acknowledged.
    pub(crate) fn drained(&mut self, now: Instant, key: FlowKey, dt: &mut dyn DataTransfer) {
        let flow = self.flows.get(&key);
        if flow.is_some_and(|flow| matches!(flow.state, State::Draining { .. })) {
            self.end(now, key, "", dt);
        }
    }

    /// Handles the failure of a flow's connection.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.send_end(now, key, reason);
        self.close(now, key, false, reason.to_string(), dt);
    }

    /// Handles the message by which the other side ends a flow; `reason` is empty if the other
    /// application closed the flow.
    ///
    /// # Errors
    /// The name of the counter for the discarded message.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        from: u64,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let until = now + self.profile().linger;
        let flow = self.flows.get_mut(&key).ok_or("end-of-no-flow")?;
        if flow.address != from {
            return Err("end-of-another");
        }
        match flow.state {
            State::Open => {
                let reason = reason.to_string();
                flow.state = State::Lingering { until, reason };
                self.update_deadline(key);
            }
            State::Draining { .. } | State::Abandoned { .. } => {
                self.remove(now, key);
                dt.close(now, Owner::Flow(key));
            }
            State::Lingering { .. } => {}
            State::Requesting { .. } | State::Pending { .. } => {
                let reason = format!("{} ended it", flow.member);
                self.close(now, key, false, reason, dt);
            }
        }
        Ok(())
    }

    /// Updates which flows have a reachable member at the other end.
    pub(crate) fn set_reachability(&mut self, now: Instant, can_reach: &dyn Fn(u64) -> bool) {
        let mut moved = Vec::new();
        for (key, flow) in &mut self.flows {
            let is_lost = !can_reach(flow.address);
            if is_lost != flow.unreachable.is_some() {
                flow.unreachable = is_lost.then_some(now);
                moved.push(*key);
            }
        }
        for key in moved {
            self.update_deadline(key);
        }
    }

    /// Handles all deadlines that have passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.send_repeats(now);
        while let Some(key) = self.pop_overdue(now) {
            let Some(flow) = self.flows.get(&key) else {
                continue;
            };
            if flow.lost_at().is_some_and(|at| at <= now) {
                let reason = format!("{} cannot be reached any more", flow.member);
                self.close(now, key, false, reason, dt);
                continue;
            }
            match &flow.state {
                State::Requesting { .. } => {
                    let reason = format!(
                        "{} did not answer: {:?} may be unknown there, or a message was lost",
                        flow.member, flow.remote
                    );
                    self.events.push_back(Event::Allocated {
                        flow: key,
                        result: Err(reason.into()),
                    });
                    self.abandon_request(now, key, dt);
                }
                State::Abandoned { .. } => {
                    self.remove(now, key);
                }
                State::Pending { .. } => {
                    let reason = "the application took too long to decide".to_string();
                    self.events.push_back(Event::Closed {
                        flow: key,
                        is_graceful: false,
                        reason: reason.clone(),
                    });
                    self.respond(now, key, Err(reason.into()), dt);
                }
                State::Lingering { reason, .. } => {
                    let reason = reason.clone();
                    self.close(now, key, reason.is_empty(), reason, dt);
                }
                State::Draining { until } if until.is_some_and(|until| until <= now) => {
                    self.end(now, key, "", dt);
                }
                State::Open | State::Draining { .. } => {}
            }
        }
    }

    /// Ends all flows, because the membership ends. With `tells`, it informs the other sides.
    pub(crate) fn end_all(
        &mut self,
        now: Instant,
        reason: &str,
        tells: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let keys: Vec<FlowKey> = self.flows.keys().copied().collect();
        for key in keys {
            if tells {
                self.send_end(now, key, reason);
            }
            self.close(now, key, false, reason.to_string(), dt);
        }
        self.cancel_repeats();
    }

    /// Ends the flows with the member at `address` that are not younger than `until`, without a
    /// message: the member has restarted, and the flows belong to its earlier incarnation. Returns
    /// the number of flows.
    pub(crate) fn forget_member(
        &mut self,
        now: Instant,
        address: u64,
        until: Instant,
        dt: &mut dyn DataTransfer,
    ) -> usize {
        let flows = self.flows.iter();
        let flows = flows.filter(|(_, flow)| flow.address == address && flow.since <= until);
        let keys: Vec<FlowKey> = flows.map(|(key, _)| *key).collect();
        for key in &keys {
            let member = self.flows.get(key).map(|flow| flow.member.clone());
            let reason = format!("{} has restarted", member.unwrap_or_default());
            self.close(now, *key, false, reason, dt);
        }
        keys.len()
    }

    /// Abandons a request. Its port-id stays in use until the answer has arrived.
    fn abandon_request(&mut self, now: Instant, key: FlowKey, dt: &mut dyn DataTransfer) {
        self.send_end(now, key, "");
        let until = now + self.profile().answer * ABANDONED_TIMES;
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.state = State::Abandoned { until };
            dt.close(now, Owner::Flow(key));
            self.update_deadline(key);
        }
    }

    /// Ends this side of a flow, and sends the end to the other side.
    pub(super) fn end(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.send_end(now, key, reason);
        if self.remove(now, key).is_some() {
            dt.close(now, Owner::Flow(key));
        }
    }

    /// Sends the end of a flow, unless the other side has already ended it.
    fn send_end(&mut self, now: Instant, key: FlowKey, reason: &str) {
        let Some(flow) = self.flows.get(&key) else {
            return;
        };
        let address = flow.address;
        let is_answered = flow.remote_port != 0 || flow.remote_cep.0 != 0;
        let message = match &flow.state {
            State::Open | State::Draining { .. } => Some(self.codec.end(flow, reason)),
            // The abandoned request was accepted after all.
            State::Abandoned { .. } if is_answered => Some(self.codec.end(flow, reason)),
            State::Requesting { .. } | State::Abandoned { .. } => self.codec.abandon(flow),
            State::Pending { request, .. } => {
                let mut message = self.codec.refuse(request, reason);
                message.invoke_id = flow.invoke_id;
                return self.send(address, message);
            }
            State::Lingering { .. } => None,
        };
        let Some(mut message) = message else {
            return;
        };
        let is_caller = flow.role == Role::Initiator;
        if self.profile().ends_are_numbered {
            message.invoke_id = self.invoke_id();
        }
        if is_caller {
            self.schedule_repeats(now, address, &message);
        }
        self.send(address, message);
    }

    /// Ends a flow because of the other side or a failure, and reports the end to the application.
    pub(super) fn close(
        &mut self,
        now: Instant,
        key: FlowKey,
        is_graceful: bool,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.get(&key) else {
            return;
        };
        match flow.state {
            State::Abandoned { .. } | State::Draining { .. } => {
                self.remove(now, key);
            }
            State::Requesting { .. } => {
                self.remove(now, key);
                self.events.push_back(Event::Allocated {
                    flow: key,
                    result: Err(reason.into()),
                });
            }
            _ => {
                self.remove_closed(now, key);
                self.events.push_back(Event::Closed {
                    flow: key,
                    is_graceful,
                    reason,
                });
            }
        }
        dt.close(now, Owner::Flow(key));
    }
}
