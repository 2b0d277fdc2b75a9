//! Deallocation of flows, by either side or because of a failure.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, FlowKey};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner};
use carina_time::Instant;

use super::super::Management;
use super::super::entries::FORGET_AFTER;
use super::super::flow_table::{self, Role, State};
use super::super::requester::Requester;
use super::super::schema::{self, FlowEnd, Object, result};
use super::{LINGER, exchange};

impl Management {
    pub(in super::super) fn deallocate(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        match &flow.state {
            State::Open { .. } if reason.is_empty() => {
                flow.state = State::Draining;
                dt.finish(now, key);
            }
            State::Draining => {}
            State::Pending { .. } => {
                let why = if reason.is_empty() {
                    "the application does not want it"
                } else {
                    &reason
                };
                let why = why.to_string();
                self.respond(now, key, Err(why.into()), dt);
            }
            State::Resolving | State::Lingering { .. } => {
                // The key will be reused for another flow.
                self.queries.cancel_lookup(key);
                self.flows.remove(key);
                dt.close(now, Owner::Flow(key));
            }
            State::Requesting { .. } | State::Open { .. } => {
                self.end_flow(now, key, false, &reason, dt)
            }
        }
    }

    /// Continues the deallocation when all that the application wrote has been sent or
    /// acknowledged.
    pub(in super::super) fn flow_drained(
        &mut self,
        now: Instant,
        key: FlowKey,
        dt: &mut dyn DataTransfer,
    ) {
        let flow = self.flows.flows.get(&key);
        if flow.is_some_and(|flow| matches!(flow.state, State::Draining)) {
            self.end_flow(now, key, true, "", dt);
        }
    }

    /// Ends this side of a flow and sends M_DELETE to the other side.
    fn end_flow(
        &mut self,
        now: Instant,
        key: FlowKey,
        is_graceful: bool,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        dt.close(now, Owner::Flow(key));
        if flow.address != 0 {
            self.send_delete(now, flow.address, &flow.name, is_graceful, reason, dt);
        }
    }

    /// Sends M_DELETE. It is repeated until it is answered, or until the other side must have
    /// detected the end itself.
    pub(super) fn send_delete(
        &mut self,
        now: Instant,
        address: u64,
        name: &str,
        is_graceful: bool,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let value = FlowEnd {
            is_graceful,
            reason: reason.to_string(),
            incarnation: self.incarnation,
        };
        let object = Object::Flow(Some(name.to_string()));
        let mut message = schema::request(Opcode::Delete, &object, Some(schema::encode(&value)));
        message.invoke_id = self.invoke_id();
        self.send_to(now, address, message.encode(), dt);
        let mut exchange = exchange(now, address, message);
        // Repeated as long as the other member remembers this one: a flow that is idle or has no
        // retransmission does not fail by itself when it is cut off.
        exchange.give_up_at = now + FORGET_AFTER;
        if self.flows.pending_deletes.len() < flow_table::FLOWS_MAX {
            self.flows
                .pending_deletes
                .insert(exchange.message.invoke_id, exchange);
        }
    }

    /// Handles M_DELETE: the other side has ended the flow.
    pub(in super::super) fn on_flow_delete(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let end = schema::decode::<FlowEnd>(schema::bytes(message));
        let Some(end) = end else {
            let reason = "the end of the flow is malformed";
            return self.reject_to(now, requester, message, result::VALUE, reason, dt);
        };
        self.respond_to(now, requester, &message.answer(), dt);
        self.note_early_delete(requester, name);
        let own = requester.name == self.own;
        for role in [Role::Initiator, Role::Responder] {
            let Some(key) = self.flows.find(name, role) else {
                continue;
            };
            let Some(flow) = self.flows.flows.get(&key) else {
                continue;
            };
            // Both ends may be at this member; then the end that sent M_DELETE is already removed.
            let is_other =
                flow.member == requester.name && (!own || flow.address == requester.address);
            let is_ended = matches!(flow.state, State::Lingering { .. });
            if is_other && !is_ended {
                self.on_peer_deallocation(now, key, &end, dt);
            }
        }
    }

    /// Records a flow whose M_DELETE arrived before its request, or before the last copy of the
    /// request. No application is asked about such a request any more.
    fn note_early_delete(&mut self, requester: &Requester, name: &str) {
        let caller = name.split_once('-').map(|(address, _)| address);
        let is_callers = caller.and_then(|address| address.parse().ok()) == Some(requester.address);
        if is_callers && self.flows.find(name, Role::Responder).is_none() {
            self.flows.ended.insert(name.to_string());
        }
    }

    fn on_peer_deallocation(
        &mut self,
        now: Instant,
        key: FlowKey,
        end: &FlowEnd,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        let (is_graceful, reason) = (end.is_graceful, end.reason.clone());
        match flow.state {
            State::Requesting { .. } | State::Resolving => {
                let reason = format!("{} ended it: {reason}", flow.member);
                self.allocation_failed(now, key, reason, dt);
            }
            State::Draining => {
                self.flows.remove(key);
                dt.close(now, Owner::Flow(key));
            }
            State::Open { .. } if is_graceful && !flow.cube.retransmission => {
                let until = now + LINGER;
                flow.state = State::Lingering {
                    until,
                    is_graceful,
                    reason,
                };
                self.flows.touch(key);
            }
            _ => self.close_flow(now, key, is_graceful, reason, dt),
        }
    }

    /// Ends a flow because of the other side or a failure, and reports the end to the application.
    pub(super) fn close_flow(
        &mut self,
        now: Instant,
        key: FlowKey,
        is_graceful: bool,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(old) = self.flows.flows.get(&key) else {
            return;
        };
        let is_requested = matches!(old.state, State::Resolving | State::Requesting { .. });
        let is_reported = !is_requested && !matches!(old.state, State::Draining);
        if is_reported {
            self.flows.remove_closed(key);
        } else {
            self.flows.remove(key);
        }
        dt.close(now, Owner::Flow(key));
        if is_requested {
            self.log.push(Event::Allocated {
                flow: key,
                result: Err(reason.into()),
            });
        } else if is_reported {
            self.log.push(Event::Closed {
                flow: key,
                is_graceful,
                reason,
            });
        }
    }

    /// Handles the failure of a flow's connection.
    pub(in super::super) fn flow_failed(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        self.log.count("flows-failed");
        let (address, name) = (flow.address, flow.name.clone());
        self.close_flow(now, key, false, reason.to_string(), dt);
        self.send_delete(now, address, &name, false, reason, dt);
    }

    /// Ends all flows, because this IPCP is no longer a member. With `tells`, it informs the other
    /// sides.
    pub(in super::super) fn end_all_flows(
        &mut self,
        now: Instant,
        reason: &str,
        tells: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let keys: Vec<FlowKey> = self.flows.flows.keys().copied().collect();
        for key in keys {
            let Some(flow) = self.flows.flows.get(&key) else {
                continue;
            };
            let (address, name) = (flow.address, flow.name.clone());
            self.close_flow(now, key, false, reason.to_string(), dt);
            if tells && address != 0 {
                self.send_delete(now, address, &name, false, reason, dt);
            }
        }
        if !tells {
            self.flows.pending_deletes.clear();
            self.flows.refusals.clear();
        }
    }
}
