//! Dispatches the events of the VMPI-HL endpoint.

use carina_api::AppName;
use carina_dataplane::Event;
use carina_engine::counters::Value;
use carina_engine::{Close, Links};
use carina_vmpi::hl::{CloseReason, Event as HlEvent};
use carina_wire::vmpi::{Channel, Outcome};

use super::{ChannelFlow, FlowState, Hv};

impl Hv {
    /// Processes all pending events of the endpoint.
    pub(super) fn dispatch_events(&mut self, links: &mut Links) {
        while let Some(event) = self.hl.poll_event() {
            match event {
                HlEvent::Up { peer, .. } => {
                    self.row.add(Value::LinksUp, 1);
                    self.events.put(Event::LinkUp {
                        ipcp: self.ipcp,
                        peer,
                    });
                }
                HlEvent::Down { reason, .. } => {
                    self.row.add(Value::LinksDown, 1);
                    self.events.put(Event::LinkDown {
                        ipcp: self.ipcp,
                        reason,
                    });
                }
                // The endpoint has already checked names by the same rules.
                HlEvent::PeerRegistered { name } => {
                    if let Ok(name) = AppName::new(name) {
                        self.events.put(Event::PeerRegistered {
                            ipcp: self.ipcp,
                            name,
                        });
                    }
                }
                HlEvent::PeerUnregistered { name } => {
                    if let Ok(name) = AppName::new(name) {
                        self.events.put(Event::PeerUnregistered {
                            ipcp: self.ipcp,
                            name,
                        });
                    }
                }
                HlEvent::Incoming {
                    channel,
                    spec,
                    source,
                    destination,
                } => {
                    self.incoming(channel, &spec, source, destination);
                }
                HlEvent::Allocated { channel } => self.allocated(channel),
                HlEvent::Denied {
                    channel, reason, ..
                } => self.denied(channel, reason, links),
                HlEvent::Closed { channel, reason } => self.closed(channel, reason, links),
                HlEvent::Credit { channel } => {
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
        let name = format!("{local} < {remote} via ipcp {}", self.ipcp);
        let port = self.ports.add_incoming(self.ipcp, name);
        self.insert_flow(
            channel,
            ChannelFlow {
                port,
                state: FlowState::Offered,
                links: None,
                piece_max: 0,
                sdu_bytes: 0,
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
        if let Some(flow) = self.flow_mut(channel) {
            flow.state = FlowState::Open;
            let port = flow.port;
            self.events.put(Event::AllocateResult {
                port,
                result: Ok(()),
            });
        }
    }

    fn denied(&mut self, channel: Channel, reason: String, links: &mut Links) {
        if let Some(ChannelFlow {
            port,
            links: Some(ends),
            ..
        }) = self.remove_flow(channel)
        {
            let reason = match reason.as_str() {
                "" => "the peer refused without a reason".to_owned(),
                _ => reason,
            };
            self.deny(port, ends, reason, links);
        }
    }

    fn closed(&mut self, channel: Channel, reason: CloseReason, links: &mut Links) {
        let Some(flow) = self.remove_flow(channel) else {
            return;
        };
        let close = match reason {
            CloseReason::Peer(text) if text.is_empty() => {
                Close::Graceful("the peer closed the flow".to_owned())
            }
            CloseReason::Peer(text) | CloseReason::LinkDown(text) => Close::Failed(text),
        };
        match (flow.state, flow.links) {
            (FlowState::Requested, Some(ends)) => {
                self.deny(flow.port, ends, close.reason().to_owned(), links);
            }
            (FlowState::Open, Some(ends)) => {
                self.row.add(Value::FlowsClosed, 1);
                links.close(ends.to_flow, close);
                let lost = links.disconnect(ends.from_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            _ => {
                self.ports.remove(flow.port);
                let reason = close.reason().to_owned();
                self.events.put(Event::FlowClosed {
                    port: flow.port,
                    reason,
                });
            }
        }
    }
}
