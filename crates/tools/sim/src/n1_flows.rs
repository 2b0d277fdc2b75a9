//! N-1 flows over cables and over IPCPs of lower DIFs, allocated as a node would do it.
//!
//! ```text
//!   IPCP of DIF N  -- N1Port --+-- flow of an IPCP below on the same system (to any depth)
//!                              +-- flow over a cable -- the other system
//! ```

use carina_ipcp::{Command, N1Port, N1Properties};

use crate::model::{Attachment, Below, CableId, Link, Lower, N1, Scheduled, SlotId, User};
use crate::world::World;

/// The initiator of a flow over a cable: slot, incarnation, and index of the attachment.
pub(crate) type Initiator = (SlotId, u32, usize);

impl World {
    /// Schedules [`World::maintain_n1`] for a slot.
    pub(crate) fn maintain_n1_at(&mut self, id: SlotId, at: u64) {
        let incarnation = self.slots[id.0].incarnation;
        if let Some(instance) = self.instance(id)
            && instance.maintains_n1_at.is_none_or(|planned| at < planned)
        {
            instance.maintains_n1_at = Some(at);
            self.queue.put(at, Scheduled::MaintainN1(id, incarnation));
        }
    }

    /// Maintains the N-1 flows of an IPCP as a node does: requests missing N-1 flows, and lets an
    /// IPCP that is not a member try to join again.
    pub(crate) fn maintain_n1(&mut self, id: SlotId) {
        let now = self.now();
        if !self.slots[id.0].is_wanted {
            return;
        }
        for index in 0..self.slots[id.0].attachments.len() {
            let asks = self.slots[id.0].attachments[index].is_initiator;
            let is_idle = self
                .instance(id)
                .is_some_and(|instance| instance.links.get(index) == Some(&Link::Idle));
            if asks && is_idle {
                self.connect(id, index);
            }
        }
        let Some(instance) = self.instance(id) else {
            return;
        };
        if instance.address.is_none() {
            let ripe = |n1: &&N1| now.saturating_sub(n1.since) >= PATIENCE_NS;
            let again: Vec<usize> = (0..instance.n1s.len())
                .filter(|index| instance.n1s[*index].as_ref().filter(ripe).is_some())
                .collect();
            for index in again {
                let n1 = N1Port(index as u32);
                self.command(id, Command::Enroll { n1 });
            }
            self.maintain_n1_later(id);
        } else if instance.links.contains(&Link::Idle) {
            let asks = |(link, attachment): (&Link, &Attachment)| {
                *link == Link::Idle && attachment.is_initiator
            };
            let slot = &self.slots[id.0];
            let links = slot.instance.as_ref().map(|instance| &instance.links);
            if links.is_some_and(|links| links.iter().zip(&slot.attachments).any(asks)) {
                self.maintain_n1_later(id);
            }
        }
    }

    pub(crate) fn maintain_n1_later(&mut self, id: SlotId) {
        let at = self.now() + self.random.within(PATIENCE_NS / 2, 3 * PATIENCE_NS / 2);
        self.maintain_n1_at(id, at);
    }

    /// The IPCP needs an N-1 flow to `remote`: requests a planned one, or adds a new one.
    pub(crate) fn need_n1(&mut self, id: SlotId, dif: &str, remote: &str) {
        let known = self.slots[id.0].attachments.iter().position(|attachment| {
            attachment.remote == remote && self.dif_below(attachment.below) == dif
        });
        let index = match known {
            Some(index) => index,
            None => {
                let Some(below) = self.find_below(id, dif) else {
                    return;
                };
                self.slots[id.0].attachments.push(Attachment {
                    below,
                    remote: remote.to_owned(),
                    is_initiator: false,
                    is_reliable: false,
                });
                let Some(instance) = self.instance(id) else {
                    return;
                };
                instance.links.push(Link::Idle);
                instance.links.len() - 1
            }
        };
        if self
            .instance(id)
            .is_some_and(|instance| instance.links[index] == Link::Idle)
        {
            self.connect(id, index);
        }
    }

    fn dif_below(&self, below: Below) -> &str {
        match below {
            Below::Cable(cable) => &self.cables[cable.0].name,
            Below::Ipcp(slot) => &self.slots[slot.0].config.dif,
        }
    }

    fn find_below(&self, id: SlotId, dif: &str) -> Option<Below> {
        let system = self.slots[id.0].system;
        let mut slots = self.systems[system.0].slots.iter().copied();
        let lower = slots.find(|slot| self.slots[slot.0].config.dif == dif);
        let mut cables = self.cables.iter();
        let cable = cables.position(|cable| cable.name == dif && cable.ends.contains(&system));
        lower
            .map(Below::Ipcp)
            .or(cable.map(|cable| Below::Cable(CableId(cable))))
    }

    /// Requests the N-1 flow of an attachment.
    fn connect(&mut self, id: SlotId, index: usize) {
        let now = self.now();
        let slot = &self.slots[id.0];
        let (incarnation, system) = (slot.incarnation, slot.system);
        let attachment = slot.attachments[index].clone();
        let asked = match attachment.below {
            Below::Cable(cable) => {
                let model = &self.cables[cable.0];
                let side = usize::from(model.ends[0] == system);
                let at = now + model.profile.delay_ns;
                let asked = Scheduled::Requested {
                    cable,
                    side,
                    initiator: id,
                    incarnation,
                    attachment: index,
                };
                self.queue.put(at, asked);
                true
            }
            Below::Ipcp(lower) => self.connect_below(id, index, lower, &attachment),
        };
        if asked && let Some(instance) = self.instance(id) {
            instance.links[index] = Link::Requesting;
        } else {
            self.maintain_n1_later(id);
        }
    }

    /// A request for a flow over a cable arrives at the other side.
    pub(crate) fn requested(&mut self, cable: CableId, side: usize, initiator: Initiator) {
        let now = self.now();
        let (from, incarnation, attachment) = initiator;
        let remote = self.slots[from.0].attachments[attachment].remote.clone();
        let model = &self.cables[cable.0];
        let system = &self.systems[model.ends[side].0];
        let called = system.slots.iter().copied().find(|slot| {
            let slot = &self.slots[slot.0];
            slot.config.name == remote && slot.instance.is_some()
        });
        let is_connected = model.is_up && self.systems[model.ends[1 - side].0].is_up;
        let flow = called.filter(|_| is_connected).map(|called| {
            let model = &mut self.cables[cable.0];
            let flow = model.next_flow;
            model.next_flow += 1;
            model.flows.insert(flow, [None; 2]);
            let lower = Lower::Cable { cable, flow, side };
            let back = self.attachment_to(called, Below::Cable(cable), self.name(from));
            let remote = self.name(from).to_owned();
            self.n1_up(called, lower, back, remote, false);
            flow
        });
        let at = now + self.cables[cable.0].profile.delay_ns;
        let answer = Scheduled::Responded {
            cable,
            initiator: from,
            incarnation,
            attachment,
            flow,
        };
        self.queue.put(at, answer);
    }

    /// The index of the planned attachment that an incoming flow fills; `None` if no such
    /// attachment is planned, or if it has a flow already.
    pub(crate) fn attachment_to(&self, id: SlotId, below: Below, remote: &str) -> Option<usize> {
        let slot = &self.slots[id.0];
        let instance = slot.instance.as_ref()?;
        slot.attachments
            .iter()
            .zip(&instance.links)
            .position(|(attachment, link)| {
                attachment.below == below && attachment.remote == remote && *link == Link::Idle
            })
    }

    /// The response to a request for a flow over a cable reaches the initiator.
    pub(crate) fn responded(&mut self, cable: CableId, initiator: Initiator, flow: Option<u32>) {
        let (id, incarnation, attachment) = initiator;
        let model = &self.cables[cable.0];
        let system = self.slots[id.0].system;
        let side = usize::from(model.ends[0] != system);
        let is_live = |flow: &u32| {
            let ends = model.flows.get(flow);
            model.is_up && ends.is_some_and(|ends| ends[1 - side].is_some())
        };
        let usable = flow.filter(is_live);
        if self.same_instance(id, incarnation).is_none() {
            if let Some(flow) = flow {
                self.notify_other_side(cable, 1 - side, flow);
            }
            return;
        }
        match usable {
            Some(flow) => {
                let lower = Lower::Cable { cable, flow, side };
                let remote = self.slots[id.0].attachments[attachment].remote.clone();
                self.n1_up(id, lower, Some(attachment), remote, true);
            }
            None => {
                if let Some(flow) = flow {
                    self.notify_other_side(cable, 1 - side, flow);
                }
                if let Some(instance) = self.instance(id) {
                    instance.links[attachment] = Link::Idle;
                }
                self.maintain_n1_later(id);
            }
        }
    }

    /// Gives an IPCP a new N-1 flow.
    pub(crate) fn n1_up(
        &mut self,
        id: SlotId,
        lower: Lower,
        attachment: Option<usize>,
        remote: String,
        is_initiator: bool,
    ) -> Option<N1Port> {
        let now = self.now();
        let incarnation = self.slots[id.0].incarnation;
        let (dif, sdu_max, is_reliable, is_exposed) = match &lower {
            Lower::Cable { cable, .. } => {
                let model = &self.cables[cable.0];
                let profile = &model.profile;
                let is_exposed = profile.corruption > 0;
                (
                    model.name.clone(),
                    profile.mtu,
                    profile.is_reliable(),
                    is_exposed,
                )
            }
            Lower::Flow { slot, .. } => {
                let is_reliable =
                    attachment.is_some_and(|index| self.slots[id.0].attachments[index].is_reliable);
                let dif = self.slots[slot.0].config.dif.clone();
                (dif, STACKED_SDU_MAX, is_reliable, false)
            }
        };
        let instance = self.instance(id)?;
        let free = instance.n1s.iter().position(Option::is_none);
        let index = free.unwrap_or(instance.n1s.len());
        if index == instance.n1s.len() {
            instance.n1s.push(None);
        }
        let n1 = N1Port(index as u32);
        let place = match lower {
            Lower::Cable { cable, flow, side } => Some((cable, flow, side)),
            Lower::Flow { .. } => None,
        };
        instance.n1s[index] = Some(N1 {
            lower,
            remote: remote.clone(),
            attachment,
            since: now,
        });
        if let Some(attachment) = attachment {
            instance.links[attachment] = Link::Up(n1);
        }
        if let Some((cable, flow, side)) = place {
            let user = User {
                slot: id,
                incarnation,
                n1,
            };
            if let Some(ends) = self.cables[cable.0].flows.get_mut(&flow) {
                ends[side] = Some(user);
            }
        }
        let words = format_args!("{} {n1:?} {dif} to {remote}", self.slots[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "n1-up", &n1.0.to_le_bytes(), words);
        let props = N1Properties {
            dif,
            remote,
            sdu_max,
            is_reliable,
            is_exposed,
            is_initiator,
            cost: 1,
        };
        self.command(id, Command::N1Up { n1, props });
        Some(n1)
    }

    /// An N-1 flow of an IPCP has ended at one of its ends.
    pub(crate) fn n1_down(&mut self, id: SlotId, n1: N1Port, reason: &str) {
        let now = self.now();
        let Some(gone) = self.forget_n1(id, n1) else {
            return;
        };
        if let Lower::Cable { cable, flow, side } = gone.lower {
            self.vacate(cable, flow, side);
        }
        let words = format_args!("{} {n1:?}: {reason}", self.slots[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "n1-down", &n1.0.to_le_bytes(), words);
        let reason = reason.to_owned();
        self.command(id, Command::N1Down { n1, reason });
        self.maintain_n1_later(id);
    }

    /// Removes an N-1 flow that the IPCP no longer wants.
    pub(crate) fn drop_n1(&mut self, id: SlotId, n1: N1Port, reason: &str) {
        let now = self.now();
        let Some(gone) = self.forget_n1(id, n1) else {
            return;
        };
        let words = format_args!("{} {n1:?}: {reason}", self.slots[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "n1-drop", &n1.0.to_le_bytes(), words);
        match gone.lower {
            Lower::Cable { cable, flow, side } => {
                self.vacate(cable, flow, side);
                self.notify_other_side(cable, 1 - side, flow);
            }
            Lower::Flow { slot, key, .. } => {
                if let Some(instance) = self.instance(slot) {
                    instance.let_go(key);
                }
                let reason = reason.to_owned();
                self.command(slot, Command::Deallocate { flow: key, reason });
            }
        }
        let reason = reason.to_owned();
        self.command(id, Command::N1Down { n1, reason });
        self.maintain_n1_later(id);
    }

    fn forget_n1(&mut self, id: SlotId, n1: N1Port) -> Option<N1> {
        let instance = self.instance(id)?;
        let gone = instance.n1s.get_mut(n1.0 as usize)?.take()?;
        if let Some(attachment) = gone.attachment {
            instance.links[attachment] = Link::Idle;
        }
        Some(gone)
    }

    fn vacate(&mut self, cable: CableId, flow: u32, side: usize) {
        let model = &mut self.cables[cable.0];
        if let Some(ends) = model.flows.get_mut(&flow) {
            ends[side] = None;
            if ends.iter().all(Option::is_none) {
                model.flows.remove(&flow);
            }
        }
    }

    /// Tells the other end of a flow over a cable that the flow has ended, unless the cable is cut.
    pub(crate) fn notify_other_side(&mut self, cable: CableId, side: usize, flow: u32) {
        let model = &self.cables[cable.0];
        if model.is_up {
            let at = self.now() + model.profile.delay_ns;
            self.queue.put(at, Scheduled::Ended { cable, side, flow });
        }
    }

    pub(crate) fn ended(&mut self, cable: CableId, side: usize, flow: u32) {
        let ends = self.cables[cable.0].flows.get(&flow);
        if let Some(user) = ends.and_then(|ends| ends[side]) {
            self.n1_down(user.slot, user.n1, "the other side ended it");
        }
    }

    pub(crate) fn detected(&mut self, cable: CableId, epoch: u32) {
        let model = &self.cables[cable.0];
        if model.epoch != epoch {
            return;
        }
        let is_cut = !model.is_up;
        let users: Vec<User> = model
            .flows
            .values()
            .filter(|ends| is_cut || ends.iter().any(Option::is_none))
            .flat_map(|ends| ends.iter().copied().flatten())
            .collect();
        for user in users {
            self.n1_down(user.slot, user.n1, "the link is dead");
        }
    }
}

/// Time before a request is repeated, in ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Longest PDU of an IPCP over a flow of an IPCP, in bytes.
const STACKED_SDU_MAX: usize = 65_535;
