//! What the machine of a normal IPCP tells, and what becomes of it.

use carina_api::AppName;
use carina_engine::counters::{Row, Value};
use carina_engine::{Close, Links};
use carina_ipcp::{Command, Counters, DropReason, Event as Told, FlowKey};

use super::Normal;
use super::lines::{Line, LineState};
use crate::command::Event;
use crate::hub::{Place, free_port};

impl Normal {
    /// Acts on everything the machine has to tell.
    pub(super) fn tell(&mut self, links: &mut Links) {
        while let Some(told) = self.member.poll_event() {
            match told {
                // Names of other members, who may call themselves anything.
                Told::Reachable { name } => {
                    if let Ok(name) = AppName::new(name) {
                        let ipcp = self.ipcp;
                        self.events.put(Event::PeerRegistered { ipcp, name });
                    }
                }
                Told::Unreachable { name } => {
                    if let Ok(name) = AppName::new(name) {
                        let ipcp = self.ipcp;
                        self.events.put(Event::PeerUnregistered { ipcp, name });
                    }
                }
                Told::Incoming {
                    flow,
                    local,
                    remote,
                    spec,
                } => self.incoming(flow, local, remote, spec, links),
                Told::Allocated { flow, result } => self.allocated(flow, result, links),
                Told::Closed {
                    flow,
                    is_graceful,
                    reason,
                } => self.closed(flow, is_graceful, reason, links),
                Told::DropN1 { n1, reason } => self.drop_n1(n1, reason, links),
                event => {
                    let ipcp = self.ipcp;
                    self.events.put(Event::Member { ipcp, event });
                }
            }
        }
    }

    fn incoming(
        &mut self,
        flow: FlowKey,
        local: String,
        remote: String,
        wire_spec: carina_wire::FlowSpec,
        links: &mut Links,
    ) {
        let (Ok(local), Ok(remote)) = (AppName::new(local), AppName::new(remote)) else {
            let answer = Err("not a name".to_owned());
            return self
                .member
                .handle(self.now, Command::Respond { flow, answer });
        };
        let port = free_port(&self.directory);
        let spec = carina_api::FlowSpec::from(wire_spec);
        let line = Line::new(port, LineState::Offered, None, &spec);
        self.put_line(flow, line, links);
        self.directory.borrow_mut().insert(
            port,
            Place {
                ipcp: Some(self.ipcp),
                name: format!("{local} < {remote} via ipcp {}", self.ipcp),
                holder: None,
            },
        );
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec,
        });
    }

    fn allocated(&mut self, flow: FlowKey, result: Result<(), String>, links: &mut Links) {
        if let Err(reason) = result {
            return self.request_ended(flow, &reason, links);
        }
        let Some(line) = self.line_mut(flow) else {
            return;
        };
        line.state = LineState::Open;
        let port = line.port;
        self.row.add(Value::FlowsOpened, 1);
        self.roomy.push(flow);
        self.events.put(Event::AllocateResult {
            port,
            result: Ok(()),
        });
    }

    /// A flow that was asked for, here or there, does not come about.
    pub(super) fn request_ended(&mut self, flow: FlowKey, reason: &str, links: &mut Links) {
        let Some(line) = self.take_line(flow) else {
            return;
        };
        let reason = match reason {
            "" => "the other side refused without a reason".to_owned(),
            _ => reason.to_owned(),
        };
        match line.wires {
            Some(wires) => self.deny(line.port, wires, reason, links),
            None => {
                let port = line.port;
                self.directory.borrow_mut().remove(&port);
                self.events.put(Event::FlowClosed { port, reason });
            }
        }
    }

    fn closed(&mut self, flow: FlowKey, is_graceful: bool, reason: String, links: &mut Links) {
        let Some(line) = self.line(flow) else {
            return;
        };
        if matches!(line.state, LineState::Asked | LineState::Offered) {
            return self.request_ended(flow, &reason, links);
        }
        let reason = match (reason.as_str(), is_graceful) {
            ("", true) => "the peer closed it".to_owned(),
            ("", false) => "the flow failed".to_owned(),
            _ => reason,
        };
        let close = match is_graceful {
            true => Close::Graceful(reason),
            false => Close::Failed(reason),
        };
        self.flow_closed(flow, close, links);
    }
}

/// Copies the machine's counters into the row. What the app discards itself comes on top.
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
        DropReason::ProtectionChecksum | DropReason::HeaderChecksum => {
            Value::DropProtectionChecksum
        }
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
