//! Events of an IPCP, and the reaction of the simulated node around it.

use carina_ipcp::{Command, Event, FlowKey, N1Port, Reason};

use crate::model::{FlowOwner, SlotId};
use crate::world::World;

impl World {
    /// Handles one event of an IPCP.
    pub(crate) fn dispatch_event(&mut self, id: SlotId, event: Event) {
        let now = self.now();
        // An answer is not traced in full: it may be a whole RIB, and the simulation itself has
        // requested it.
        let bytes = match &event {
            Event::Answer { id, result } => {
                let count = result.as_ref().map_or(0, Vec::len);
                format!("Answer {{ id: {id}, objects: {count} }}")
            }
            other => format!("{other:?}"),
        };
        let words = format_args!("{}: {bytes}", self.slots[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "event", bytes.as_bytes(), words);
        match event {
            Event::Enrolled { address, .. } => self.enrolled(id, address),
            Event::EnrollFailed { .. } | Event::EnrollRefused { .. } => self.maintain_n1_later(id),
            Event::Left { .. } => self.left(id),
            Event::NeighbourUp { .. } | Event::NeighbourDown { .. } => {
                self.tallies.changed_at = now;
            }
            Event::NeedN1 { dif, remote } => self.need_n1(id, &dif, &remote),
            Event::DropN1 { n1, reason } => self.drop_n1(id, n1, &reason),
            Event::Reachable { .. } | Event::Unreachable { .. } | Event::Registered { .. } => {}
            Event::Incoming {
                flow,
                local,
                remote,
                ..
            } => self.incoming(id, flow, &local, &remote),
            Event::Allocated { flow, result } => self.allocated(id, flow, result),
            Event::Closed {
                flow,
                is_graceful,
                reason,
            } => self.closed(id, flow, is_graceful, &reason),
            Event::Answer { id, result } => {
                self.answers.insert(id, result);
            }
            Event::Notice { .. } => self.tallies.notices += 1,
        }
    }

    fn enrolled(&mut self, id: SlotId, address: carina_wire::dif::Address) {
        let now = self.now();
        self.tallies.enrollments += 1;
        self.tallies.changed_at = now;
        if let Some(instance) = self.instance(id) {
            instance.address = Some(address);
        }
        self.register_above(id);
        self.maintain_n1_at(id, now);
    }

    fn left(&mut self, id: SlotId) {
        self.tallies.changed_at = self.now();
        let ports = self.instance(id).map(|instance| {
            instance.address = None;
            instance.n1s.len()
        });
        for index in 0..ports.unwrap_or(0) {
            self.drop_n1(id, N1Port(index as u32), "left the DIF");
        }
    }

    fn incoming(&mut self, id: SlotId, flow: FlowKey, local: &str, remote: &str) {
        if self.upper_incoming(id, flow, local, remote) {
            return;
        }
        if self.slots[id.0].apps.iter().any(|app| app == local) {
            return self.session_incoming(id, flow, remote);
        }
        let answer = Err(format!("no application {local}").into());
        self.command(id, Command::Respond { flow, answer });
    }

    fn allocated(&mut self, id: SlotId, flow: FlowKey, result: Result<(), Reason>) {
        let owner = self
            .instance(id)
            .and_then(|instance| instance.flows.get(&flow).copied());
        match owner {
            Some(FlowOwner::Requesting(upper, attachment)) => {
                self.upper_allocated(id, flow, (upper, attachment), result);
            }
            Some(FlowOwner::Session(session, side)) => {
                self.session_allocated(session, side, result);
            }
            Some(FlowOwner::Upper(..)) | None => {
                let text = format!(
                    "{} answers for {flow:?}, which no application asked for",
                    self.name(id)
                );
                self.fail(text);
            }
        }
    }

    fn closed(&mut self, id: SlotId, flow: FlowKey, is_graceful: bool, reason: &str) {
        let owner = self
            .instance(id)
            .and_then(|instance| instance.flows.remove(&flow));
        match owner {
            Some(FlowOwner::Requesting(upper, attachment)) => {
                let result = Err(reason.into());
                self.upper_allocated(id, flow, (upper, attachment), result);
            }
            Some(FlowOwner::Upper(upper, n1)) => self.n1_down(upper, n1, reason),
            Some(FlowOwner::Session(session, side)) => {
                self.session_closed(session, side, is_graceful, reason);
            }
            None if self.has_let_go(id, flow) => {}
            None => {
                let text = format!(
                    "{} closes {flow:?}, which no application has",
                    self.name(id)
                );
                self.fail(text);
            }
        }
    }
}
