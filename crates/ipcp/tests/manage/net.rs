//! Members wired to one another, on a clock of their own.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::{N1Properties, RibObject, RibOp};
use carina_ipcp::seal::{AuthStep, Authenticator, Reject, Sealer, Toolbox};
use carina_ipcp::{
    Catalogue, Command, Config, DifConfig, Event, FlowKey, Ipcp, N1Port, PolicySpec,
};
use carina_wire::dif::Dialect;
use carina_wire::{Bytes, FlowSpec};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// How long a PDU is on a wire.
const DELAY: u64 = MS;

/// One end of a wire.
type End = (String, N1Port);

pub struct Wire {
    pub ends: [End; 2],
    pub is_cut: bool,
    /// Of a hundred PDUs, so many are lost.
    pub loss: u64,
    kind: Kind,
    sdu_max: usize,
    /// The member at this end has given it back.
    is_down: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Others can listen.
    Exposed,
    /// Each side believes that it asked for the flow.
    BothAsk,
}

pub struct Net {
    pub now: u64,
    pub members: BTreeMap<String, Ipcp<Bytes>>,
    pub wires: Vec<Wire>,
    flying: BTreeMap<(u64, u64), (End, Vec<u8>)>,
    flown: u64,
    pub events: Vec<(String, Event)>,
    pub delivered: BTreeMap<(String, FlowKey), Vec<u8>>,
    pub incoming: BTreeMap<String, Vec<FlowKey>>,
    /// Applications that take every flow.
    pub accepts: BTreeSet<String>,
    next_port: u32,
    next_id: u64,
    random: u64,
}

impl Net {
    pub fn new(seed: u64) -> Net {
        Net {
            now: SECOND,
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
            random: seed | 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds an IPCP that is no member; `password` is what its toolbox knows.
    pub fn add(&mut self, name: &str, config: Option<DifConfig>, password: &str) {
        self.add_to("net", name, config, password);
    }

    /// The same for a DIF of another name.
    pub fn add_to(&mut self, dif: &str, name: &str, dif_config: Option<DifConfig>, password: &str) {
        let seed = self.random();
        let config = Config {
            name: name.into(),
            dif: dif.into(),
            dialect: Dialect::Native,
            dif_config,
        };
        let toolbox = Box::new(Words {
            password: password.into(),
        });
        let ipcp = Ipcp::new(config, toolbox, Catalogue::empty(), seed).expect("a good config");
        self.members.insert(name.into(), ipcp);
    }

    /// Adds a member that begins the DIF.
    pub fn bootstrap(&mut self, name: &str, config: DifConfig) {
        self.add(name, Some(config), "secret");
        self.order(name, Command::Bootstrap);
    }

    pub fn order(&mut self, name: &str, command: Command) {
        let now = self.now;
        self.member(name).handle(now, command);
        self.pump(name);
    }

    pub fn member(&mut self, name: &str) -> &mut Ipcp<Bytes> {
        self.members.get_mut(name).expect("a member of the test")
    }

    /// A new N-1 flow from `a`, which asks for it, to `b`.
    pub fn wire(&mut self, a: &str, b: &str) -> usize {
        self.wire_with(a, b, 1500, Kind::Plain)
    }

    pub fn wire_with(&mut self, a: &str, b: &str, sdu_max: usize, kind: Kind) -> usize {
        let mut port = || {
            self.next_port += 1;
            N1Port(self.next_port)
        };
        let ends = [(a.to_string(), port()), (b.to_string(), port())];
        let at = self.wires.len();
        self.wires.push(Wire {
            ends,
            kind,
            sdu_max,
            is_down: [false; 2],
            is_cut: false,
            loss: 0,
        });
        for end in 0..2 {
            self.raise(at, end);
        }
        self.wires.len() - 1
    }

    /// One end hears that the N-1 flow is there.
    fn raise(&mut self, wire: usize, end: usize) {
        let Wire {
            ends,
            kind,
            sdu_max,
            ..
        } = &self.wires[wire];
        let (name, n1) = ends[end].clone();
        let props = N1Properties {
            dif: "below".into(),
            remote: ends[1 - end].0.clone(),
            sdu_max: *sdu_max,
            is_reliable: false,
            is_exposed: *kind == Kind::Exposed,
            is_initiator: end == 0 || *kind == Kind::BothAsk,
            cost: 1,
        };
        self.order(&name, Command::N1Up { n1, props });
    }

    /// A member starts anew; its N-1 flows stay, and the other ends hear nothing.
    pub fn restart(&mut self, name: &str, password: &str) {
        self.members.remove(name);
        self.add(name, None, password);
        for wire in 0..self.wires.len() {
            for end in 0..2 {
                if self.wires[wire].ends[end].0 == name && !self.wires[wire].is_cut {
                    self.raise(wire, end);
                }
            }
        }
    }

    /// A member gives its end of an N-1 flow back. The other side does not hear of it.
    fn drop_end(&mut self, name: &str, n1: N1Port) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        for wire in &mut self.wires {
            if let Some(index) = wire.ends.iter().position(is_end) {
                wire.is_down[index] = true;
            }
        }
        let reason = "it was given back".into();
        self.order(name, Command::N1Down { n1, reason });
    }

    /// A member asks for the N-1 flow that it had given back or lost.
    fn raise_again(&mut self, name: &str, remote: &str) {
        let is_it = |wire: &Wire| {
            let names = [name, remote];
            wire.ends.iter().zip(names).all(|(end, name)| end.0 == name)
                && wire.is_down[0]
                && !wire.is_cut
        };
        if let Some(wire) = self.wires.iter().position(is_it) {
            self.wires[wire].is_down = [false; 2];
            self.raise(wire, 1);
            self.raise(wire, 0);
        }
    }

    /// The N-1 flow ends at both sides.
    pub fn end_wire(&mut self, wire: usize) {
        self.wires[wire].is_cut = true;
        for (name, n1) in self.wires[wire].ends.clone() {
            if self.members.contains_key(&name) {
                self.order(
                    &name,
                    Command::N1Down {
                        n1,
                        reason: "the test ends it".into(),
                    },
                );
            }
        }
    }

    /// A member disappears without a word.
    pub fn kill(&mut self, name: &str) {
        self.members.remove(name);
        for index in 0..self.wires.len() {
            if self.wires[index].ends.iter().any(|(end, _)| end == name)
                && !self.wires[index].is_cut
            {
                self.end_wire(index);
            }
        }
    }

    /// Time passes.
    pub fn run(&mut self, time: u64) {
        let until = self.now + time;
        loop {
            let flying = self.flying.keys().next().map(|(at, _)| *at);
            let due = self.members.values().filter_map(Ipcp::poll_timeout).min();
            let Some(next) = flying
                .into_iter()
                .chain(due)
                .min()
                .filter(|at| *at <= until)
            else {
                break;
            };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = until;
    }

    fn step(&mut self) {
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let ((name, n1), bytes) = entry.remove();
            let now = self.now;
            if let Some(member) = self.members.get_mut(&name) {
                member.on_pdu(now, n1, Bytes::from(bytes));
                self.pump(&name);
            }
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

    /// Takes everything out of a member.
    pub fn pump(&mut self, name: &str) {
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
        member.settle();
        for (n1, pdu) in sent {
            self.fly(name, n1, pdu);
        }
        for (flow, bytes) in delivered {
            self.delivered
                .entry((name.to_string(), flow))
                .or_default()
                .extend(bytes);
        }
        let mut answers = Vec::new();
        for event in events {
            if let Event::Incoming { flow, local, .. } = &event {
                self.incoming
                    .entry(name.to_string())
                    .or_default()
                    .push(*flow);
                if self.accepts.contains(local) {
                    answers.push(*flow);
                }
            }
            match &event {
                Event::DropN1 { n1, .. } => self.drop_end(name, *n1),
                Event::NeedN1 { remote, .. } => self.raise_again(name, &remote.clone()),
                _ => {}
            }
            self.events.push((name.to_string(), event));
        }
        for flow in answers {
            self.order(
                name,
                Command::Respond {
                    flow,
                    answer: Ok(()),
                },
            );
        }
    }

    fn fly(&mut self, name: &str, n1: N1Port, pdu: Vec<u8>) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        let wire = self.wires.iter().find(|wire| wire.ends.iter().any(is_end));
        let Some(wire) = wire.filter(|wire| !wire.is_cut) else {
            return;
        };
        let other = wire
            .ends
            .iter()
            .find(|end| !is_end(end))
            .expect("two ends")
            .clone();
        let loss = wire.loss;
        if loss > 0 && self.random() % 100 < loss {
            return;
        }
        self.flown += 1;
        self.flying
            .insert((self.now + DELAY, self.flown), (other, pdu));
    }

    /// Puts bytes on a wire as if `to`'s other end had sent them.
    pub fn inject(&mut self, wire: usize, to: usize, pdu: Vec<u8>) {
        let (name, n1) = self.wires[wire].ends[to].clone();
        let now = self.now;
        self.member(&name).on_pdu(now, n1, Bytes::from(pdu));
        self.pump(&name);
    }

    pub fn allocate(&mut self, at: &str, from: &str, to: &str, spec: FlowSpec) -> FlowKey {
        let now = self.now;
        let key = self
            .member(at)
            .allocate(now, from, to, spec)
            .expect("a request");
        self.pump(at);
        key
    }

    pub fn write(&mut self, at: &str, flow: FlowKey, bytes: &[u8]) {
        let now = self.now;
        self.member(at)
            .on_sdu(now, flow, Bytes::from(bytes.to_vec()), false);
        self.pump(at);
    }

    pub fn read(&mut self, at: &str, flow: FlowKey) -> Vec<u8> {
        self.delivered
            .remove(&(at.to_string(), flow))
            .unwrap_or_default()
    }

    /// What happened at a member and is of a kind.
    pub fn told<T>(&self, at: &str, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        let at_member = self.events.iter().filter(|(name, _)| name == at);
        at_member.filter_map(|(_, event)| pick(event)).collect()
    }

    pub fn is_member(&self, name: &str) -> bool {
        self.members[name].address().is_some()
    }

    /// The result of the allocation of a flow.
    pub fn allocated(&self, at: &str, key: FlowKey) -> Option<Result<(), String>> {
        let pick = |event: &Event| match event {
            Event::Allocated { flow, result } if *flow == key => Some(result.clone()),
            _ => None,
        };
        self.told(at, pick).pop()
    }

    pub fn closed(&self, at: &str, key: FlowKey) -> Option<(bool, String)> {
        let pick = |event: &Event| match event {
            Event::Closed {
                flow,
                is_graceful,
                reason,
            } if *flow == key => Some((*is_graceful, reason.clone())),
            _ => None,
        };
        self.told(at, pick).pop()
    }

    pub fn notices(&self, at: &str) -> Vec<String> {
        self.told(at, |event| match event {
            Event::Notice { text } => Some(text.clone()),
            _ => None,
        })
    }

    pub fn failures(&self, at: &str) -> Vec<String> {
        self.told(at, |event| match event {
            Event::EnrollFailed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Asks for a part of a RIB and waits for the answer.
    pub fn rib(
        &mut self,
        at: &str,
        member: Option<&str>,
        op: RibOp,
    ) -> Result<Vec<RibObject>, String> {
        self.next_id += 1;
        let id = self.next_id;
        let member = member.map(str::to_string);
        self.order(at, Command::Rib { id, member, op });
        for _ in 0..60 {
            let pick = |event: &Event| match event {
                Event::Answer { id: of, result } if *of == id => Some(result.clone()),
                _ => None,
            };
            if let Some(result) = self.told(at, pick).pop() {
                return result;
            }
            self.run(SECOND);
        }
        panic!("no answer to a question about a RIB");
    }

    pub fn read_rib(&mut self, at: &str, path: &str, scope: u32) -> Vec<RibObject> {
        self.rib(
            at,
            None,
            RibOp::Read {
                path: path.into(),
                scope,
            },
        )
        .expect("an object")
    }

    /// Names of what is directly below a path.
    pub fn names(&mut self, at: &str, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let objects = self.read_rib(at, path, 1);
        let names = objects
            .iter()
            .filter_map(|object| object.path.strip_prefix(&below));
        names.map(str::to_string).collect()
    }
}

/// A DIF with quick signs of life.
pub fn config() -> DifConfig {
    DifConfig {
        keepalive_ms: 1000,
        ..DifConfig::default()
    }
}

pub fn with_policy(
    mut config: DifConfig,
    component: &str,
    name: &str,
    params: &[(&str, &str)],
) -> DifConfig {
    let params = params
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    config.policies.insert(
        component.into(),
        PolicySpec {
            name: name.into(),
            params,
        },
    );
    config
}

/// Members in a row, each enrolled through the one before.
pub fn chain(seed: u64, names: &[&str], config: DifConfig) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0], config);
    for pair in names.windows(2) {
        net.add(pair[1], None, "secret");
        net.wire(pair[1], pair[0]);
        net.run(2 * SECOND);
    }
    net.run(3 * SECOND);
    for name in names {
        assert!(net.is_member(name), "{name}: {:?}", net.failures(name));
    }
    net
}

/// A toolbox with a challenge that both sides answer, and a sealer that adds one byte.
pub struct Words {
    password: String,
}

struct Challenge {
    password: Vec<u8>,
    context: Vec<u8>,
    is_initiator: bool,
}

impl Challenge {
    fn proof(&self, role: u8) -> Vec<u8> {
        let mut sum: u64 = u64::from(role);
        for byte in self.password.iter().chain(&self.context) {
            sum = (sum ^ u64::from(*byte))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(5);
        }
        sum.to_be_bytes().to_vec()
    }
}

impl Authenticator for Challenge {
    fn step(&mut self, _now: u64, message: Option<&[u8]>) -> AuthStep {
        let done = |last| AuthStep::Done {
            last,
            secret: Some([7; 32]),
            identity: String::new(),
        };
        match (self.is_initiator, message) {
            (true, None) => AuthStep::Send(self.proof(0)),
            (true, Some(proof)) if proof == self.proof(1) => done(None),
            (false, Some(proof)) if proof == self.proof(0) => done(Some(self.proof(1))),
            _ => AuthStep::Fail("the proof is wrong".into()),
        }
    }
}

struct Stamp(u8);

impl Sealer for Stamp {
    fn overhead(&self) -> usize {
        1
    }

    fn seal(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        pdu.push(self.0);
        Ok(())
    }

    fn open(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        if pdu.pop() == Some(self.0) {
            Ok(())
        } else {
            Err(Reject::Forged)
        }
    }
}

impl Toolbox for Words {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, String> {
        let password = self.password.clone().into_bytes();
        Ok(Box::new(Challenge {
            password,
            context: context.to_vec(),
            is_initiator,
        }))
    }

    fn sealer(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn Sealer>>, String> {
        let secret = secret.ok_or("there is no secret")?;
        Ok(Some(Box::new(Stamp(secret[0]))))
    }

    fn list(
        &self,
    ) -> Vec<(
        &'static str,
        &'static str,
        Vec<(&'static str, &'static str, &'static str)>,
    )> {
        vec![
            ("authentication", "none", vec![]),
            ("authentication", "challenge", vec![]),
            ("sdu-protection", "none", vec![]),
            ("sdu-protection", "stamp", vec![]),
        ]
    }
}
