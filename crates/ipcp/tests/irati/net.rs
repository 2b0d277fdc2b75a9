//! Members of an irati DIF wired to one another, on a clock of their own.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::{N1Properties, RibObject, RibOp};
use carina_ipcp::seal::{AuthStep, Authenticator, Sealer, Toolbox};
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
}

pub struct Net {
    pub now: u64,
    pub members: BTreeMap<String, Ipcp<Bytes>>,
    pub wires: Vec<Wire>,
    flying: BTreeMap<(u64, u64), (End, Vec<u8>)>,
    /// PDUs that were put on wires.
    pub flown: u64,
    pub events: Vec<(String, Event)>,
    pub delivered: BTreeMap<(String, FlowKey), Vec<Vec<u8>>>,
    pub incoming: BTreeMap<String, Vec<FlowKey>>,
    /// Applications that take every flow.
    pub accepts: BTreeSet<String>,
    next_port: u32,
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
            random: seed | 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds an IPCP that is no member.
    pub fn add(&mut self, name: &str, config: DifConfig) {
        self.add_with(name, config, "secret");
    }

    /// The same with another password in its toolbox.
    pub fn add_with(&mut self, name: &str, config: DifConfig, password: &str) {
        let seed = self.random();
        let config = Config {
            name: name.into(),
            dif: "normal.DIF".into(),
            dialect: Dialect::Irati,
            dif_config: Some(config),
        };
        let toolbox = Box::new(Words::new(password));
        let ipcp = Ipcp::new(config, toolbox, Catalogue::empty(), seed).expect("a good config");
        self.members.insert(name.into(), ipcp);
    }

    /// Adds a member that begins the DIF.
    pub fn bootstrap(&mut self, name: &str, config: DifConfig) {
        self.add(name, config);
        self.order(name, Command::Bootstrap);
        assert!(self.is_member(name), "{:?}", self.events);
    }

    pub fn order(&mut self, name: &str, command: Command) {
        let now = self.now;
        self.member(name).handle(now, command);
        self.pump(name);
    }

    pub fn register(&mut self, at: &str, app: &str) {
        self.accepts.insert(app.into());
        self.order(at, Command::Register { name: app.into() });
    }

    pub fn member(&mut self, name: &str) -> &mut Ipcp<Bytes> {
        self.members.get_mut(name).expect("a member of the test")
    }

    /// A new N-1 flow from `a`, which asks for it, to `b`.
    pub fn wire(&mut self, a: &str, b: &str) -> usize {
        let mut port = || {
            self.next_port += 1;
            N1Port(self.next_port)
        };
        let ends = [(a.to_string(), port()), (b.to_string(), port())];
        let at = self.wires.len();
        self.wires.push(Wire {
            ends,
            is_cut: false,
            loss: 0,
        });
        for end in [1, 0] {
            self.raise(at, end);
        }
        at
    }

    /// One end hears that the N-1 flow is there.
    pub fn raise(&mut self, wire: usize, end: usize) {
        let (name, n1) = self.wires[wire].ends[end].clone();
        let props = N1Properties {
            dif: "eth.DIF".into(),
            remote: self.wires[wire].ends[1 - end].0.clone(),
            sdu_max: 1500,
            is_reliable: false,
            is_exposed: false,
            is_initiator: end == 0,
            cost: 1,
        };
        self.order(&name, Command::N1Up { n1, props });
    }

    /// The N-1 flow ends at both sides.
    pub fn end_wire(&mut self, wire: usize) {
        self.wires[wire].is_cut = true;
        for (name, n1) in self.wires[wire].ends.clone() {
            if self.members.contains_key(&name) {
                let reason = "the test ends it".into();
                self.order(&name, Command::N1Down { n1, reason });
            }
        }
    }

    /// It is there again.
    pub fn mend_wire(&mut self, wire: usize) {
        self.wires[wire].is_cut = false;
        for end in [1, 0] {
            self.raise(wire, end);
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

    /// Time passes until something is so; panics after `seconds`.
    pub fn run_until(&mut self, seconds: u64, what: &str, is_so: impl Fn(&mut Net) -> bool) {
        for _ in 0..seconds {
            if is_so(self) {
                return;
            }
            self.run(SECOND);
        }
        let last = self.events.len().saturating_sub(30);
        panic!(
            "not so after {seconds} s: {what}; {:#?}",
            &self.events[last..]
        );
    }

    fn step(&mut self) {
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let ((name, n1), bytes) = entry.remove();
            self.arrive(&name, n1, bytes);
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

    fn arrive(&mut self, name: &str, n1: N1Port, bytes: Vec<u8>) {
        let now = self.now;
        if let Some(member) = self.members.get_mut(name) {
            member.on_pdu(now, n1, Bytes::from(bytes));
            self.pump(name);
        }
    }

    /// A PDU comes to an end of a wire as if the other had sent it.
    pub fn inject(&mut self, wire: usize, to: usize, pdu: Vec<u8>) {
        let (name, n1) = self.wires[wire].ends[to].clone();
        self.arrive(&name, n1, pdu);
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
                .push(bytes);
        }
        let mut answers = Vec::new();
        for event in events {
            if let Event::Incoming { flow, local, .. } = &event {
                let incoming = self.incoming.entry(name.to_string()).or_default();
                incoming.push(*flow);
                if self.accepts.contains(local) {
                    answers.push(*flow);
                }
            }
            self.events.push((name.to_string(), event));
        }
        for flow in answers {
            let answer = Ok(());
            self.order(name, Command::Respond { flow, answer });
        }
    }

    fn fly(&mut self, name: &str, n1: N1Port, pdu: Vec<u8>) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        let wire = self.wires.iter().find(|wire| wire.ends.iter().any(is_end));
        let Some(wire) = wire.filter(|wire| !wire.is_cut) else {
            return;
        };
        let other = wire.ends.iter().find(|end| !is_end(end));
        let other = other.expect("two ends").clone();
        let loss = wire.loss;
        if loss > 0 && self.random() % 100 < loss {
            return;
        }
        self.flown += 1;
        self.flying
            .insert((self.now + DELAY, self.flown), (other, pdu));
    }

    pub fn allocate(&mut self, at: &str, from: &str, to: &str, spec: FlowSpec) -> FlowKey {
        self.try_allocate(at, from, to, spec).expect("a request")
    }

    pub fn try_allocate(
        &mut self,
        at: &str,
        from: &str,
        to: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, String> {
        let now = self.now;
        let key = self.member(at).allocate(now, from, to, spec);
        self.pump(at);
        key
    }

    pub fn write(&mut self, at: &str, flow: FlowKey, bytes: &[u8]) {
        let now = self.now;
        self.member(at)
            .on_sdu(now, flow, Bytes::from(bytes.to_vec()), false);
        self.pump(at);
    }

    pub fn read(&mut self, at: &str, flow: FlowKey) -> Vec<Vec<u8>> {
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

    pub fn address(&self, name: &str) -> u64 {
        self.members[name].address().map_or(0, |address| address.0)
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

    pub fn rib(&mut self, at: &str, op: RibOp) -> Result<Vec<RibObject>, String> {
        let member = None;
        self.order(at, Command::Rib { id: 7, member, op });
        let pick = |event: &Event| match event {
            Event::Answer { id: 7, result } => Some(result.clone()),
            _ => None,
        };
        self.told(at, pick).pop().expect("an answer")
    }

    /// Names of what is below a path.
    pub fn names(&mut self, at: &str, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let path = path.to_string();
        let objects = self.rib(at, RibOp::Read { path, scope: 8 });
        let objects = objects.expect("an object");
        let names = objects
            .iter()
            .filter_map(|object| object.path.strip_prefix(&below));
        names.map(str::to_string).collect()
    }

    /// A counter of management.
    pub fn count(&mut self, at: &str, name: &str) -> u64 {
        let path = "/counters".to_string();
        let objects = self.rib(at, RibOp::Read { path, scope: 0 });
        let fields = objects.expect("counters").remove(0).fields;
        let found = fields.into_iter().find(|(field, _)| field == name);
        match found {
            Some((_, carina_ipcp::api::Scalar::Uint(count))) => count,
            _ => 0,
        }
    }
}

/// The configuration that every member of the tests is given: with quick signs of life.
pub fn config() -> DifConfig {
    DifConfig {
        keepalive_ms: 5_000,
        ..DifConfig::of_dialect(Dialect::Irati)
    }
}

/// The same with a table of addresses and nothing else.
pub fn with_addresses(addresses: &str) -> DifConfig {
    let params = [("addresses", addresses), ("prefixes", "")];
    with_policy(config(), "address-assignment", "known-addresses", &params)
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
    let name = name.into();
    config
        .policies
        .insert(component.into(), PolicySpec { name, params });
    config
}

/// Members in a row, each enrolled through the one before.
pub fn chain(seed: u64, names: &[&str], config: &DifConfig) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0], config.clone());
    for pair in names.windows(2) {
        net.add(pair[1], config.clone());
        net.wire(pair[1], pair[0]);
        net.run(SECOND);
    }
    net.run(2 * SECOND);
    for name in names {
        assert!(net.is_member(name), "{name}: {:?}", net.failures(name));
    }
    net
}

/// A toolbox with the password policy of this dialect.
pub struct Words {
    password: String,
}

impl Words {
    pub fn new(password: &str) -> Words {
        Words {
            password: password.into(),
        }
    }
}

struct Xor {
    password: Vec<u8>,
    challenge: Option<Vec<u8>>,
    is_initiator: bool,
}

impl Xor {
    fn mix(&self, text: &[u8]) -> Vec<u8> {
        let key = self.password.iter().cycle();
        text.iter().zip(key).map(|(a, b)| a ^ b).collect()
    }
}

impl Authenticator for Xor {
    fn step(&mut self, now: u64, message: Option<&[u8]>) -> AuthStep {
        let done = |last| AuthStep::Done {
            last,
            secret: None,
            identity: String::new(),
        };
        match (self.is_initiator, message, &self.challenge) {
            (true, Some(text), _) => done(Some(self.mix(text))),
            (false, Some([]), None) => {
                let text = format!("{now:0>6}").into_bytes()[..6].to_vec();
                self.challenge = Some(text.clone());
                AuthStep::Send(text)
            }
            (false, Some(reply), Some(text)) if self.mix(reply) == *text => done(None),
            _ => AuthStep::Fail("the reply is not the challenge under the password".into()),
        }
    }
}

impl Toolbox for Words {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, String> {
        Ok(Box::new(Xor {
            password: self.password.clone().into_bytes(),
            challenge: None,
            is_initiator,
        }))
    }

    fn sealer(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn Sealer>>, String> {
        Ok(None)
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
            ("authentication", "xor-password", vec![]),
            ("sdu-protection", "none", vec![]),
        ]
    }
}
