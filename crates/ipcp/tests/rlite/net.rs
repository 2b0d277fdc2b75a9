//! Members wired to one another, on a clock of their own.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::{N1Properties, RibObject, RibOp};
use carina_ipcp::seal::{Authenticator, PolicyRow, Sealer, Toolbox};
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
    /// Everything that was sent, with the end that sent it.
    pub sent: Vec<(usize, Vec<u8>)>,
    is_down: [bool; 2],
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
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds an IPCP that is no member.
    pub fn add(&mut self, name: &str) {
        self.add_with(name, config());
    }

    pub fn add_with(&mut self, name: &str, dif_config: DifConfig) {
        let seed = self.random();
        self.add_seeded(name, "net", dif_config, seed);
    }

    pub fn add_seeded(&mut self, name: &str, dif: &str, dif_config: DifConfig, seed: u64) {
        let config = Config {
            name: name.into(),
            dif: dif.into(),
            dialect: Dialect::Rlite,
            dif_config: Some(dif_config),
        };
        let ipcp = Ipcp::new(config, Box::new(Nothing), Catalogue::empty(), seed);
        self.members
            .insert(name.into(), ipcp.expect("a good config"));
    }

    /// Adds a member that begins the DIF.
    pub fn bootstrap(&mut self, name: &str) {
        self.add(name);
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
        self.lossy_wire(a, b, 0)
    }

    pub fn lossy_wire(&mut self, a: &str, b: &str, loss: u64) -> usize {
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
            sent: Vec::new(),
            is_down: [false; 2],
        });
        self.raise(at, 1);
        self.raise(at, 0);
        at
    }

    /// One end hears that the N-1 flow is there.
    fn raise(&mut self, wire: usize, end: usize) {
        let ends = &self.wires[wire].ends;
        let (name, n1) = ends[end].clone();
        let remote = ends[1 - end].0.clone();
        if self.members.contains_key(&name) {
            let props = props(&remote, end == 0);
            self.order(&name, Command::N1Up { n1, props });
        }
    }

    fn drop_end(&mut self, name: &str, n1: N1Port) {
        let is_end = |end: &End| end.0 == name && end.1 == n1;
        let mut other = None;
        for wire in &mut self.wires {
            if let Some(index) = wire.ends.iter().position(is_end) {
                wire.is_down[index] = true;
                if !wire.is_cut && !wire.is_down[1 - index] {
                    wire.is_down[1 - index] = true;
                    other = Some(wire.ends[1 - index].clone());
                }
            }
        }
        let reason = String::from("it was given back");
        let down = |n1| Command::N1Down {
            n1,
            reason: reason.clone(),
        };
        self.order(name, down(n1));
        if let Some((other, n1)) = other
            && self.members.contains_key(&other)
        {
            self.order(&other, down(n1));
        }
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
                let reason = "the test ends it".into();
                self.order(&name, Command::N1Down { n1, reason });
            }
        }
    }

    /// A member disappears without a word; the other ends of its N-1 flows hear nothing.
    pub fn vanish(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Time passes.
    pub fn run(&mut self, time: u64) {
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

    fn step(&mut self) {
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
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
            let key = (name.to_string(), flow);
            self.delivered.entry(key).or_default().extend(bytes);
        }
        for event in events {
            self.on_event(name, event);
        }
    }

    fn on_event(&mut self, name: &str, event: Event) {
        self.events.push((name.to_string(), event.clone()));
        match event {
            Event::Incoming { flow, local, .. } => {
                let of_member = self.incoming.entry(name.to_string());
                of_member.or_default().push(flow);
                if self.accepts.contains(&local) {
                    let answer = Ok(());
                    self.order(name, Command::Respond { flow, answer });
                }
            }
            Event::DropN1 { n1, .. } => self.drop_end(name, n1),
            Event::NeedN1 { remote, .. } => self.raise_again(name, &remote),
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

    /// Puts bytes on a wire as if the other end than `to` had sent them.
    pub fn inject(&mut self, wire: usize, to: usize, pdu: Vec<u8>) {
        let (name, n1) = self.wires[wire].ends[to].clone();
        let now = self.now;
        self.member(&name).on_pdu(now, n1, Bytes::from(pdu));
        self.pump(&name);
    }

    /// What one end of a wire has sent since it was asked last.
    pub fn take_sent(&mut self, wire: usize, end: usize) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.wires[wire].sent);
        let of_end = sent.into_iter().filter(|(from, _)| *from == end);
        of_end.map(|(_, pdu)| pdu).collect()
    }

    pub fn allocate(&mut self, at: &str, from: &str, to: &str, spec: FlowSpec) -> FlowKey {
        let now = self.now;
        let key = self.member(at).allocate(now, from, to, spec);
        self.pump(at);
        key.expect("a request")
    }

    pub fn write(&mut self, at: &str, flow: FlowKey, bytes: &[u8]) {
        let now = self.now;
        let sdu = Bytes::from(bytes.to_vec());
        self.member(at).on_sdu(now, flow, sdu, false);
        self.pump(at);
    }

    pub fn read(&mut self, at: &str, flow: FlowKey) -> Vec<u8> {
        let key = (at.to_string(), flow);
        self.delivered.remove(&key).unwrap_or_default()
    }

    /// The flow that was offered to a member last.
    pub fn offered(&self, at: &str) -> FlowKey {
        *self.incoming[at].last().expect("a flow was offered")
    }

    pub fn deallocate(&mut self, at: &str, flow: FlowKey) {
        let reason = String::new();
        self.order(at, Command::Deallocate { flow, reason });
    }

    /// What happened at a member and is of a kind.
    pub fn told<T>(&self, at: &str, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        let at_member = self.events.iter().filter(|(name, _)| name == at);
        at_member.filter_map(|(_, event)| pick(event)).collect()
    }

    /// The results of the allocation of a flow.
    pub fn allocated(&self, at: &str, key: FlowKey) -> Option<Result<(), String>> {
        let results = self.told(at, |event| match event {
            Event::Allocated { flow, result } if *flow == key => Some(result.clone()),
            _ => None,
        });
        results.into_iter().last()
    }

    /// How a flow was closed by the other side.
    pub fn closed(&self, at: &str, key: FlowKey) -> Option<(bool, String)> {
        let ends = self.told(at, |event| match event {
            Event::Closed {
                flow,
                is_graceful,
                reason,
            } if *flow == key => Some((*is_graceful, reason.clone())),
            _ => None,
        });
        ends.into_iter().last()
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

    pub fn address(&self, name: &str) -> u64 {
        let address = self.members[name].address();
        address.map_or(0, |address| address.0)
    }

    pub fn rib(&mut self, at: &str, member: Option<&str>, op: RibOp) -> Answer {
        self.next_id += 1;
        let id = self.next_id;
        let member = member.map(String::from);
        self.order(at, Command::Rib { id, member, op });
        let answers = self.told(at, |event| match event {
            Event::Answer { id: of, result } if *of == id => Some(result.clone()),
            _ => None,
        });
        answers.into_iter().next().expect("an answer at once")
    }

    /// Objects at and below a path.
    pub fn objects(&mut self, at: &str, path: &str) -> Vec<RibObject> {
        let path = path.to_string();
        let answer = self.rib(at, None, RibOp::Read { path, scope: 9 });
        answer.expect("the object")
    }

    /// Names of the objects below a path.
    pub fn names(&mut self, at: &str, path: &str) -> Vec<String> {
        let objects = self.objects(at, path);
        let start = format!("{path}/");
        let below = objects.iter().filter_map(|it| it.path.strip_prefix(&start));
        below.map(String::from).collect()
    }

    /// How often something was counted at a member.
    pub fn count(&mut self, at: &str, what: &str) -> u64 {
        let objects = self.objects(at, "/counters");
        let fields = objects.iter().flat_map(|object| &object.fields);
        let found = fields.filter_map(|(name, value)| match value {
            carina_ipcp::api::Scalar::Uint(count) if name == what => Some(*count),
            _ => None,
        });
        found.sum()
    }
}

type Answer = Result<Vec<RibObject>, String>;

/// An N-1 flow of the tests.
pub fn props(remote: &str, is_initiator: bool) -> N1Properties {
    N1Properties {
        dif: "below".into(),
        remote: remote.into(),
        sdu_max: 1452,
        is_reliable: false,
        is_exposed: false,
        is_initiator,
        cost: 1,
    }
}

/// rlite's defaults, except that objections to addresses are waited for as in the captures.
pub fn config() -> DifConfig {
    let addresses = PolicySpec {
        name: "distributed".into(),
        params: [("nack-wait".to_string(), "1000ms".to_string())].into(),
    };
    with_policy("address-assignment", addresses)
}

pub fn with_policy(component: &str, spec: PolicySpec) -> DifConfig {
    let mut config = DifConfig::of_dialect(Dialect::Rlite);
    config.policies.insert(component.into(), spec);
    config
}

/// Members in a line; the first begins the DIF, each enrolls at the one before it.
pub fn line(seed: u64, names: &[&str]) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0]);
    for pair in names.windows(2) {
        net.add(pair[1]);
        net.wire(pair[1], pair[0]);
        net.run(3 * SECOND);
    }
    net
}

/// Nobody in an rlite DIF proves anything or protects PDUs.
struct Nothing;

impl Toolbox for Nothing {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, String> {
        Err("no authentication".into())
    }

    fn sealer(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn Sealer>>, String> {
        Ok(None)
    }

    fn list(&self) -> Vec<PolicyRow> {
        Vec::new()
    }
}
