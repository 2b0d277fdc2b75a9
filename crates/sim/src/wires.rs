//! N-1 flows: over cables and over the IPCPs of DIFs below, as a node would make them.
//!
//! ```text
//!   IPCP of DIF N  -- N1Port --+-- flow of an IPCP below on the same system (to any depth)
//!                              +-- flow over a cable -- the other system
//! ```

use carina_ipcp::{Command, Delivery, FlowKey, N1Port, N1Properties};
use carina_wire::{Bytes, FlowSpec, Payload};

use crate::world::{
    Attachment, Below, CableId, Happening, Holder, Life, Link, Lower, N1, SeatId, User, World,
};

/// Who asked for a flow over a cable: seat, incarnation, attachment.
pub(crate) type Asker = (SeatId, u32, usize);

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

    /// Asks for a visit of the operator.
    pub(crate) fn tend_at(&mut self, id: SeatId, at: u64) {
        let incarnation = self.seats[id.0].incarnation;
        if let Some(life) = self.life(id)
            && life.tends_at.is_none_or(|planned| at < planned)
        {
            life.tends_at = Some(at);
            self.agenda.put(at, Happening::Tend(id, incarnation));
        }
    }

    /// The operator's visit: N-1 flows that are missing are asked for; who is no member asks again.
    pub(crate) fn tend(&mut self, id: SeatId) {
        let now = self.now();
        if !self.seats[id.0].is_wanted {
            return;
        }
        for index in 0..self.seats[id.0].attachments.len() {
            let asks = self.seats[id.0].attachments[index].asks;
            let is_idle = self
                .life(id)
                .is_some_and(|life| life.links.get(index) == Some(&Link::Idle));
            if asks && is_idle {
                self.connect(id, index);
            }
        }
        let Some(life) = self.life(id) else {
            return;
        };
        if life.address.is_none() {
            let ripe = |n1: &&N1| now.saturating_sub(n1.since) >= PATIENCE_NS;
            let again: Vec<usize> = (0..life.n1s.len())
                .filter(|index| life.n1s[*index].as_ref().filter(ripe).is_some())
                .collect();
            for index in again {
                let n1 = N1Port(index as u32);
                self.command(id, Command::Enroll { n1 });
            }
            self.tend_later(id);
        } else if life.links.contains(&Link::Idle) {
            let asks =
                |(link, attachment): (&Link, &Attachment)| *link == Link::Idle && attachment.asks;
            let seat = &self.seats[id.0];
            let links = seat.life.as_ref().map(|life| &life.links);
            if links.is_some_and(|links| links.iter().zip(&seat.attachments).any(asks)) {
                self.tend_later(id);
            }
        }
    }

    pub(crate) fn tend_later(&mut self, id: SeatId) {
        let at = self.now() + self.random.within(PATIENCE_NS / 2, 3 * PATIENCE_NS / 2);
        self.tend_at(id, at);
    }

    /// The IPCP wants an N-1 flow: one that was planned, or a new one that leads there.
    pub(crate) fn need_n1(&mut self, id: SeatId, dif: &str, remote: &str) {
        let known = self.seats[id.0].attachments.iter().position(|attachment| {
            attachment.remote == remote && self.dif_below(attachment.below) == dif
        });
        let index = match known {
            Some(index) => index,
            None => {
                let Some(below) = self.find_below(id, dif) else {
                    return;
                };
                self.seats[id.0].attachments.push(Attachment {
                    below,
                    remote: remote.to_owned(),
                    asks: false,
                    is_reliable: false,
                });
                let Some(life) = self.life(id) else {
                    return;
                };
                life.links.push(Link::Idle);
                life.links.len() - 1
            }
        };
        if self
            .life(id)
            .is_some_and(|life| life.links[index] == Link::Idle)
        {
            self.connect(id, index);
        }
    }

    fn dif_below(&self, below: Below) -> &str {
        match below {
            Below::Cable(cable) => &self.cables[cable.0].name,
            Below::Seat(seat) => &self.seats[seat.0].config.dif,
        }
    }

    fn find_below(&self, id: SeatId, dif: &str) -> Option<Below> {
        let system = self.seats[id.0].system;
        let mut seats = self.systems[system.0].seats.iter().copied();
        let lower = seats.find(|seat| self.seats[seat.0].config.dif == dif);
        let mut cables = self.cables.iter();
        let cable = cables.position(|cable| cable.name == dif && cable.ends.contains(&system));
        lower
            .map(Below::Seat)
            .or(cable.map(|cable| Below::Cable(CableId(cable))))
    }

    /// Asks for the N-1 flow of an attachment.
    fn connect(&mut self, id: SeatId, index: usize) {
        let now = self.now();
        let seat = &self.seats[id.0];
        let (incarnation, system) = (seat.incarnation, seat.system);
        let attachment = seat.attachments[index].clone();
        let asked = match attachment.below {
            Below::Cable(cable) => {
                let model = &self.cables[cable.0];
                let side = usize::from(model.ends[0] == system);
                let at = now + model.profile.delay_ns;
                let asked = Happening::Asked {
                    cable,
                    side,
                    asker: id,
                    incarnation,
                    attachment: index,
                };
                self.agenda.put(at, asked);
                true
            }
            Below::Seat(lower) => self.connect_below(id, index, lower, &attachment),
        };
        if asked && let Some(life) = self.life(id) {
            life.links[index] = Link::Asking;
        } else {
            self.tend_later(id);
        }
    }

    fn connect_below(&mut self, id: SeatId, index: usize, lower: SeatId, to: &Attachment) -> bool {
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

    /// Notes who has a flow; false, and a failure, when the key is taken.
    pub(crate) fn hold(&mut self, id: SeatId, key: FlowKey, holder: Holder) -> bool {
        let Some(life) = self.life(id) else {
            return false;
        };
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

    /// A flow over a cable is asked for, seen from the other side.
    pub(crate) fn asked(&mut self, cable: CableId, side: usize, asker: Asker) {
        let now = self.now();
        let (from, incarnation, attachment) = asker;
        let remote = self.seats[from.0].attachments[attachment].remote.clone();
        let model = &self.cables[cable.0];
        let system = &self.systems[model.ends[side].0];
        let called = system.seats.iter().copied().find(|seat| {
            let seat = &self.seats[seat.0];
            seat.config.name == remote && seat.life.is_some()
        });
        let is_there = model.is_up && self.systems[model.ends[1 - side].0].is_up;
        let flow = called.filter(|_| is_there).map(|called| {
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
        let answer = Happening::Answered {
            cable,
            asker: from,
            incarnation,
            attachment,
            flow,
        };
        self.agenda.put(at, answer);
    }

    /// The attachment that an incoming flow fills, if it was planned and is empty.
    fn attachment_to(&self, id: SeatId, below: Below, remote: &str) -> Option<usize> {
        let seat = &self.seats[id.0];
        let life = seat.life.as_ref()?;
        seat.attachments
            .iter()
            .zip(&life.links)
            .position(|(attachment, link)| {
                attachment.below == below && attachment.remote == remote && *link == Link::Idle
            })
    }

    /// The asking side of a flow over a cable has its answer.
    pub(crate) fn answered(&mut self, cable: CableId, asker: Asker, flow: Option<u32>) {
        let (id, incarnation, attachment) = asker;
        let model = &self.cables[cable.0];
        let system = self.seats[id.0].system;
        let side = usize::from(model.ends[0] != system);
        let is_live = |flow: &u32| {
            let ends = model.flows.get(flow);
            model.is_up && ends.is_some_and(|ends| ends[1 - side].is_some())
        };
        let usable = flow.filter(is_live);
        if self.same_life(id, incarnation).is_none() {
            if let Some(flow) = flow {
                self.tell_other_side(cable, 1 - side, flow);
            }
            return;
        }
        match usable {
            Some(flow) => {
                let lower = Lower::Cable { cable, flow, side };
                let remote = self.seats[id.0].attachments[attachment].remote.clone();
                self.n1_up(id, lower, Some(attachment), remote, true);
            }
            None => {
                if let Some(flow) = flow {
                    self.tell_other_side(cable, 1 - side, flow);
                }
                if let Some(life) = self.life(id) {
                    life.links[attachment] = Link::Idle;
                }
                self.tend_later(id);
            }
        }
    }

    /// Gives an IPCP an N-1 flow.
    fn n1_up(
        &mut self,
        id: SeatId,
        lower: Lower,
        attachment: Option<usize>,
        remote: String,
        is_initiator: bool,
    ) -> Option<N1Port> {
        let now = self.now();
        let incarnation = self.seats[id.0].incarnation;
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
            Lower::Flow { seat, .. } => {
                let is_reliable =
                    attachment.is_some_and(|index| self.seats[id.0].attachments[index].is_reliable);
                let dif = self.seats[seat.0].config.dif.clone();
                (dif, STACKED_SDU_MAX, is_reliable, false)
            }
        };
        let life = self.life(id)?;
        let free = life.n1s.iter().position(Option::is_none);
        let index = free.unwrap_or(life.n1s.len());
        if index == life.n1s.len() {
            life.n1s.push(None);
        }
        let n1 = N1Port(index as u32);
        let place = match lower {
            Lower::Cable { cable, flow, side } => Some((cable, flow, side)),
            Lower::Flow { .. } => None,
        };
        life.n1s[index] = Some(N1 {
            lower,
            attachment,
            since: now,
        });
        if let Some(attachment) = attachment {
            life.links[attachment] = Link::Up(n1);
        }
        if let Some((cable, flow, side)) = place {
            let user = User {
                seat: id,
                incarnation,
                n1,
            };
            if let Some(ends) = self.cables[cable.0].flows.get_mut(&flow) {
                ends[side] = Some(user);
            }
        }
        let words = format_args!("{} {n1:?} {dif} to {remote}", self.seats[id.0].config.name);
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

    /// An N-1 flow of an IPCP has ended, whoever ended it.
    pub(crate) fn n1_down(&mut self, id: SeatId, n1: N1Port, reason: &str) {
        let now = self.now();
        let Some(gone) = self.forget_n1(id, n1) else {
            return;
        };
        if let Lower::Cable { cable, flow, side } = gone.lower {
            self.vacate(cable, flow, side);
        }
        let words = format_args!("{} {n1:?}: {reason}", self.seats[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "n1-down", &n1.0.to_le_bytes(), words);
        let reason = reason.to_owned();
        self.command(id, Command::N1Down { n1, reason });
        self.tend_later(id);
    }

    /// The IPCP wants to be rid of an N-1 flow.
    pub(crate) fn drop_n1(&mut self, id: SeatId, n1: N1Port, reason: &str) {
        let now = self.now();
        let Some(gone) = self.forget_n1(id, n1) else {
            return;
        };
        let words = format_args!("{} {n1:?}: {reason}", self.seats[id.0].config.name);
        self.trace
            .note(now, id.0 as u64, "n1-drop", &n1.0.to_le_bytes(), words);
        match gone.lower {
            Lower::Cable { cable, flow, side } => {
                self.vacate(cable, flow, side);
                self.tell_other_side(cable, 1 - side, flow);
            }
            Lower::Flow { seat, key, .. } => {
                if let Some(life) = self.life(seat) {
                    life.flows.remove(&key);
                }
                let reason = reason.to_owned();
                self.command(seat, Command::Deallocate { flow: key, reason });
            }
        }
        let reason = reason.to_owned();
        self.command(id, Command::N1Down { n1, reason });
        self.tend_later(id);
    }

    fn forget_n1(&mut self, id: SeatId, n1: N1Port) -> Option<N1> {
        let life = self.life(id)?;
        let gone = life.n1s.get_mut(n1.0 as usize)?.take()?;
        if let Some(attachment) = gone.attachment {
            life.links[attachment] = Link::Idle;
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

    /// The other end of a flow over a cable hears of its end, if the cable carries anything.
    pub(crate) fn tell_other_side(&mut self, cable: CableId, side: usize, flow: u32) {
        let model = &self.cables[cable.0];
        if model.is_up {
            let at = self.now() + model.profile.delay_ns;
            self.agenda.put(at, Happening::Ended { cable, side, flow });
        }
    }

    pub(crate) fn ended(&mut self, cable: CableId, side: usize, flow: u32) {
        let ends = self.cables[cable.0].flows.get(&flow);
        if let Some(user) = ends.and_then(|ends| ends[side]) {
            self.n1_down(user.seat, user.n1, "the other side ended it");
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
            self.n1_down(user.seat, user.n1, "the link is dead");
        }
    }

    /// Sends what an IPCP has for one N-1 flow; false when there is no such flow.
    pub(crate) fn transmit(&mut self, id: SeatId, n1: N1Port) -> bool {
        let name = self.seats[id.0].config.name.clone();
        let Some(life) = self.life(id) else {
            return false;
        };
        let lower = match life.n1s.get(n1.0 as usize).and_then(Option::as_ref) {
            Some(N1 {
                lower: Lower::Cable { cable, flow, side },
                ..
            }) => Ok((*cable, *flow, *side)),
            Some(N1 {
                lower: Lower::Flow { seat, key, .. },
                ..
            }) => Err((*seat, *key)),
            None => {
                self.fail(format!("{name} has PDUs for {n1:?}, which is not up"));
                return false;
            }
        };
        loop {
            let Some(len) = self.life(id).and_then(|life| life.member.peek_transmit(n1)) else {
                return true;
            };
            let went = match lower {
                Ok((cable, flow, side)) => self.onto_cable(id, n1, len, (cable, flow, side)),
                Err((seat, key)) => self.into_flow(id, n1, len, (seat, key)),
            };
            if !went {
                return true;
            }
        }
    }

    fn take(&mut self, id: SeatId, n1: N1Port, len: usize) -> Option<Bytes> {
        let now = self.now();
        let pdu = self
            .life(id)
            .and_then(|life| life.member.take_transmit(now, n1));
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
            // It was dropped at the last moment, and the next one may come.
            None => None,
        }
    }

    fn onto_cable(
        &mut self,
        id: SeatId,
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
                seat: id,
                incarnation: self.seats[id.0].incarnation,
                n1,
            };
            if let Some(life) = self.life(id) {
                life.member.block_n1(n1);
            }
            self.agenda.put(free_at, Happening::Unblock(user));
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
            self.seats[id.0].config.name,
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
            let arrive = Happening::Arrive {
                cable,
                side: 1 - side,
                flow,
                pdu,
            };
            self.agenda.put(at, arrive);
        }
        true
    }

    fn into_flow(&mut self, id: SeatId, n1: N1Port, len: usize, to: (SeatId, FlowKey)) -> bool {
        let now = self.now();
        let (seat, key) = to;
        let room = self.life(seat).map_or(0, |life| life.member.room(key));
        if room < len {
            if let Some(life) = self.life(id) {
                life.member.block_n1(n1);
            }
            return false;
        }
        let Some(pdu) = self.take(id, n1, len) else {
            return self.failures().is_empty();
        };
        if let Some(life) = self.life(seat) {
            life.member.on_sdu(now, key, pdu, false);
            self.touch(seat);
        }
        true
    }

    /// A PDU comes out of a cable.
    pub(crate) fn arrive(&mut self, cable: CableId, side: usize, flow: u32, pdu: Vec<u8>) {
        let now = self.now();
        let model = &self.cables[cable.0];
        if !model.is_up {
            return;
        }
        let Some(user) = model.flows.get(&flow).and_then(|ends| ends[side]) else {
            return;
        };
        if let Some(life) = self.same_life(user.seat, user.incarnation) {
            life.member.on_pdu(now, user.n1, Bytes::from(pdu));
            self.touch(user.seat);
        }
    }

    /// An IPCP delivers to one of its flows.
    pub(crate) fn deliver(&mut self, id: SeatId, delivery: Delivery<Bytes>) {
        let now = self.now();
        let Delivery { flow, sdu, more } = delivery;
        let holder = self
            .life(id)
            .and_then(|life| life.flows.get(&flow).copied());
        match holder {
            Some(Holder::Session(session, side)) => self.read(session, side, &sdu, more),
            Some(Holder::Upper(upper, n1)) => {
                if let Some(pdu) = self.lift(upper, n1, &sdu, more)
                    && let Some(life) = self.life(upper)
                {
                    life.member.on_pdu(now, n1, Bytes::from(pdu));
                    self.touch(upper);
                }
                if let Some(life) = self.life(id) {
                    life.member.set_delivery_room(now, flow, UPPER_ROOM);
                }
            }
            Some(Holder::Asking(..)) | None => {
                let text = format!("{} delivers to {flow:?}, which nobody has", self.name(id));
                self.fail(text);
            }
        }
    }

    /// A whole PDU for the IPCP above, when this was its last piece.
    fn lift(&mut self, upper: SeatId, n1: N1Port, sdu: &Bytes, more: bool) -> Option<Vec<u8>> {
        let n1 = self.life(upper)?.n1s.get_mut(n1.0 as usize)?.as_mut()?;
        let Lower::Flow { partial, .. } = &mut n1.lower else {
            return None;
        };
        sdu.append_to(partial);
        (!more).then(|| std::mem::take(partial))
    }

    /// A flow may write more than it could.
    pub(crate) fn room_grew(&mut self, id: SeatId, key: FlowKey) {
        let holder = self.life(id).and_then(|life| life.flows.get(&key).copied());
        match holder {
            Some(Holder::Session(session, side)) => self.write(session, side),
            Some(Holder::Upper(upper, n1)) => {
                if let Some(life) = self.life(upper) {
                    life.member.unblock_n1(n1);
                    self.touch(upper);
                }
            }
            Some(Holder::Asking(..)) | None => {}
        }
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

impl Life {
    /// N-1 flows that are up.
    pub fn n1_count(&self) -> usize {
        self.n1s.iter().flatten().count()
    }
}

/// How long the operator waits before it asks again, in ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Longest PDU of an IPCP over a flow of an IPCP, in bytes.
pub(crate) const STACKED_SDU_MAX: usize = 65_535;

/// What an IPCP above can take at any time, in bytes: it is never behind.
const UPPER_ROOM: usize = 1 << 20;
