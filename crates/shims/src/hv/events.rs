//! What the VMPI-HL tells an hv app, and what becomes of it.

use carina_api::AppName;
use carina_engine::counters::Value;
use carina_engine::{Close, Links};
use carina_vmpi::hl::{CloseReason, Event as Told};
use carina_wire::vmpi::{Channel, Outcome};

use super::{Hv, Line, LineState};
use crate::command::Event;
use crate::hub::{Place, free_port};

impl Hv {
    /// Acts on everything the endpoint has to tell.
    pub(super) fn tell(&mut self, links: &mut Links) {
        while let Some(told) = self.hl.poll_event() {
            match told {
                Told::Up { peer, .. } => {
                    self.row.add(Value::LinksUp, 1);
                    self.events.put(Event::LinkUp {
                        ipcp: self.ipcp,
                        peer,
                    });
                }
                Told::Down { reason, .. } => {
                    self.row.add(Value::LinksDown, 1);
                    self.events.put(Event::LinkDown {
                        ipcp: self.ipcp,
                        reason,
                    });
                }
                // The endpoint has checked the names by the same rules.
                Told::PeerRegistered { name } => {
                    if let Ok(name) = AppName::new(name) {
                        self.events.put(Event::PeerRegistered {
                            ipcp: self.ipcp,
                            name,
                        });
                    }
                }
                Told::PeerUnregistered { name } => {
                    if let Ok(name) = AppName::new(name) {
                        self.events.put(Event::PeerUnregistered {
                            ipcp: self.ipcp,
                            name,
                        });
                    }
                }
                Told::Incoming {
                    channel,
                    spec,
                    source,
                    destination,
                } => {
                    self.incoming(channel, &spec, source, destination);
                }
                Told::Allocated { channel } => self.allocated(channel),
                Told::Denied {
                    channel, reason, ..
                } => self.denied(channel, reason, links),
                Told::Closed { channel, reason } => self.closed(channel, reason, links),
                Told::Credit { channel } => {
                    self.regrant.push(channel);
                    links.wake(self.id);
                }
            }
        }
    }

    fn incoming(
        &mut self,
        channel: Channel,
        wire_spec: &carina_wire::FlowSpec,
        source: String,
        destination: String,
    ) {
        let (Ok(local), Ok(remote)) = (AppName::new(destination), AppName::new(source)) else {
            let _ = self
                .hl
                .respond(channel, Err((Outcome::Refused, "not a name")));
            return;
        };
        let port = free_port(&self.directory);
        self.put_line(
            channel,
            Line {
                port,
                state: LineState::Offered,
                wires: None,
                piece_max: 0,
                sdu_bytes: 0,
            },
        );
        self.directory.borrow_mut().insert(
            port,
            Place {
                ipcp: Some(self.ipcp),
                name: format!("{local} < {remote} via ipcp {}", self.ipcp),
                holder: None,
            },
        );
        let spec = carina_api::FlowSpec::from(*wire_spec);
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec,
        });
    }

    fn allocated(&mut self, channel: Channel) {
        self.regrant.push(channel);
        self.row.add(Value::FlowsOpened, 1);
        if let Some(line) = self.line_mut(channel) {
            line.state = LineState::Open;
            let port = line.port;
            self.events.put(Event::AllocateResult {
                port,
                result: Ok(()),
            });
        }
    }

    fn denied(&mut self, channel: Channel, reason: String, links: &mut Links) {
        if let Some(Line {
            port,
            wires: Some(wires),
            ..
        }) = self.take_line(channel)
        {
            let reason = match reason.as_str() {
                "" => "the peer refused without a reason".to_owned(),
                _ => reason,
            };
            self.deny(port, wires, reason, links);
        }
    }

    fn closed(&mut self, channel: Channel, reason: CloseReason, links: &mut Links) {
        let Some(line) = self.take_line(channel) else {
            return;
        };
        let close = match reason {
            CloseReason::Peer(text) if text.is_empty() => {
                Close::Graceful("the peer closed it".to_owned())
            }
            CloseReason::Peer(text) | CloseReason::LinkDown(text) => Close::Failed(text),
        };
        match (line.state, line.wires) {
            (LineState::Asked, Some(wires)) => {
                self.deny(line.port, wires, close.reason().to_owned(), links);
            }
            (LineState::Open, Some(wires)) => {
                self.row.add(Value::FlowsClosed, 1);
                links.close(wires.to_flow, close);
                let lost = links.disconnect(wires.from_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            _ => {
                self.directory.borrow_mut().remove(&line.port);
                let reason = close.reason().to_owned();
                self.events.put(Event::FlowClosed {
                    port: line.port,
                    reason,
                });
            }
        }
    }
}
