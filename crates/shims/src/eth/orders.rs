//! What the plane orders an Ethernet shim to do.

use carina_api::PortId;
use carina_engine::{Close, Links};

use super::Eth;
use crate::command::Event;
use crate::hub::{Order, Wires};

impl Eth {
    /// Carries out all waiting orders.
    pub(super) fn obey(&mut self, links: &mut Links) {
        loop {
            let Some(order) = self.orders.borrow_mut().pop_front() else {
                return;
            };
            match order {
                Order::Register(name) => drop(self.names.insert(name)),
                Order::Unregister(name) => drop(self.names.remove(&name)),
                Order::Allocate {
                    port,
                    local,
                    remote,
                    wires,
                    ..
                } => match self.nic.link() {
                    Ok(()) => self.resolver.ask(self.now, port, (local, remote), wires),
                    Err(reason) => self.deny(port, wires, reason, links),
                },
                Order::Respond {
                    port,
                    answer: Ok(wires),
                } => {
                    if !self.accepted(port, wires, links) {
                        // The flow has ended in the meantime, and the manager has been told so.
                        let gone = Close::Refused("the request is gone".to_owned());
                        links.close(wires.to_flow, gone);
                        links.disconnect(wires.from_flow);
                        self.directory.borrow_mut().remove(&port);
                    }
                }
                Order::Respond { port, .. } | Order::Refuse { port, .. } => self.refused(port),
                Order::Remove => return self.remove(links),
            }
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

    fn remove(&mut self, links: &mut Links) {
        self.fail_all("the IPC process was destroyed", links);
        self.is_removed = true;
        self.is_up = false;
        links.finish(self.id);
    }
}
