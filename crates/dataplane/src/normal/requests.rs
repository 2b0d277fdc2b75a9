//! What the plane orders the app of a normal IPCP to do.

use carina_api::{AppName, FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, Links};
use carina_ipcp::{Command, FlowKey};

use super::lines::{Line, LineState};
use super::{Normal, NormalOrder};
use crate::command::Event;
use crate::hub::{Order, Wires};

impl Normal {
    /// Carries out all waiting orders.
    pub(super) fn obey(&mut self, links: &mut Links) {
        loop {
            let Some(order) = self.orders.borrow_mut().pop_front() else {
                return;
            };
            if self.is_removed {
                continue;
            }
            match order {
                NormalOrder::Hub(order) => self.obey_hub(order, links),
                NormalOrder::Handle(order) => match order {
                    Command::Enroll { n1 } | Command::GiveUpN1 { n1, .. } => {
                        self.handle_on(n1, order);
                    }
                    order => self.member.handle(self.now, order),
                },
                NormalOrder::Attach { n1, wires } => self.attach(n1, wires),
                NormalOrder::N1Up { n1, props } => self.n1_up(n1, props),
                NormalOrder::Drop { n1, reason } => self.drop_n1(n1, reason, links),
            }
        }
    }

    fn obey_hub(&mut self, order: Order, links: &mut Links) {
        match order {
            Order::Register(name) => {
                let name = name.into();
                self.member.handle(self.now, Command::Register { name });
            }
            Order::Unregister(name) => {
                let name = name.into();
                self.member.handle(self.now, Command::Unregister { name });
            }
            Order::Allocate {
                port,
                local,
                remote,
                spec,
                wires,
            } => self.allocate(port, &local, &remote, &spec, wires, links),
            Order::Respond { port, answer } => self.respond(port, answer, links),
            Order::Refuse { port, reason } => self.refuse(port, reason),
            Order::Remove => self.remove(links),
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
        let wire_spec = carina_wire::FlowSpec::from(*spec);
        let asked = self
            .member
            .allocate(self.now, local.as_str(), remote.as_str(), wire_spec);
        match asked {
            Ok(flow) => {
                let line = Line::new(port, LineState::Asked, Some(wires), spec);
                self.put_line(flow, line, links);
            }
            Err(reason) => self.deny(port, wires, reason, links),
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
        let flow = self.keys.get(&port).copied();
        let wires = match answer {
            Ok(wires) => wires,
            Err(reason) => return self.refuse(port, reason),
        };
        let is_offered = |line: &Line| line.state == LineState::Offered;
        let Some(flow) = flow.filter(|flow| self.line(*flow).is_some_and(is_offered)) else {
            // The peer gave the request up in the meantime, and the manager has been told so.
            let gone = Close::Refused("the request is gone".to_owned());
            links.close(wires.to_flow, gone);
            links.disconnect(wires.from_flow);
            self.directory.borrow_mut().remove(&port);
            return;
        };
        if let Some(line) = self.line_mut(flow) {
            line.wires = Some(wires);
            line.state = LineState::Open;
        }
        self.tag(flow, wires, links);
        self.state_rooms();
        self.row.add(Value::FlowsOpened, 1);
        let answer = Ok(());
        self.member
            .handle(self.now, Command::Respond { flow, answer });
        self.roomy.push(flow);
    }

    fn refuse(&mut self, port: PortId, reason: String) {
        let Some(flow) = self.keys.get(&port).copied() else {
            return;
        };
        if self
            .line(flow)
            .is_some_and(|line| line.state == LineState::Offered)
        {
            let answer = Err(reason);
            self.member
                .handle(self.now, Command::Respond { flow, answer });
            self.take_line(flow);
            self.directory.borrow_mut().remove(&port);
        }
    }

    fn remove(&mut self, links: &mut Links) {
        const DESTROYED: &str = "the IPC process was destroyed";
        for index in 0..self.lines.len() {
            let flow = FlowKey(index as u32);
            let Some(state) = self.line(flow).map(|line| line.state) else {
                continue;
            };
            match state {
                LineState::Open | LineState::Ending => {
                    self.flow_closed(flow, Close::Failed(DESTROYED.to_owned()), links);
                    if let Some(line) = self.take_line(flow) {
                        self.end_line(line, links);
                    }
                }
                _ => self.request_ended(flow, DESTROYED, links),
            }
        }
        for line in std::mem::take(&mut self.outlived) {
            self.end_line(line, links);
        }
        // Neighbours hear of it, and with them the DIF, unless this is lost on the way: then they
        // find out by themselves.
        self.member.handle(self.now, Command::Leave);
        self.pass_on(links);
        self.drop_all_n1s(links);
        self.is_removed = true;
        links.finish(self.id);
    }
}
