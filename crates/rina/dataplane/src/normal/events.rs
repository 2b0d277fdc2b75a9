//! Passes on the events of a normal IPCP's machine.

use carina_api::AppName;
use carina_engine::counters::{Row, Value};
use carina_engine::{Close, Links};
use carina_ipcp::{Command, Counters, DropReason, Event as MachineEvent, FlowKey, Reason};

use super::Normal;
use super::flows::{FlowState, NormalFlow};
use crate::event::Event;

impl Normal {
    /// Processes all pending events of the machine.
    pub(super) fn dispatch_events(&mut self, links: &mut Links) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                // Another member sent the name, so it may be any text.
                MachineEvent::Reachable { name } => {
                    if let Ok(name) = AppName::new(name) {
                        let ipcp = self.ipcp;
                        self.events.put(Event::PeerRegistered { ipcp, name });
                    }
                }
                MachineEvent::Unreachable { name } => {
                    if let Ok(name) = AppName::new(name) {
                        let ipcp = self.ipcp;
                        self.events.put(Event::PeerUnregistered { ipcp, name });
                    }
                }
                MachineEvent::Incoming {
                    flow: key,
                    local,
                    remote,
                    spec,
                } => self.incoming(key, local, remote, spec, links),
                MachineEvent::Allocated { flow: key, result } => self.allocated(key, result, links),
                MachineEvent::Closed {
                    flow: key,
                    is_graceful,
                    reason,
                } => self.closed(key, is_graceful, reason, links),
                MachineEvent::DropN1 { n1, reason } => self.drop_n1(n1, reason, links),
                event => {
                    let ipcp = self.ipcp;
                    self.events.put(Event::Member { ipcp, event });
                }
            }
        }
    }

    fn incoming(
        &mut self,
        key: FlowKey,
        local: String,
        remote: String,
        wire_spec: carina_wire::FlowSpec,
        links: &mut Links,
    ) {
        let (Ok(local), Ok(remote)) = (AppName::new(local), AppName::new(remote)) else {
            let answer = Err("not a name".into());
            return self
                .machine
                .handle(self.now, Command::Respond { flow: key, answer });
        };
        let name = format!("{local} < {remote} via ipcp {}", self.ipcp);
        let port = self.ports.add_incoming(self.ipcp, name);
        let spec = carina_api::FlowSpec::from(wire_spec);
        let flow = NormalFlow::new(port, FlowState::Offered, None, &spec);
        self.insert_flow(key, flow, links);
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec,
        });
    }

    fn allocated(&mut self, key: FlowKey, result: Result<(), Reason>, links: &mut Links) {
        if let Err(reason) = result {
            return self.request_ended(key, &reason, links);
        }
        let Some(flow) = self.flow_mut(key) else {
            return;
        };
        flow.state = FlowState::Open;
        let port = flow.port;
        self.row.add(Value::FlowsOpened, 1);
        self.roomy.push(key);
        self.events.put(Event::AllocateResult {
            port,
            result: Ok(()),
        });
    }

    /// Handles a pending request for a flow, from this system or from a peer, that has failed.
    pub(super) fn request_ended(&mut self, key: FlowKey, reason: &str, links: &mut Links) {
        let Some(flow) = self.remove_flow(key) else {
            return;
        };
        let reason = match reason {
            "" => "the other side refused without a reason".to_owned(),
            _ => reason.to_owned(),
        };
        match flow.links {
            Some(ends) => self.deny(flow.port, ends, reason, links),
            None => {
                let port = flow.port;
                self.ports.remove(port);
                self.events.put(Event::FlowClosed { port, reason });
            }
        }
    }

    fn closed(&mut self, key: FlowKey, is_graceful: bool, reason: String, links: &mut Links) {
        let Some(flow) = self.flow(key) else {
            return;
        };
        if matches!(flow.state, FlowState::Requested | FlowState::Offered) {
            return self.request_ended(key, &reason, links);
        }
        let reason = match (reason.as_str(), is_graceful) {
            ("", true) => "the peer closed the flow".to_owned(),
            ("", false) => "the flow failed".to_owned(),
            _ => reason,
        };
        let close = if is_graceful {
            Close::Graceful(reason)
        } else {
            Close::Failed(reason)
        };
        self.flow_closed(key, close, links);
    }
}

/// Adds to the row what the counters of the IPCP's state machine have increased by since the last
/// call. The row also contains the app's own counts of discarded packets.
pub(super) fn count(row: &Row, counters: &Counters, noted: &mut Counters) {
    row.set(Value::PdusIn, counters.pdus_received);
    row.set(Value::PdusOut, counters.pdus_sent);
    row.set(Value::PdusRelayed, counters.pdus_relayed);
    if counters.dropped_total() == noted.dropped_total() {
        return;
    }
    for (reason, total) in counters.drops() {
        row.add(value_of(reason), total - noted.dropped(reason));
    }
    noted.clone_from(counters);
}

fn value_of(reason: DropReason) -> Value {
    match reason {
        DropReason::HeaderShort
        | DropReason::HeaderVersion
        | DropReason::HeaderType
        | DropReason::HeaderReserved
        | DropReason::HeaderReservedType
        | DropReason::HeaderLength => Value::DropMalformed,
        DropReason::ProtectionShort => Value::DropProtectionShort,
        DropReason::ProtectionChecksum
        | DropReason::HeaderChecksum
        | DropReason::NeighbourChecksum => Value::DropProtectionChecksum,
        DropReason::ProtectionForged => Value::DropProtectionForged,
        DropReason::ProtectionReplayed => Value::DropProtectionReplayed,
        DropReason::ProtectionExpired => Value::DropProtectionExpired,
        DropReason::ProtectionInflated => Value::DropProtectionInflated,
        DropReason::ProtectionExhausted => Value::DropProtectionExhausted,
        DropReason::Forged => Value::DropForgedSource,
        DropReason::HopLimit => Value::DropHopLimit,
        DropReason::UnknownDestination => Value::DropNoRoute,
        DropReason::NoNeighbour | DropReason::N1Gone | DropReason::UnknownN1 => {
            Value::DropNoNeighbour
        }
        DropReason::UnknownCep | DropReason::NotConnected => Value::DropUnknownConnection,
        DropReason::UnknownCube => Value::DropUnknownCube,
        DropReason::NotMember => Value::DropNotMember,
        DropReason::TooLong | DropReason::SduTooLong | DropReason::Field => Value::DropTooLong,
        DropReason::QueueFull => Value::DropQueueFull,
        DropReason::ManagementQueueFull => Value::DropManagementQueueFull,
        DropReason::NoBuffer => Value::DropNoBuffer,
        DropReason::NoRoom => Value::DropNoRoom,
        DropReason::NoFlow => Value::DropFlowEnded,
        DropReason::Efcp => Value::DropEfcp,
        DropReason::Delimiting => Value::DropDelimiting,
    }
}
