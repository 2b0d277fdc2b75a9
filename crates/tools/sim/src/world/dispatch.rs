//! What happens at one moment of the virtual clock: scheduled events, and the work of each IPCP.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::Command;
use carina_random::mix;
use carina_wire::dif::Dialect;

use super::World;
use crate::model::{Instance, IpcpSlot, Link, Scheduled, SlotId};

impl World {
    /// Lets every IPCP do what it has to do, until none has anything left.
    pub(crate) fn process_pending(&mut self) {
        while let Some(index) = self.dirty.pop_first() {
            if !self.failures.is_empty() {
                self.dirty.clear();
                return;
            }
            self.process(SlotId(index));
        }
    }

    pub(super) fn dispatch(&mut self, what: Scheduled) {
        let now = self.now();
        match what {
            Scheduled::Start(slot) => self.start(slot),
            Scheduled::MaintainN1(slot, incarnation) => {
                // When the maintenance was rescheduled to an earlier time, the event at the old
                // time is ignored.
                if let Some(instance) = self.same_instance(slot, incarnation)
                    && instance.maintains_n1_at == Some(now)
                {
                    instance.maintains_n1_at = None;
                    self.maintain_n1(slot);
                }
            }
            Scheduled::Timer(slot, incarnation) => self.timer(slot, incarnation),
            Scheduled::Requested {
                cable,
                side,
                initiator,
                incarnation,
                attachment,
            } => self.requested(cable, side, (initiator, incarnation, attachment)),
            Scheduled::Responded {
                cable,
                initiator,
                incarnation,
                attachment,
                flow,
            } => self.responded(cable, (initiator, incarnation, attachment), flow),
            Scheduled::Arrive {
                cable,
                side,
                flow,
                pdu,
            } => self.arrive(cable, side, flow, pdu),
            Scheduled::Ended { cable, side, flow } => self.ended(cable, side, flow),
            Scheduled::Detected { cable, epoch } => self.detected(cable, epoch),
            Scheduled::Unblock(user) => {
                if let Some(instance) = self.same_instance(user.slot, user.incarnation) {
                    instance.member.unblock_n1(user.n1);
                    self.touch(user.slot);
                }
            }
            Scheduled::Write(session, side) => self.write(session, side),
            Scheduled::Resume(session, side) => self.resume(session, side),
            Scheduled::Respond(session, incarnation) => self.respond(session, incarnation),
            Scheduled::Close(session, side) => self.close(session, side),
        }
        debug_assert_eq!(now, self.now(), "time moves in the queue only");
    }

    /// Starts the IPCP of a slot.
    pub(crate) fn start(&mut self, id: SlotId) {
        let now = self.now();
        let slot = &mut self.slots[id.0];
        if slot.instance.is_some() || !self.systems[slot.system.0].is_up {
            return;
        }
        slot.incarnation += 1;
        let founds = slot.founds && slot.incarnation == 1;
        let mut config = slot.config.clone();
        if !founds && config.dialect != Dialect::Irati {
            config.dif_config = None;
        }
        let seed = mix(mix(self.seed, id.0 as u64), u64::from(slot.incarnation));
        let member = match (self.member_factory)(config, seed) {
            Ok(member) => member,
            Err(reason) => {
                let text = format!("{} is not born: {reason}", self.name(id));
                return self.fail(text);
            }
        };
        let name = &slot.config.name;
        self.trace.note(now, id.0 as u64, "birth", &[], name);
        slot.instance = Some(Instance {
            member,
            n1s: Vec::new(),
            links: vec![Link::Idle; slot.attachments.len()],
            flows: BTreeMap::new(),
            gone: BTreeSet::new(),
            address: None,
            armed: None,
            maintains_n1_at: None,
            busy: (0, 0),
        });
        if founds {
            self.command(id, Command::Bootstrap);
        }
        self.register_below(id);
        self.maintain_n1_at(id, now);
        self.touch(id);
    }

    fn timer(&mut self, id: SlotId, incarnation: u32) {
        let now = self.now();
        let Some(instance) = self.same_instance(id, incarnation) else {
            return;
        };
        if instance.armed != Some(now) {
            return;
        }
        instance.armed = None;
        if instance.member.poll_timeout().is_some_and(|at| at <= now) {
            instance.member.handle_timeout(now);
            self.trace.note(now, id.0 as u64, "timer", &[], id.0);
        }
        self.touch(id);
    }

    /// Lets one IPCP do everything that it has to do at this moment.
    fn process(&mut self, id: SlotId) {
        let now = self.now();
        let Some(instance) = self.instance(id) else {
            return;
        };
        instance.busy = match instance.busy {
            (at, count) if at == now => (now, count + 1),
            _ => (now, 0),
        };
        if instance.busy.1 > BREATHS_MAX {
            let text = format!(
                "{} finds no rest: {BREATHS_MAX} breaths at one instant",
                self.name(id)
            );
            return self.fail(text);
        }
        instance.member.end_of_burst(now);
        // A flow ends when its reader has taken everything, so this repeats until nothing is left.
        while self.poll_all(id) {}
        self.arm(id);
    }

    /// Polls everything that an IPCP may have. Returns whether it had something.
    fn poll_all(&mut self, id: SlotId) -> bool {
        let mut gave = false;
        while let Some(event) = self
            .instance(id)
            .and_then(|instance| instance.member.poll_event())
        {
            gave = true;
            self.dispatch_event(id, event);
        }
        while let Some(delivery) = self
            .instance(id)
            .and_then(|instance| instance.member.poll_deliver())
        {
            gave = true;
            self.deliver(id, delivery);
        }
        while let Some(key) = self
            .instance(id)
            .and_then(|instance| instance.member.poll_room())
        {
            gave = true;
            self.room_grew(id, key);
        }
        while let Some(n1) = self
            .instance(id)
            .and_then(|instance| instance.member.poll_n1())
        {
            gave = true;
            if !self.transmit(id, n1) {
                break;
            }
        }
        gave && self.failures.is_empty()
    }

    fn arm(&mut self, id: SlotId) {
        let now = self.now();
        let IpcpSlot {
            instance: Some(instance),
            incarnation,
            ..
        } = &mut self.slots[id.0]
        else {
            return;
        };
        let Some(at) = instance.member.poll_timeout() else {
            return;
        };
        let at = at.max(now);
        if instance.armed.is_none_or(|armed| at < armed || armed < now) {
            instance.armed = Some(at);
            self.queue.put(at, Scheduled::Timer(id, *incarnation));
        }
    }
}

/// If the world handles one IPCP more often than this at one virtual moment, it reports endless
/// work as a failure.
const BREATHS_MAX: u32 = 20_000;
