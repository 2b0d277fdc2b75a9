//! What the plane orders an hv app to do.

use carina_api::{AppName, FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, Links};
use carina_wire::vmpi::Outcome;

use super::{Hv, Line, LineState};
use crate::command::Event;
use crate::hub::{Order, Wires};

impl Hv {
    /// Carries out all waiting orders.
    pub(super) fn obey(&mut self, links: &mut Links) {
        loop {
            let Some(order) = self.orders.borrow_mut().pop_front() else {
                return;
            };
            match order {
                // Too many names is the only other error, and the manager limits them.
                Order::Register(name) => drop(self.hl.register(name.as_str())),
                Order::Unregister(name) => self.hl.unregister(name.as_str()),
                Order::Allocate {
                    port,
                    local,
                    remote,
                    spec,
                    wires,
                } => {
                    self.allocate(port, &local, &remote, &spec, wires, links);
                }
                Order::Respond { port, answer } => self.respond(port, answer, links),
                Order::Refuse { port, reason } => self.refuse(port, &reason),
                Order::Remove => return self.remove(links),
            }
        }
    }

    fn allocate(
        &mut self,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: &FlowSpec,
        wires: Wires,
        links: &mut Links,
    ) {
        let window = u32::try_from(wires.window).unwrap_or(u32::MAX);
        let spec = carina_wire::FlowSpec::from(*spec);
        match self
            .hl
            .allocate(local.as_str(), remote.as_str(), spec, window)
        {
            Ok(channel) => {
                let state = LineState::Asked;
                self.tag(wires, channel, links);
                self.put_line(
                    channel,
                    Line {
                        port,
                        state,
                        wires: Some(wires),
                        piece_max: 0,
                        sdu_bytes: 0,
                    },
                );
            }
            Err(error) => self.deny(port, wires, error.to_string(), links),
        }
    }

    /// An allocation came to nothing: the flow's end is closed without a word of its own.
    pub(super) fn deny(&mut self, port: PortId, wires: Wires, reason: String, links: &mut Links) {
        links.close(wires.to_flow, Close::Refused(reason.clone()));
        links.disconnect(wires.from_flow);
        self.directory.borrow_mut().remove(&port);
        self.events.put(Event::AllocateResult {
            port,
            result: Err(reason),
        });
    }

    fn respond(&mut self, port: PortId, answer: Result<Wires, String>, links: &mut Links) {
        let channel = self.channels.get(&port).copied();
        let wires = match answer {
            Ok(wires) => wires,
            Err(reason) => return self.refuse(port, &reason),
        };
        let window = u32::try_from(wires.window).unwrap_or(u32::MAX);
        let accepted = channel.filter(|channel| self.hl.respond(*channel, Ok(window)).is_ok());
        let Some(channel) = accepted else {
            // The peer gave the request up in the meantime, and the manager has been told so.
            let gone = Close::Refused("the request is gone".to_owned());
            links.close(wires.to_flow, gone);
            links.disconnect(wires.from_flow);
            self.directory.borrow_mut().remove(&port);
            return;
        };
        self.tag(wires, channel, links);
        self.row.add(Value::FlowsOpened, 1);
        self.regrant.push(channel);
        if let Some(line) = self.line_mut(channel) {
            line.wires = Some(wires);
            line.state = LineState::Open;
        }
    }

    fn tag(&self, wires: Wires, channel: carina_wire::vmpi::Channel, links: &mut Links) {
        links.set_tag(wires.to_flow, u32::from(channel.number()));
        links.set_tag(wires.from_flow, u32::from(channel.number()));
    }

    fn refuse(&mut self, port: PortId, reason: &str) {
        let Some(channel) = self.channels.get(&port).copied() else {
            return;
        };
        if self
            .line(channel)
            .is_some_and(|line| line.state == LineState::Offered)
        {
            // An answer to a request that is there cannot fail.
            let _ = self.hl.respond(channel, Err((Outcome::Refused, reason)));
            self.take_line(channel);
            self.directory.borrow_mut().remove(&port);
        }
    }

    fn remove(&mut self, links: &mut Links) {
        self.hl
            .link_down("removed", "the IPC process was destroyed");
        self.tell(links);
        self.is_removed = true;
        self.is_connected = false;
        links.finish(self.id);
    }
}
