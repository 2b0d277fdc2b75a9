//! Moves PDUs from IPCPs onto cables and into lower flows, and back up.

use carina_ipcp::{Delivery, FlowKey, N1Port};
use carina_wire::{Bytes, Payload};

use crate::model::{CableId, FlowOwner, Lower, N1, Scheduled, SlotId, User};
use crate::world::World;

impl World {
    /// Sends what an IPCP has for one N-1 flow. Returns false if there is no such flow.
    pub(crate) fn transmit(&mut self, id: SlotId, n1: N1Port) -> bool {
        let Some(instance) = self.instance(id) else {
            return false;
        };
        let lower = match instance.n1s.get(n1.0 as usize).and_then(Option::as_ref) {
            Some(N1 {
                lower: Lower::Cable { cable, flow, side },
                ..
            }) => Ok((*cable, *flow, *side)),
            Some(N1 {
                lower: Lower::Flow { slot, key, .. },
                ..
            }) => Err((*slot, *key)),
            None => {
                let text = format!("{} has PDUs for {n1:?}, which is not up", self.name(id));
                self.fail(text);
                return false;
            }
        };
        let mut has_moved = false;
        loop {
            let Some(len) = self
                .instance(id)
                .and_then(|instance| instance.member.peek_transmit(n1))
            else {
                return has_moved || self.offered_in_vain(id, n1);
            };
            let went = match lower {
                Ok((cable, flow, side)) => self.onto_cable(id, n1, len, (cable, flow, side)),
                Err((slot, key)) => self.down_flow(id, n1, len, (slot, key)),
            };
            if !went {
                return true;
            }
            has_moved = true;
        }
    }

    /// The IPCP offered an N-1 flow for which it has no PDU. That may happen once, but not
    /// repeatedly.
    fn offered_in_vain(&mut self, id: SlotId, n1: N1Port) -> bool {
        let again = self
            .instance(id)
            .and_then(|instance| instance.member.poll_n1());
        if again == Some(n1) {
            let text = format!("{} offers {n1:?}, which has no PDU", self.name(id));
            self.fail(text);
            return false;
        }
        again.is_none_or(|other| self.transmit(id, other))
    }

    fn take(&mut self, id: SlotId, n1: N1Port, len: usize) -> Option<Bytes> {
        let now = self.now();
        let pdu = self
            .instance(id)
            .and_then(|instance| instance.member.take_transmit(now, n1));
        match pdu {
            Some(pdu) if pdu.len() <= len => Some(pdu),
            Some(pdu) => {
                let text = format!(
                    "{}: a PDU of {len} bytes became {}",
                    self.name(id),
                    pdu.len()
                );
                self.fail(text);
                None
            }
            // The PDU was dropped at the last moment; there may be another one.
            None => None,
        }
    }

    fn onto_cable(
        &mut self,
        id: SlotId,
        n1: N1Port,
        len: usize,
        (cable, flow, side): (CableId, u32, usize),
    ) -> bool {
        let now = self.now();
        let model = &self.cables[cable.0];
        let profile = model.profile;
        let free_at = model.pipes[side].room_at(now, len, &profile);
        if free_at > now {
            let user = User {
                slot: id,
                incarnation: self.slots[id.0].incarnation,
                n1,
            };
            if let Some(instance) = self.instance(id) {
                instance.member.block_n1(n1);
            }
            self.queue.put(free_at, Scheduled::Unblock(user));
            return false;
        }
        let Some(pdu) = self.take(id, n1, len) else {
            return self.failures().is_empty();
        };
        if pdu.len() > profile.mtu {
            let text = format!(
                "{} sends {} bytes over {n1:?}, which carries {}",
                self.name(id),
                pdu.len(),
                profile.mtu
            );
            self.fail(text);
            return false;
        }
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut bytes);
        self.tallies.wire_pdus += 1;
        self.tallies.wire_bytes += bytes.len() as u64;
        let words = format_args!(
            "{} {n1:?} {} bytes",
            self.slots[id.0].config.name,
            bytes.len()
        );
        self.trace.note(now, id.0 as u64, "send", &bytes, words);
        let model = &mut self.cables[cable.0];
        if !model.is_up {
            model.pipes[side].swallow(bytes.len());
            return true;
        }
        let mut out = Vec::new();
        model.pipes[side].put(now, bytes, &profile, &mut model.random, &mut out);
        for (at, pdu) in out {
            let arrive = Scheduled::Arrive {
                cable,
                side: 1 - side,
                flow,
                pdu,
            };
            self.queue.put(at, arrive);
        }
        true
    }

    fn down_flow(&mut self, id: SlotId, n1: N1Port, len: usize, to: (SlotId, FlowKey)) -> bool {
        let now = self.now();
        let (slot, key) = to;
        let room = self
            .instance(slot)
            .map_or(0, |instance| instance.member.room(key));
        if room < len {
            if let Some(instance) = self.instance(id) {
                instance.member.block_n1(n1);
            }
            return false;
        }
        let Some(pdu) = self.take(id, n1, len) else {
            return self.failures().is_empty();
        };
        if let Some(instance) = self.instance(slot) {
            instance.member.on_sdu(now, key, pdu, false);
            self.touch(slot);
        }
        true
    }

    /// Delivers a PDU that arrives over a cable.
    pub(crate) fn arrive(&mut self, cable: CableId, side: usize, flow: u32, pdu: Vec<u8>) {
        let now = self.now();
        let model = &self.cables[cable.0];
        if !model.is_up {
            return;
        }
        let Some(user) = model.flows.get(&flow).and_then(|ends| ends[side]) else {
            return;
        };
        if let Some(instance) = self.same_instance(user.slot, user.incarnation) {
            instance.member.on_pdu(now, user.n1, Bytes::from(pdu));
            self.touch(user.slot);
        }
    }

    /// An IPCP delivers a piece of an SDU to one of its flows.
    pub(crate) fn deliver(&mut self, id: SlotId, delivery: Delivery<Bytes>) {
        let now = self.now();
        let Delivery { flow, sdu, more } = delivery;
        let owner = self
            .instance(id)
            .and_then(|instance| instance.flows.get(&flow).copied());
        match owner {
            Some(FlowOwner::Session(session, side)) => self.read(session, side, &sdu, more),
            Some(FlowOwner::Upper(upper, n1)) => {
                if let Some(pdu) = self.lift(upper, n1, &sdu, more)
                    && let Some(instance) = self.instance(upper)
                {
                    instance.member.on_pdu(now, n1, Bytes::from(pdu));
                    self.touch(upper);
                }
                if let Some(instance) = self.instance(id) {
                    instance.member.set_delivery_room(now, flow, UPPER_ROOM);
                }
            }
            // It was written before the other side heard of the end.
            None if self.has_let_go(id, flow) => {}
            Some(FlowOwner::Requesting(..)) | None => {
                let text = format!(
                    "{} delivers to {flow:?}, which no application has",
                    self.name(id)
                );
                self.fail(text);
            }
        }
    }

    /// Adds a piece of a PDU for a higher IPCP. Returns the PDU if this was its last piece.
    fn lift(&mut self, upper: SlotId, n1: N1Port, sdu: &Bytes, more: bool) -> Option<Vec<u8>> {
        let n1 = self.instance(upper)?.n1s.get_mut(n1.0 as usize)?.as_mut()?;
        let Lower::Flow { partial, .. } = &mut n1.lower else {
            return None;
        };
        sdu.append_to(partial);
        (!more).then(|| std::mem::take(partial))
    }

    /// Lets the user of a flow send again, after the flow has got room for more data.
    pub(crate) fn room_grew(&mut self, id: SlotId, key: FlowKey) {
        let owner = self
            .instance(id)
            .and_then(|instance| instance.flows.get(&key).copied());
        match owner {
            Some(FlowOwner::Session(session, side)) => self.write(session, side),
            Some(FlowOwner::Upper(upper, n1)) => {
                if let Some(instance) = self.instance(upper) {
                    instance.member.unblock_n1(n1);
                    self.touch(upper);
                }
            }
            Some(FlowOwner::Requesting(..)) | None => {}
        }
    }
}

/// Bytes that a higher IPCP accepts at any time: it never falls behind.
pub(crate) const UPPER_ROOM: usize = 1 << 20;
