//! How an hv app processes requests of the plane.

use carina_api::{AppName, FlowSpec, PortId};
use carina_dataplane::{Event, FlowLinks, Request};
use carina_engine::Links;
use carina_engine::counters::Value;
use carina_wire::vmpi::Outcome;

use super::{ChannelFlow, FlowState, Hv};

impl Hv {
    /// Processes all pending requests.
    pub(super) fn handle_requests(&mut self, links: &mut Links) {
        loop {
            let Some(request) = self.requests.pop() else {
                return;
            };
            match request {
                // The only possible error is too many names, which the manager prevents.
                Request::Register(name, _) => drop(self.hl.register(name.as_str())),
                Request::Unregister(name) => self.hl.unregister(name.as_str()),
                Request::Allocate {
                    port,
                    local,
                    remote,
                    spec,
                    links: ends,
                } => {
                    self.allocate(port, &local, &remote, &spec, ends, links);
                }
                Request::Respond { port, answer } => self.respond(port, answer, links),
                Request::Refuse { port, reason } => self.refuse(port, &reason),
                // Such requests are only for IPCPs that use N-1 flows.
                Request::Member(_) => {}
                Request::Remove => return self.remove(links),
            }
        }
    }

    fn allocate(
        &mut self,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: &FlowSpec,
        ends: FlowLinks,
        links: &mut Links,
    ) {
        let window = u32::try_from(ends.window).unwrap_or(u32::MAX);
        let spec = carina_wire::FlowSpec::from(*spec);
        match self
            .hl
            .allocate(local.as_str(), remote.as_str(), spec, window)
        {
            Ok(channel) => {
                let state = FlowState::Requested;
                self.set_cookies(ends, channel, links);
                self.insert_flow(
                    channel,
                    ChannelFlow {
                        port,
                        state,
                        links: Some(ends),
                        piece_max: 0,
                        sdu_bytes: 0,
                    },
                );
            }
            Err(error) => self.deny(port, ends, error.to_string(), links),
        }
    }

    /// Handles a failed allocation: closes the user's end and reports the reason to the manager.
    pub(super) fn deny(
        &mut self,
        port: PortId,
        ends: FlowLinks,
        reason: String,
        links: &mut Links,
    ) {
        ends.refuse(reason.clone(), links);
        self.ports.remove(port);
        self.events.put(Event::AllocateResult {
            port,
            result: Err(reason),
        });
    }

    fn respond(&mut self, port: PortId, answer: Result<FlowLinks, String>, links: &mut Links) {
        let channel = self.channels.get(&port).copied();
        let ends = match answer {
            Ok(ends) => ends,
            Err(reason) => return self.refuse(port, &reason),
        };
        let window = u32::try_from(ends.window).unwrap_or(u32::MAX);
        let accepted = channel.filter(|channel| self.hl.respond(*channel, Ok(window)).is_ok());
        let Some(channel) = accepted else {
            // The peer has cancelled the request in the meantime; the manager knows that.
            ends.refuse("the request no longer exists".to_owned(), links);
            self.ports.remove(port);
            return;
        };
        self.set_cookies(ends, channel, links);
        self.row.add(Value::FlowsOpened, 1);
        self.regrant.push(channel);
        if let Some(flow) = self.flow_mut(channel) {
            flow.links = Some(ends);
            flow.state = FlowState::Open;
        }
    }

    fn set_cookies(&self, ends: FlowLinks, channel: carina_wire::vmpi::Channel, links: &mut Links) {
        links.set_source_cookie(ends.to_flow, u32::from(channel.number()));
        links.set_sink_cookie(ends.from_flow, u32::from(channel.number()));
    }

    fn refuse(&mut self, port: PortId, reason: &str) {
        let Some(channel) = self.channels.get(&port).copied() else {
            return;
        };
        if self
            .flow(channel)
            .is_some_and(|flow| flow.state == FlowState::Offered)
        {
            // Cannot fail, because the request is pending.
            let _ = self.hl.respond(channel, Err((Outcome::Refused, reason)));
            self.remove_flow(channel);
            self.ports.remove(port);
        }
    }

    fn remove(&mut self, links: &mut Links) {
        self.hl
            .link_down("removed", "the IPC process was destroyed");
        self.dispatch_events(links);
        self.is_removed = true;
        self.is_connected = false;
        links.finish(self.id);
    }
}
