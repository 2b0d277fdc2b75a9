//! DIFs over DIFs: a flow of an IPCP is the N-1 flow of a higher IPCP on the same system.

use carina_ipcp::{Command, FlowKey, Reason};
use carina_wire::FlowSpec;

use crate::model::{Attachment, Below, FlowOwner, Link, Lower, SlotId};
use crate::pdus::UPPER_ROOM;
use crate::world::World;

impl World {
    /// Registers the name of a slot in its lower IPCPs, and the names of higher IPCPs and
    /// applications in the slot itself.
    pub(crate) fn register_below(&mut self, id: SlotId) {
        let name = self.name(id).to_owned();
        let lowers: Vec<SlotId> = self.lowers(id).collect();
        for lower in lowers {
            if self.address(lower).is_some() {
                let name = name.clone();
                self.command(lower, Command::Register { name });
            }
        }
    }

    /// Registers everything above a slot that has just become a member.
    pub(crate) fn register_above(&mut self, id: SlotId) {
        let system = self.slots[id.0].system;
        let mut names = self.slots[id.0].apps.clone();
        for above in self.systems[system.0].slots.clone() {
            let is_above = self.lowers(above).any(|lower| lower == id);
            if is_above && self.slots[above.0].instance.is_some() {
                names.push(self.name(above).to_owned());
                self.maintain_n1_at(above, self.now());
            }
        }
        for name in names {
            self.command(id, Command::Register { name });
        }
    }

    fn lowers(&self, id: SlotId) -> impl Iterator<Item = SlotId> + '_ {
        let mut seen = Vec::new();
        for attachment in &self.slots[id.0].attachments {
            if let Below::Ipcp(lower) = attachment.below
                && !seen.contains(&lower)
            {
                seen.push(lower);
            }
        }
        seen.into_iter()
    }

    pub(crate) fn connect_below(
        &mut self,
        id: SlotId,
        index: usize,
        lower: SlotId,
        to: &Attachment,
    ) -> bool {
        let now = self.now();
        let name = self.name(id).to_owned();
        let spec = if to.is_reliable {
            FlowSpec::reliable()
        } else {
            FlowSpec::unreliable()
        };
        let Some(instance) = self
            .instance(lower)
            .filter(|instance| instance.address.is_some())
        else {
            return false;
        };
        let asked = instance.member.allocate(now, &name, &to.remote, spec);
        self.touch(lower);
        match asked {
            Ok(key) => self.hold(lower, key, FlowOwner::Requesting(id, index)),
            Err(_) => false,
        }
    }

    /// Whether the instance in slot `id` has deallocated the flow itself.
    pub(crate) fn has_let_go(&mut self, id: SlotId, key: FlowKey) -> bool {
        self.instance(id)
            .is_some_and(|instance| instance.gone.contains(&key))
    }

    /// Records the owner of a flow. Returns false, and records a failure, if the key is in use.
    pub(crate) fn hold(&mut self, id: SlotId, key: FlowKey, owner: FlowOwner) -> bool {
        let Some(instance) = self.instance(id) else {
            return false;
        };
        instance.gone.remove(&key);
        if let Some(old) = instance.flows.insert(key, owner) {
            let text = format!(
                "{} gives {key:?} to {owner:?}, but {old:?} has it",
                self.name(id)
            );
            self.fail(text);
            return false;
        }
        true
    }

    /// Handles the answer to a higher IPCP's request for a flow.
    pub(crate) fn upper_allocated(
        &mut self,
        lower: SlotId,
        key: FlowKey,
        (upper, attachment): (SlotId, usize),
        result: Result<(), Reason>,
    ) {
        let is_up = result.is_ok();
        if let Some(instance) = self.instance(lower) {
            instance.flows.remove(&key);
        }
        if !is_up {
            if let Some(instance) = self.instance(upper) {
                instance.links[attachment] = Link::Idle;
            }
            return self.maintain_n1_later(upper);
        }
        let remote = self.slots[upper.0].attachments[attachment].remote.clone();
        self.flow_for_upper(lower, key, upper, Some(attachment), remote, true);
    }

    fn flow_for_upper(
        &mut self,
        lower: SlotId,
        key: FlowKey,
        upper: SlotId,
        attachment: Option<usize>,
        remote: String,
        is_initiator: bool,
    ) {
        let now = self.now();
        let below = Lower::Flow {
            slot: lower,
            key,
            partial: Vec::new(),
        };
        let Some(n1) = self.n1_up(upper, below, attachment, remote, is_initiator) else {
            return;
        };
        self.hold(lower, key, FlowOwner::Upper(upper, n1));
        if let Some(instance) = self.instance(lower) {
            instance.member.set_delivery_room(now, key, UPPER_ROOM);
        }
    }

    /// Handles a request for a flow to a higher IPCP. Returns false if no such IPCP runs on this
    /// system.
    pub(crate) fn upper_incoming(
        &mut self,
        lower: SlotId,
        flow: FlowKey,
        local: &str,
        remote: &str,
    ) -> bool {
        let system = self.slots[lower.0].system;
        let slots = self.systems[system.0].slots.iter().copied();
        let mut uppers = slots.filter(|slot| {
            let slot = &self.slots[slot.0];
            slot.config.name == local && slot.instance.is_some()
        });
        let Some(upper) = uppers.next() else {
            return false;
        };
        let answer = Ok(());
        self.command(lower, Command::Respond { flow, answer });
        let attachment = self.attachment_to(upper, Below::Ipcp(lower), remote);
        self.flow_for_upper(lower, flow, upper, attachment, remote.to_owned(), false);
        true
    }
}
