//! Members wired to one another, on a virtual clock; used by the tests of every dialect.
//!
//! A test crate adds the parts of its dialect (`DIALECTS`, configurations, toolboxes) in its own
//! `net.rs`.

mod asking;

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::N1Properties;
use carina_ipcp::security::Toolbox;
use carina_ipcp::{
    Catalogue, Command, Config, DifConfig, Event, FlowKey, Ipcp, N1Port, PolicySpec,
};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long a PDU takes on a wire.
const DELAY: Duration = MS;

/// One end of a wire.
pub(crate) type End = (String, N1Port);

/// Properties of the N-1 DIF of all members.
pub(crate) struct Below {
    pub dif: &'static str,
    pub sdu_max: usize,
    pub giving_back: GivingBack,
}

/// What happens when a member returns an N-1 flow or requests it again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivingBack {
    /// Nothing.
    Ignored,
    /// The member loses the flow and gets it again; the other end is not informed.
    Unheard,
    /// Both ends lose the flow and get it again.
    Heard,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Others can listen to the wire.
    Exposed,
    /// Each side believes that it requested the flow.
    BothAsk,
}

pub(crate) struct Wire {
    pub ends: [End; 2],
    pub is_cut: bool,
    /// Percentage of PDUs that are lost.
    pub loss: u64,
    pub kind: Kind,
    /// The N-1 DIF.
    dif: &'static str,
    pub sdu_max: usize,
    /// All PDUs that were sent, each with the index of the sending end.
    pub sent: Vec<(usize, Vec<u8>)>,
    /// Whether each end has returned the flow.
    is_down: [bool; 2],
}

pub(crate) struct Net {
    below: Below,
    pub now: Instant,
    pub members: BTreeMap<String, Ipcp<Bytes>>,
    pub wires: Vec<Wire>,
    flying: BTreeMap<(Instant, u64), (End, Vec<u8>)>,
    /// Number of PDUs that were put on wires.
    pub flown: u64,
    pub events: Vec<(String, Event)>,
    /// SDUs delivered to applications.
    delivered: BTreeMap<(String, FlowKey), Vec<Vec<u8>>>,
    pub incoming: BTreeMap<String, Vec<FlowKey>>,
    /// Applications that accept every flow.
    pub accepts: BTreeSet<String>,
    next_port: u32,
    next_id: u64,
    random: u64,
}

impl Net {
    /// A net without members. `seed` determines all random choices and must not be 0.
    pub(crate) fn over(below: Below, seed: u64) -> Net {
        Net {
            below,
            now: Instant::from_secs(1),
            members: BTreeMap::new(),
            wires: Vec::new(),
            flying: BTreeMap::new(),
            flown: 0,
            events: Vec::new(),
            delivered: BTreeMap::new(),
            incoming: BTreeMap::new(),
            accepts: BTreeSet::new(),
            next_port: 0,
            next_id: 0,
            random: seed,
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds an IPCP that is not a member.
    pub(crate) fn insert(&mut self, config: Config, toolbox: impl Toolbox + 'static, seed: u64) {
        let name = config.name.clone();
        self.insert_as(&name, config, toolbox, seed);
    }

    /// Like [`Net::insert`], for an IPCP to which the test refers as `known_as`.
    pub(crate) fn insert_as(
        &mut self,
        known_as: &str,
        config: Config,
        toolbox: impl Toolbox + 'static,
        seed: u64,
    ) {
        let ipcp = Ipcp::new(
            super::DIALECTS,
            config,
            Box::new(toolbox),
            Catalogue::empty(),
            seed,
        );
        let ipcp = ipcp.expect("a good config");
        self.members.insert(known_as.to_string(), ipcp);
    }

    pub(crate) fn order(&mut self, name: &str, command: Command) {
        let now = self.now;
        self.member(name).handle(now, command);
        self.pump(name);
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Ipcp<Bytes> {
        self.members.get_mut(name).expect("a member of the test")
    }

    /// Adds an N-1 flow from `a`, which requests it, to `b`.
    pub(crate) fn wire(&mut self, a: &str, b: &str) -> usize {
        self.lay(a, b, self.below.sdu_max, Kind::Plain, 0)
    }

    pub(crate) fn wire_with(&mut self, a: &str, b: &str, sdu_max: usize, kind: Kind) -> usize {
        self.lay(a, b, sdu_max, kind, 0)
    }

    /// Like [`Net::wire`], over another N-1 DIF.
    pub(crate) fn wire_over(&mut self, dif: &'static str, a: &str, b: &str) -> usize {
        let usual = std::mem::replace(&mut self.below.dif, dif);
        let wire = self.wire(a, b);
        self.below.dif = usual;
        wire
    }

    pub(crate) fn lossy_wire(&mut self, a: &str, b: &str, loss: u64) -> usize {
        self.lay(a, b, self.below.sdu_max, Kind::Plain, loss)
    }

    fn lay(&mut self, a: &str, b: &str, sdu_max: usize, kind: Kind, loss: u64) -> usize {
        let mut port = || {
            self.next_port += 1;
            N1Port(self.next_port)
        };
        let ends = [(a.to_string(), port()), (b.to_string(), port())];
        let at = self.wires.len();
        self.wires.push(Wire {
            ends,
            is_cut: false,
            loss,
            kind,
            dif: self.below.dif,
            sdu_max,
            sent: Vec::new(),
            is_down: [false; 2],
        });
        self.raise_both(at);
        at
    }

    /// Tells one end that the N-1 flow is up.
    pub(crate) fn raise(&mut self, wire: usize, end: usize) {
        let wire = &self.wires[wire];
        let (name, n1) = wire.ends[end].clone();
        let mut props = self.below.props(&wire.ends[1 - end].0, end == 0);
        props.dif = wire.dif.into();
        props.sdu_max = wire.sdu_max;
        props.is_exposed = wire.kind == Kind::Exposed;
        props.is_initiator |= wire.kind == Kind::BothAsk;
        if self.members.contains_key(&name) {
            self.order(&name, Command::N1Up { n1, props });
        }
    }

    fn raise_both(&mut self, wire: usize) {
        for end in [1, 0] {
            self.raise(wire, end);
        }
    }

    /// Handles a member that returns its end of an N-1 flow.
    fn drop_end(&mut self, name: &str, n1: N1Port) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        let is_heard = self.below.giving_back == GivingBack::Heard;
        let mut other = None;
        for wire in &mut self.wires {
            if let Some(index) = wire.ends.iter().position(is_end) {
                wire.is_down[index] = true;
                if is_heard && !wire.is_cut && !wire.is_down[1 - index] {
                    wire.is_down[1 - index] = true;
                    other = Some(wire.ends[1 - index].clone());
                }
            }
        }
        self.lower((name.to_string(), n1), "it was given back");
        if let Some(other) = other {
            self.lower(other, "it was given back");
        }
    }

    /// Tells one end that the N-1 flow has ended.
    fn lower(&mut self, (name, n1): End, reason: &str) {
        if self.members.contains_key(&name) {
            let reason = reason.to_string();
            self.order(&name, Command::N1Down { n1, reason });
        }
    }

    /// Handles a member's request for an N-1 flow that it had returned or lost.
    fn raise_again(&mut self, name: &str, remote: &str) {
        let is_it = |wire: &Wire| {
            let names = [name, remote];
            wire.ends.iter().zip(names).all(|(end, name)| end.0 == name)
                && wire.is_down[0]
                && !wire.is_cut
        };
        if let Some(wire) = self.wires.iter().position(is_it) {
            self.wires[wire].is_down = [false; 2];
            self.raise_both(wire);
        }
    }

    /// Ends an N-1 flow at both ends.
    pub(crate) fn end_wire(&mut self, wire: usize) {
        self.wires[wire].is_cut = true;
        for end in self.wires[wire].ends.clone() {
            self.lower(end, "the test ends it");
        }
    }

    /// Restores an N-1 flow that was ended.
    pub(crate) fn mend_wire(&mut self, wire: usize) {
        self.wires[wire].is_cut = false;
        self.raise_both(wire);
    }

    /// Removes a member. The other ends of its N-1 flows are not informed.
    pub(crate) fn vanish(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Removes a member and ends its N-1 flows at the other ends.
    pub(crate) fn kill(&mut self, name: &str) {
        self.vanish(name);
        for index in 0..self.wires.len() {
            let wire = &self.wires[index];
            if !wire.is_cut && wire.ends.iter().any(|(end, _)| end == name) {
                self.end_wire(index);
            }
        }
    }

    /// Gives a restarted member its N-1 flows again. The other ends are not informed.
    pub(crate) fn raise_all_of(&mut self, name: &str) {
        for wire in 0..self.wires.len() {
            for end in 0..2 {
                if self.wires[wire].ends[end].0 == name && !self.wires[wire].is_cut {
                    self.raise(wire, end);
                }
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let flying = self.flying.keys().next().map(|(at, _)| *at);
            let due = self.members.values().filter_map(Ipcp::poll_timeout).min();
            let next = flying.into_iter().chain(due).min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = until;
    }

    /// Lets time pass until `is_so` returns true; panics after `seconds`.
    pub(crate) fn run_until(&mut self, seconds: u64, what: &str, is_so: impl Fn(&mut Net) -> bool) {
        for _ in 0..seconds {
            if is_so(self) {
                return;
            }
            self.run(SECOND);
        }
        let last = &self.events[self.events.len().saturating_sub(30)..];
        panic!("not so after {seconds} s: {what}; {last:#?}");
    }

    fn step(&mut self) {
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (end, bytes) = entry.remove();
            self.arrive(end, bytes);
        }
        let now = self.now;
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in names {
            let member = self.member(&name);
            if member.poll_timeout().is_some_and(|at| at <= now) {
                member.handle_timeout(now);
                self.pump(&name);
            }
        }
    }

    fn arrive(&mut self, (name, n1): End, bytes: Vec<u8>) {
        let now = self.now;
        if let Some(member) = self.members.get_mut(&name) {
            member.on_pdu(now, n1, Bytes::from(bytes));
            self.pump(&name);
        }
    }

    /// Delivers a PDU to end `to` of a wire, as if the other end had sent it.
    pub(crate) fn inject(&mut self, wire: usize, to: usize, pdu: Vec<u8>) {
        let end = self.wires[wire].ends[to].clone();
        self.arrive(end, pdu);
    }

    /// The PDUs that one end of a wire has sent since the last call.
    pub(crate) fn take_sent(&mut self, wire: usize, end: usize) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.wires[wire].sent);
        let of_end = sent.into_iter().filter(|(from, _)| *from == end);
        of_end.map(|(_, pdu)| pdu).collect()
    }

    /// Takes all output of a member.
    pub(crate) fn pump(&mut self, name: &str) {
        let now = self.now;
        let member = self.member(name);
        member.end_of_burst(now);
        let mut sent = Vec::new();
        while let Some(n1) = member.poll_n1() {
            if let Some(pdu) = member.take_transmit(now, n1) {
                sent.push((n1, pdu.as_slice().to_vec()));
            }
        }
        let mut delivered = Vec::new();
        while let Some(delivery) = member.poll_deliver() {
            delivered.push((delivery.flow, delivery.sdu.as_slice().to_vec()));
        }
        while member.poll_room().is_some() {}
        let mut events = Vec::new();
        while let Some(event) = member.poll_event() {
            events.push(event);
        }
        member.release_burst();
        for (n1, pdu) in sent {
            self.fly(name, n1, pdu);
        }
        for (flow, sdu) in delivered {
            let key = (name.to_string(), flow);
            self.delivered.entry(key).or_default().push(sdu);
        }
        for event in events {
            self.on_event(name, event);
        }
    }

    fn on_event(&mut self, name: &str, event: Event) {
        self.events.push((name.to_string(), event.clone()));
        let is_given_back = self.below.giving_back != GivingBack::Ignored;
        match event {
            Event::Incoming { flow, local, .. } => {
                let of_member = self.incoming.entry(name.to_string());
                of_member.or_default().push(flow);
                if self.accepts.contains(&local) {
                    let answer = Ok(());
                    self.order(name, Command::Respond { flow, answer });
                }
            }
            Event::DropN1 { n1, .. } if is_given_back => self.drop_end(name, n1),
            Event::NeedN1 { remote, .. } if is_given_back => self.raise_again(name, &remote),
            _ => {}
        }
    }

    fn fly(&mut self, name: &str, n1: N1Port, pdu: Vec<u8>) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        let wires = &mut self.wires;
        let Some(wire) = wires.iter_mut().find(|wire| wire.ends.iter().any(is_end)) else {
            return;
        };
        let end = usize::from(!is_end(&wire.ends[0]));
        wire.sent.push((end, pdu.clone()));
        let (other, loss) = (wire.ends[1 - end].clone(), wire.loss);
        if wire.is_cut || loss > 0 && self.random() % 100 < loss {
            return;
        }
        self.flown += 1;
        self.flying
            .insert((self.now + DELAY, self.flown), (other, pdu));
    }
}

impl Below {
    /// The properties of an N-1 flow at one end.
    pub(crate) fn props(&self, remote: &str, is_initiator: bool) -> N1Properties {
        N1Properties {
            dif: self.dif.into(),
            remote: remote.into(),
            sdu_max: self.sdu_max,
            is_reliable: false,
            is_exposed: false,
            is_initiator,
            cost: 1,
        }
    }
}

pub(crate) fn with_policy(
    mut config: DifConfig,
    component: &str,
    name: &str,
    params: &[(&str, &str)],
) -> DifConfig {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let spec = PolicySpec {
        name: name.into(),
        params: params.iter().map(owned).collect(),
    };
    config.policies.insert(component.into(), spec);
    config
}
