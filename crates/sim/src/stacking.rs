//! DIFs over DIFs: an IPCP's flow is the N-1 flow of an IPCP above on the same system.

use carina_ipcp::{Command, FlowKey};
use carina_wire::FlowSpec;

use crate::carry::UPPER_ROOM;
use crate::parts::{Attachment, Below, Holder, Link, Lower, SeatId};
use crate::world::World;

impl World {
    /// Registers a seat's name in the IPCPs below it, and the names above it in it.
    pub(crate) fn register_below(&mut self, id: SeatId) {
        let name = self.name(id).to_owned();
        let lowers: Vec<SeatId> = self.lowers(id).collect();
        for lower in lowers {
            if self.address(lower).is_some() {
                let name = name.clone();
                self.command(lower, Command::Register { name });
            }
        }
    }

    /// A seat has become a member: everybody who wants to be reached through it says so.
    pub(crate) fn register_above(&mut self, id: SeatId) {
        let system = self.seats[id.0].system;
        let mut names = self.seats[id.0].apps.clone();
        for above in self.systems[system.0].seats.clone() {
            let is_above = self.lowers(above).any(|lower| lower == id);
            if is_above && self.seats[above.0].life.is_some() {
                names.push(self.name(above).to_owned());
                self.tend_at(above, self.now());
            }
        }
        for name in names {
            self.command(id, Command::Register { name });
        }
    }

    fn lowers(&self, id: SeatId) -> impl Iterator<Item = SeatId> + '_ {
        let mut seen = Vec::new();
        for attachment in &self.seats[id.0].attachments {
            if let Below::Seat(lower) = attachment.below
                && !seen.contains(&lower)
            {
                seen.push(lower);
            }
        }
        seen.into_iter()
    }

    pub(crate) fn connect_below(
        &mut self,
        id: SeatId,
        index: usize,
        lower: SeatId,
        to: &Attachment,
    ) -> bool {
        let now = self.now();
        let name = self.name(id).to_owned();
        let spec = match to.is_reliable {
            true => FlowSpec::reliable(),
            false => FlowSpec::unreliable(),
        };
        let Some(life) = self.life(lower).filter(|life| life.address.is_some()) else {
            return false;
        };
        let asked = life.member.allocate(now, &name, &to.remote, spec);
        self.touch(lower);
        match asked {
            Ok(key) => self.hold(lower, key, Holder::Asking(id, index)),
            Err(_) => false,
        }
    }

    /// The flow was deallocated from this side.
    pub(crate) fn has_let_go(&mut self, id: SeatId, key: FlowKey) -> bool {
        self.life(id).is_some_and(|life| life.gone.contains(&key))
    }

    /// Notes who has a flow; false, and a failure, when the key is taken.
    pub(crate) fn hold(&mut self, id: SeatId, key: FlowKey, holder: Holder) -> bool {
        let Some(life) = self.life(id) else {
            return false;
        };
        life.gone.remove(&key);
        if let Some(old) = life.flows.insert(key, holder) {
            let text = format!(
                "{} gives {key:?} to {holder:?}, but {old:?} has it",
                self.name(id)
            );
            self.fail(text);
            return false;
        }
        true
    }

    /// The flow that an IPCP above asked for is there, or not.
    pub(crate) fn upper_allocated(
        &mut self,
        lower: SeatId,
        key: FlowKey,
        (upper, attachment): (SeatId, usize),
        result: Result<(), String>,
    ) {
        let is_up = result.is_ok();
        if let Some(life) = self.life(lower) {
            life.flows.remove(&key);
        }
        if !is_up {
            if let Some(life) = self.life(upper) {
                life.links[attachment] = Link::Idle;
            }
            return self.tend_later(upper);
        }
        let remote = self.seats[upper.0].attachments[attachment].remote.clone();
        self.flow_for_upper(lower, key, upper, Some(attachment), remote, true);
    }

    fn flow_for_upper(
        &mut self,
        lower: SeatId,
        key: FlowKey,
        upper: SeatId,
        attachment: Option<usize>,
        remote: String,
        is_initiator: bool,
    ) {
        let now = self.now();
        let below = Lower::Flow {
            seat: lower,
            key,
            partial: Vec::new(),
        };
        let Some(n1) = self.n1_up(upper, below, attachment, remote, is_initiator) else {
            return;
        };
        self.hold(lower, key, Holder::Upper(upper, n1));
        if let Some(life) = self.life(lower) {
            life.member.set_delivery_room(now, key, UPPER_ROOM);
        }
    }

    /// Somebody asks for a flow to an IPCP above. False when no such IPCP lives here.
    pub(crate) fn upper_incoming(
        &mut self,
        lower: SeatId,
        flow: FlowKey,
        local: &str,
        remote: &str,
    ) -> bool {
        let system = self.seats[lower.0].system;
        let seats = self.systems[system.0].seats.iter().copied();
        let mut uppers = seats.filter(|seat| {
            let seat = &self.seats[seat.0];
            seat.config.name == local && seat.life.is_some()
        });
        let Some(upper) = uppers.next() else {
            return false;
        };
        let answer = Ok(());
        self.command(lower, Command::Respond { flow, answer });
        let attachment = self.attachment_to(upper, Below::Seat(lower), remote);
        self.flow_for_upper(lower, flow, upper, attachment, remote.to_owned(), false);
        true
    }
}
