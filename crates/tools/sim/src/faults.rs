//! Faults of the world, and their repair.

use carina_ipcp::Command;

use crate::model::{Below, CableId, Scheduled, SlotId, SystemId, User};
use crate::world::World;

impl World {
    /// Crashes a system: all its state is lost at once.
    pub fn crash(&mut self, id: SystemId) {
        let now = self.now();
        let system = &mut self.systems[id.0];
        if !std::mem::replace(&mut system.is_up, false) {
            return;
        }
        self.trace
            .note(now, id.0 as u64, "crash", &[], &system.name);
        for slot in system.slots.clone() {
            self.slots[slot.0].instance = None;
        }
        self.lose_sessions(id);
        for index in 0..self.cables.len() {
            let cable = &mut self.cables[index];
            let Some(side) = cable.ends.iter().position(|end| *end == id) else {
                continue;
            };
            for ends in cable.flows.values_mut() {
                ends[side] = None;
            }
            cable
                .flows
                .retain(|_, ends| ends.iter().any(Option::is_some));
            cable.epoch += 1;
            self.detect(CableId(index));
        }
    }

    /// Restarts a crashed system: its IPCPs start and try to join.
    pub fn restart(&mut self, id: SystemId) {
        let now = self.now();
        let system = &mut self.systems[id.0];
        if std::mem::replace(&mut system.is_up, true) {
            return;
        }
        self.trace
            .note(now, id.0 as u64, "restart", &[], &system.name);
        for slot in system.slots.clone() {
            self.start(slot);
        }
    }

    /// Whether the system runs.
    #[must_use]
    pub fn is_up(&self, id: SystemId) -> bool {
        self.systems[id.0].is_up
    }

    /// Cuts a cable: PDUs on it and later ones are lost until it is repaired.
    pub fn cut(&mut self, id: CableId) {
        let now = self.now();
        let cable = &mut self.cables[id.0];
        if !std::mem::replace(&mut cable.is_up, false) {
            return;
        }
        cable.epoch += 1;
        self.trace.note(now, id.0 as u64, "cut", &[], &cable.name);
        self.detect(id);
    }

    /// Repairs a cable. If one end of a flow over the cable no longer exists, the other end learns
    /// that now.
    pub fn mend(&mut self, id: CableId) {
        let now = self.now();
        let cable = &mut self.cables[id.0];
        if std::mem::replace(&mut cable.is_up, true) {
            return;
        }
        cable.epoch += 1;
        self.trace.note(now, id.0 as u64, "mend", &[], &cable.name);
        let halves: Vec<User> = cable
            .flows
            .values()
            .filter(|ends| ends.iter().any(Option::is_none))
            .flat_map(|ends| ends.iter().copied().flatten())
            .collect();
        for user in halves {
            self.n1_down(user.slot, user.n1, "the other side has ended it");
        }
        self.maintain_ends(id);
    }

    /// Whether the cable carries PDUs.
    #[must_use]
    pub fn is_whole(&self, id: CableId) -> bool {
        self.cables[id.0].is_up
    }

    /// Changes how a cable treats PDUs from now on. The cable keeps its MTU.
    pub fn set_profile(&mut self, id: CableId, profile: crate::link::Profile) {
        let mtu = self.cables[id.0].profile.mtu;
        self.cables[id.0].profile = crate::link::Profile { mtu, ..profile };
    }

    /// Makes a member leave its DIF in order. It stays away until [`World::come_back`].
    pub fn leave(&mut self, slot: SlotId) {
        self.slots[slot.0].is_wanted = false;
        self.abandon_sessions(slot);
        self.command(slot, Command::Leave);
    }

    /// Lets a member that left join again.
    pub fn come_back(&mut self, slot: SlotId) {
        self.slots[slot.0].is_wanted = true;
        self.maintain_n1_at(slot, self.now());
    }

    /// Whether the slot's IPCP is supposed to be a member of its DIF.
    #[must_use]
    pub fn is_wanted(&self, slot: SlotId) -> bool {
        self.slots[slot.0].is_wanted
    }

    fn detect(&mut self, id: CableId) {
        let cable = &self.cables[id.0];
        if let Some(after) = cable.detection_ns {
            let (at, epoch) = (self.now() + after, cable.epoch);
            self.queue.put(at, Scheduled::Detected { cable: id, epoch });
        }
    }

    /// Schedules, for every IPCP that needs a flow over this cable, a request for it soon.
    fn maintain_ends(&mut self, id: CableId) {
        for end in self.cables[id.0].ends {
            for slot in self.systems[end.0].slots.clone() {
                let uses = |below| below == Below::Cable(id);
                if self.slots[slot.0].attachments.iter().any(|a| uses(a.below)) {
                    self.maintain_n1_later(slot);
                }
            }
        }
    }
}
