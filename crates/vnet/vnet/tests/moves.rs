//! Tests nodes that move between two hosts of a provider, message by message.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_time::{Duration, Instant};
use carina_vnet::document::{Boot, Kind};
use carina_vnet::host_part::{HostPart, LinkState, NodePart, NodeState, VnetId};
use carina_vnet::message::{
    FromAgent, FromPip, MoveState, MoveStatus, PartKey, PartLink, PartNode, PartRequest,
    ReasonCode, ToAgent, ToPip,
};
use carina_vnet::pip::inventory::{Border, Discovery, Host, Inventory, Link};
use carina_vnet::pip::{MoveOutcome, NodeAway, Output, Pip};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;

/// A simulated host: it has what it was ordered, and reports about moves what the test says.
#[derive(Default)]
pub(crate) struct Played {
    pub has: BTreeMap<VnetId, HostPart>,
    removed: BTreeMap<VnetId, u64>,
    pub moves: BTreeMap<u64, MoveState>,
    pub orders: Vec<ToAgent>,
}

/// A provider with two hosts of four processors and a border to another provider.
pub(crate) struct House {
    pub pip: Pip<MemoryStore>,
    pub now: Instant,
    pub hosts: BTreeMap<&'static str, Played>,
    answers: Vec<FromPip>,
}

pub(crate) const VNET: VnetId = VnetId::new(1);
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

impl House {
    /// With network 1 on `h1`: a machine `m` and a namespace `s`, with two processors each.
    fn new() -> House {
        let mut house = House::empty();
        let nodes = vec![node("m", Kind::Vm, 2), node("s", Kind::Namespace, 2)];
        assert!(house.reserve(1, 1, nodes));
        house.tell(ToPip::Commit {
            key: key(1, 1),
            far: vec![],
        });
        house.report();
        assert_eq!(house.hosts["h1"].has[&VNET].nodes.len(), 2);
        house
    }

    /// Without a network.
    pub(crate) fn empty() -> House {
        let host = |name: &str, last: u8| Host {
            name: name.to_owned(),
            cpus: 4,
            memory_mib: 1024,
            nics: 0,
            location: "uk".to_owned(),
            labels: BTreeMap::new(),
            address: Ipv4Addr::new(192, 0, 2, last),
            tunnel_addresses: 0,
        };
        let inventory = Inventory {
            discovery: Discovery::Vnp,
            hosts: vec![host("h1", 1), host("h2", 2)],
            links: vec![Link {
                name: "wire".to_owned(),
                ends: ["h1", "h2"].map(str::to_owned),
                rate_bps: 1_000_000_000,
                delay_us: 0,
            }],
            borders: vec![Border {
                name: "channel".to_owned(),
                host: "h1".to_owned(),
                rate_bps: 1_000_000_000,
                delay_us: 0,
                reaches: vec![],
            }],
        };
        let store = MemoryStore::new(1 << 20);
        let pip = Pip::new("p", inventory, store, Timing::default()).unwrap();
        let mut house = House {
            pip,
            now: Instant::from_secs(1000),
            hosts: ["h1", "h2"].map(|name| (name, Played::default())).into(),
            answers: Vec::new(),
        };
        house.report();
        house
    }

    /// Makes all hosts report until the provider has no more orders for them.
    pub(crate) fn report(&mut self) {
        loop {
            let names: Vec<&str> = self.hosts.keys().copied().collect();
            for name in names {
                let report = self.hosts[name].report_of(name);
                self.pip.handle_agent(self.now, report);
            }
            if !self.deliver() {
                return;
            }
        }
    }

    /// Delivers the provider's messages; returns whether hosts have changed.
    fn deliver(&mut self) -> bool {
        let mut has_changed = false;
        while let Some(output) = self.pip.poll_transmit() {
            match output {
                Output::ToVnp { message, .. } => self.answers.push(message),
                Output::ToAgent { host, message } => {
                    let host = self.hosts.get_mut(host.as_str()).unwrap();
                    has_changed |= host.obey(message);
                }
            }
        }
        has_changed
    }

    /// The answers to the VNP since the last call.
    pub(crate) fn answers(&mut self) -> Vec<FromPip> {
        std::mem::take(&mut self.answers)
    }

    pub(crate) fn tell(&mut self, message: ToPip) -> Vec<FromPip> {
        self.answers.clear();
        self.pip.handle_vnp(self.now, "v", message);
        self.deliver();
        std::mem::take(&mut self.answers)
    }

    fn reserve(&mut self, vnet: u64, round: u64, nodes: Vec<PartNode>) -> bool {
        self.reserve_with(vnet, round, nodes, vec![])
    }

    pub(crate) fn reserve_with(
        &mut self,
        vnet: u64,
        round: u64,
        nodes: Vec<PartNode>,
        links: Vec<PartLink>,
    ) -> bool {
        let part = PartRequest {
            name: "net".to_owned(),
            nodes,
            links,
            access: vec![],
        };
        let (key, part) = (key(vnet, round), Box::new(part));
        let answers = self.tell(ToPip::Reserve { key, part });
        matches!(answers[..], [FromPip::Offered { .. }])
    }

    /// Whether one host has this many processors left.
    fn has_room(&mut self, vnet: u64, cpus: u32) -> bool {
        let has_room = self.reserve(vnet, 1, vec![node("x", Kind::Vm, cpus)]);
        self.tell(ToPip::Cancel { key: key(vnet, 1) });
        has_room
    }

    pub(crate) fn begin(
        &mut self,
        node: &str,
        to: &str,
        number: u64,
    ) -> Result<VnetId, (ReasonCode, String)> {
        let begun = self
            .pip
            .begin_move(self.now, ["net", node, to], number, LIMIT);
        self.report();
        begun.map_err(|reason| (reason.code, reason.message))
    }

    pub(crate) fn outcome(&mut self, number: u64) -> Option<MoveOutcome> {
        self.pip.outcome_of_move(self.now, VNET, number).unwrap()
    }

    pub(crate) fn says(&mut self, host: &str, number: u64, state: MoveState) {
        let host = self.hosts.get_mut(host).unwrap();
        host.moves.insert(number, state);
        self.report();
    }

    pub(crate) fn ordered(&self, host: &str, is_it: impl Fn(&ToAgent) -> bool) -> bool {
        self.hosts[host].orders.iter().any(is_it)
    }
}

impl Played {
    fn report_of(&self, name: &str) -> FromAgent {
        let parts = self.has.values().map(|part| {
            let mut status = part.absent();
            for node in status.nodes.values_mut() {
                node.state = NodeState::Up;
            }
            for link in status.links.values_mut() {
                link.state = LinkState::Up;
            }
            status
        });
        let moves = self.moves.iter().map(|(number, state)| MoveStatus {
            vnet: VNET,
            number: *number,
            state: state.clone(),
        });
        FromAgent {
            host: name.to_owned(),
            parts: parts.collect(),
            removed: self.removed.clone(),
            moves: moves.collect(),
            moves_at: Some(format!("{name}:1")),
            limits: None,
        }
    }

    fn obey(&mut self, message: ToAgent) -> bool {
        self.orders.push(message.clone());
        match message {
            ToAgent::Set(part) => self.has.insert(part.vnet, (*part).clone()) != Some(*part),
            ToAgent::Remove { vnet, through } => {
                self.has.remove(&vnet);
                self.removed.insert(vnet, through) != Some(through)
            }
            ToAgent::EndMove { number, .. } => self.moves.remove(&number).is_some(),
            ToAgent::Receive(_) | ToAgent::Send(_) => false,
        }
    }
}

pub(crate) fn key(vnet: u64, round: u64) -> PartKey {
    let vnet = VnetId::new(vnet);
    PartKey { vnet, round }
}

pub(crate) fn node(name: &str, kind: Kind, cpus: u32) -> PartNode {
    PartNode {
        node: NodePart {
            name: name.to_owned(),
            kind,
            image: "carina".to_owned(),
            cpus,
            memory_mib: 128,
            boot: Boot::Clone,
            interfaces: vec![],
            routes: vec![],
            routes6: vec![],
            founder: None,
            has_loop: false,
            start: Default::default(),
        },
        location: vec![],
        nics: 0,
        labels: BTreeMap::new(),
        apart_from: vec![],
        host: Some(0),
    }
}

#[test]
fn node_that_moves_is_promised_room_at_both_hosts() {
    let mut house = House::new();
    assert!(house.has_room(7, 4), "the other host is free");
    house.begin("m", "h2", 42).unwrap();
    assert!(!house.has_room(7, 3) && house.has_room(7, 2));
    assert!(house.ordered("h2", |message| matches!(message, ToAgent::Receive(_))));
    assert!(!house.ordered("h1", |message| matches!(message, ToAgent::Send(_))));
    house.says("h2", 42, MoveState::Awaited {});
    assert!(house.ordered("h1", |message| {
        matches!(message, ToAgent::Send(order) if order.at == "h2:1" && order.number == 42)
    }));
    house.says("h1", 42, MoveState::Sending {});
    assert_eq!(house.outcome(42), None);
    assert_eq!(house.hosts["h1"].has[&VNET].nodes.len(), 2);
    // A change of the network has to wait, and so does another move.
    assert!(!house.reserve(1, 2, vec![node("m", Kind::Vm, 1)]));
    let (code, _) = house.begin("m", "h2", 43).unwrap_err();
    assert_eq!(code, ReasonCode::Conflict);
    house.says("h2", 42, MoveState::Arrived {});
    let names = |house: &House, host: &str| -> Vec<String> {
        let nodes = house.hosts[host].has[&VNET].nodes.iter();
        nodes.map(|node| node.name.clone()).collect()
    };
    assert_eq!(
        (names(&house, "h1"), names(&house, "h2")),
        (vec!["s".into()], vec!["m".into()])
    );
    // The order to send has told the source what it has afterwards.
    let after = &house.hosts["h1"].has[&VNET];
    assert!(house.ordered("h1", |message| {
        let ToAgent::Send(order) = message else {
            return false;
        };
        (&order.part.nodes, &order.part.links) == (&after.nodes, &after.links)
    }));
    let paused_us = Some(9);
    house.says("h2", 42, MoveState::Runs { paused_us });
    assert_eq!(house.outcome(42), Some(MoveOutcome::Moved { paused_us }));
    house.report();
    assert!(house.hosts.values().all(|host| host.moves.is_empty()));
    // The node's resources at its source are free again.
    assert!(house.has_room(7, 2) && !house.has_room(7, 3));
    assert!(house.pip.excess().is_empty());
    assert!(house.reserve(1, 2, vec![node("m", Kind::Vm, 1)]));
}

#[test]
fn move_that_fails_leaves_all_as_it_was() {
    let mut house = House::new();
    let failed = |reason: &str| MoveState::Failed {
        reason: reason.to_owned(),
    };
    for (number, host) in [(1, "h1"), (2, "h2")] {
        house.begin("m", "h2", number).unwrap();
        house.says("h2", number, MoveState::Awaited {});
        house.says(host, number, failed("its QEMU has ended"));
        let reason = "its QEMU has ended".to_owned();
        assert_eq!(house.outcome(number), Some(MoveOutcome::Stayed { reason }));
        assert!(house.hosts.values().all(|host| host.moves.is_empty()));
        assert!(house.hosts["h2"].has.is_empty());
        assert!(house.has_room(7, 4));
    }
    // A node that does not arrive in time is given up; arriving later is too late.
    house.begin("m", "h2", 3).unwrap();
    house.says("h2", 3, MoveState::Awaited {});
    house.now += LIMIT;
    house.says("h2", 3, MoveState::Arrived {});
    assert!(matches!(house.outcome(3), Some(MoveOutcome::Stayed { .. })));
    assert!(house.hosts["h2"].moves.is_empty());
    assert_eq!(house.hosts["h1"].has[&VNET].nodes.len(), 2);
    // It can move another time.
    house.begin("m", "h2", 4).unwrap();
    house.says("h2", 4, MoveState::Arrived {});
    assert_eq!(house.hosts["h2"].has[&VNET].nodes.len(), 1);
}

#[test]
fn what_cannot_move_is_refused_with_the_reason() {
    let mut house = House::new();
    for (node, to, code, words) in [
        ("s", "h2", ReasonCode::Impossible, "it is a namespace"),
        ("m", "h1", ReasonCode::Impossible, "is already on host h1"),
        (
            "m",
            "h3",
            ReasonCode::Impossible,
            "the inventory has no host h3",
        ),
        (
            "z",
            "h2",
            ReasonCode::Impossible,
            "the network has no node z at this provider; it has: m, s",
        ),
    ] {
        let (refused, message) = house.begin(node, to, 1).unwrap_err();
        assert!(refused == code && message.contains(words), "{message}");
    }
    assert!(house.reserve(7, 1, vec![node("x", Kind::Vm, 3)]));
    let (code, message) = house.begin("m", "h2", 1).unwrap_err();
    assert_eq!(code, ReasonCode::Insufficient, "{message}");
    house.tell(ToPip::Cancel { key: key(7, 1) });
    let unknown = house
        .pip
        .begin_move(house.now, ["other", "m", "h2"], 1, LIMIT);
    let message = unknown.unwrap_err().message;
    assert!(
        message.contains("there is no network other; there are: net ("),
        "{message}"
    );
    house.now += Timing::default().silence_max;
    let (code, message) = {
        let begun = house
            .pip
            .begin_move(house.now, ["net", "m", "h2"], 1, LIMIT);
        let reason = begun.unwrap_err();
        (reason.code, reason.message)
    };
    assert_eq!(
        (code, &*message),
        (ReasonCode::Unreachable, "host h1 does not answer")
    );
    assert!(house.hosts["h2"].has.is_empty());
}

#[test]
fn drained_host_keeps_its_nodes_and_takes_no_new_ones() {
    let mut house = House::new();
    let now = house.now;
    let away = |house: &mut House| house.pip.nodes_away(now, "h1");
    let names = |all: &[NodeAway]| all.iter().map(|away| away.node.clone()).collect::<Vec<_>>();
    let all = away(&mut house);
    assert_eq!(names(&all), ["m", "s"]);
    assert_eq!(all[0].to, Ok(vec!["h2".to_owned()]));
    let refusal = all[1].to.clone().unwrap_err();
    assert!(
        refusal.code == ReasonCode::Impossible && refusal.message.contains("it is a namespace")
    );
    assert!(house.pip.set_drained(now, "h2", true).unwrap());
    assert!(!house.pip.set_drained(now, "h2", true).unwrap());
    assert!(!house.has_room(7, 1), "h1 is full, and h2 is drained");
    let refusal = away(&mut house)[0].to.clone().unwrap_err();
    assert!(
        refusal.message.contains("host h2 is drained"),
        "{refusal:?}"
    );
    assert!(house.pip.set_drained(now, "h2", false).unwrap());
    assert!(house.has_room(7, 4));
    // A drained host keeps its nodes, also when their network is changed.
    assert!(house.pip.set_drained(now, "h1", true).unwrap());
    house.begin("m", "h2", 1).unwrap();
    house.says("h2", 1, MoveState::Arrived {});
    house.says("h2", 1, MoveState::Runs { paused_us: None });
    assert_eq!(names(&away(&mut house)), ["s"]);
    let refused = house.begin("m", "h1", 2).unwrap_err();
    assert!(refused.1.contains("host h1 is drained"), "{refused:?}");
    assert!(
        !house.has_room(7, 3) && house.has_room(7, 2),
        "only h2 has room"
    );
    let changed = vec![node("m", Kind::Vm, 1), node("s", Kind::Namespace, 2)];
    assert!(house.reserve(1, 2, changed));
    house.tell(ToPip::Cancel { key: key(1, 2) });
    // What a node releases on a drained host is not available to others.
    let changed = vec![node("m", Kind::Vm, 3), node("x", Kind::Vm, 2)];
    assert!(!house.reserve(1, 2, changed));
    let known = house.pip.set_drained(now, "h9", true).unwrap_err();
    assert!(known.message.contains("it has: h1, h2"), "{known:?}");
}
