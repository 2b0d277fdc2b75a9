//! Tests what a provider grants to which VNP, message by message.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::document::{Boot, Document, End, Form, Kind};
use carina_vnet::host_part::{HostPart, HostStatus, NodePart, VnetId};
use carina_vnet::message::{
    FromAgent, FromPip, FromVnp, PartKey, PartNode, PartRequest, ReasonCode, ToAgent, ToPip, ToVnp,
};
use carina_vnet::pip::inventory::{Discovery, Host, Inventory};
use carina_vnet::pip::{Output, Pip, round_of};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;
use carina_vnet::vnp::{self, Vnp};

/// A provider with one host of four processors, whose agent obeys.
struct House {
    pip: Pip<MemoryStore>,
    now: Instant,
    has: BTreeMap<VnetId, HostPart>,
    removed: BTreeMap<VnetId, u64>,
}

impl House {
    fn new() -> House {
        let host = Host {
            name: "h".to_owned(),
            cpus: 4,
            memory_mib: 1024,
            nics: 0,
            location: "uk".to_owned(),
            labels: BTreeMap::new(),
            address: Ipv4Addr::new(192, 0, 2, 1),
            tunnel_addresses: 0,
        };
        let inventory = Inventory {
            discovery: Discovery::Pip,
            hosts: vec![host],
            links: vec![],
            borders: vec![],
        };
        let store = MemoryStore::new(1 << 20);
        let pip = Pip::new("p", inventory, store, Timing::default()).unwrap();
        let mut house = House {
            pip,
            now: Instant::from_secs(1000),
            has: BTreeMap::new(),
            removed: BTreeMap::new(),
        };
        house.report();
        house
    }

    fn report(&mut self) {
        let parts = self.has.values().map(HostPart::absent);
        let report = FromAgent {
            host: "h".to_owned(),
            parts: parts.collect::<Vec<HostStatus>>(),
            removed: self.removed.clone(),
            ..FromAgent::default()
        };
        self.pip.handle_agent(self.now, report);
    }

    /// Sends a message to the provider; returns its answers, after the host has carried out its
    /// orders.
    fn tell(&mut self, vnp: &str, message: ToPip) -> Vec<FromPip> {
        self.pip.handle_vnp(self.now, vnp, message);
        self.deliver(vnp)
    }

    fn deliver(&mut self, vnp: &str) -> Vec<FromPip> {
        let mut answers = Vec::new();
        while let Some(output) = self.pip.poll_transmit() {
            match output {
                Output::ToVnp { vnp: to, message } => {
                    assert_eq!(to, vnp, "{message:?}");
                    answers.push(message);
                }
                Output::ToAgent { message, .. } => {
                    match message {
                        ToAgent::Set(part) => drop(self.has.insert(part.vnet, *part)),
                        ToAgent::Remove { vnet, through } => {
                            self.has.remove(&vnet);
                            self.removed.insert(vnet, through);
                        }
                        other => panic!("the provider has one host: {other:?}"),
                    }
                    self.report();
                }
            }
        }
        answers
    }
}

fn key(vnet: u64, round: u64) -> PartKey {
    let vnet = VnetId::new(vnet);
    PartKey { vnet, round }
}

fn reserve(key: PartKey, cpus: u32) -> ToPip {
    let node = NodePart {
        name: "r1".to_owned(),
        kind: Kind::Vm,
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
    };
    let wanted = PartNode {
        node,
        location: vec![],
        nics: 0,
        labels: BTreeMap::new(),
        apart_from: vec![],
        host: None,
    };
    let part = PartRequest {
        name: "net".to_owned(),
        nodes: vec![wanted],
        links: vec![],
        access: vec![],
    };
    let part = Box::new(part);
    ToPip::Reserve { key, part }
}

fn commit(key: PartKey) -> ToPip {
    let far = vec![];
    ToPip::Commit { key, far }
}

#[test]
fn two_vnps_never_get_the_same_processors() {
    let mut house = House::new();
    let offered = house.tell("a", reserve(key(1, 1), 3));
    assert!(
        matches!(offered[..], [FromPip::Offered { .. }]),
        "{offered:?}"
    );
    let refused = house.tell("b", reserve(key(2, 1), 2));
    let [FromPip::Refused { reason, .. }] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(reason.code, ReasonCode::Insufficient);
    assert_eq!(
        reason.message,
        "r1: no host has 2 processors, at most 1 processor; r1: 1 processor would fit"
    );
    assert_eq!(reason.node.as_deref(), Some("r1"));
    // The reservation expires by itself, and then there is room.
    house.now += Timing::default().hold;
    house.report();
    let offered = house.tell("b", reserve(key(2, 2), 2));
    assert!(
        matches!(offered[..], [FromPip::Offered { .. }]),
        "{offered:?}"
    );
    let lapsed = house.tell("a", commit(key(1, 1)));
    assert!(matches!(lapsed[..], [FromPip::Lapsed { .. }]), "{lapsed:?}");
}

#[test]
fn what_is_asked_twice_is_granted_once() {
    let mut house = House::new();
    for _ in 0..3 {
        let offered = house.tell("a", reserve(key(1, 1), 3));
        assert!(
            matches!(offered[..], [FromPip::Offered { .. }]),
            "{offered:?}"
        );
    }
    for _ in 0..3 {
        let answers = house.tell("a", commit(key(1, 1)));
        assert!(
            answers.contains(&FromPip::Committed { key: key(1, 1) }),
            "{answers:?}"
        );
    }
    assert_eq!(round_of(house.has[&VnetId::new(1)].generation), 1);
    // Late messages of an earlier round change nothing.
    house.tell("a", reserve(key(1, 3), 2));
    house.tell("a", commit(key(1, 3)));
    assert!(house.tell("a", reserve(key(1, 2), 4)).is_empty());
    assert!(house.tell("a", commit(key(1, 2))).is_empty());
    assert_eq!(house.has[&VnetId::new(1)].nodes[0].cpus, 2);
    let released = house.tell("a", ToPip::Release { key: key(1, 3) });
    assert!(
        released.contains(&FromPip::Released { key: key(1, 3) }),
        "{released:?}"
    );
    assert!(house.has.is_empty());
}

#[test]
fn vnp_touches_no_network_of_another() {
    let mut house = House::new();
    house.tell("a", reserve(key(1, 1), 1));
    house.tell("a", commit(key(1, 1)));
    for message in [
        reserve(key(1, 9), 1),
        commit(key(1, 9)),
        ToPip::Cancel { key: key(1, 9) },
        ToPip::Release { key: key(1, 9) },
    ] {
        assert!(house.tell("b", message).is_empty());
    }
    assert!(house.has.contains_key(&VnetId::new(1)));
    let answers = house.tell(
        "b",
        ToPip::Renew {
            keys: vec![key(1, 1)],
        },
    );
    assert_eq!(answers, [FromPip::Lapsed { key: key(1, 1) }]);
    assert_eq!(house.pip.discarded().values().sum::<u64>(), 4);
}

#[test]
fn part_goes_when_its_vnp_is_gone() {
    let mut house = House::new();
    house.tell("a", reserve(key(1, 1), 4));
    house.tell("a", commit(key(1, 1)));
    let half = Timing::default().lease / 2;
    for _ in 0..4 {
        house.now += half;
        house.pip.handle_timeout(house.now);
        let keys = vec![key(1, 1)];
        let answers = house.tell("a", ToPip::Renew { keys });
        assert!(
            answers
                .iter()
                .any(|answer| matches!(answer, FromPip::Status { .. })),
            "{answers:?}"
        );
    }
    assert!(
        house.has.contains_key(&VnetId::new(1)),
        "it was named in time"
    );
    house.now += Timing::default().lease + Duration::from_secs(1);
    house.pip.handle_timeout(house.now);
    house.deliver("a");
    assert!(house.has.is_empty());
    house.report();
    let offered = house.tell("b", reserve(key(2, 1), 4));
    assert!(
        matches!(offered[..], [FromPip::Offered { .. }]),
        "{offered:?}"
    );
}

#[test]
fn host_keeps_no_stray_and_no_late_order() {
    let mut house = House::new();
    house.tell("a", reserve(key(1, 4), 1));
    house.tell("a", commit(key(1, 4)));
    let stray = house.has[&VnetId::new(1)].clone();
    house.tell("a", ToPip::Release { key: key(1, 4) });
    assert!(house.has.is_empty());
    assert_eq!(
        round_of(house.removed[&VnetId::new(1)]),
        4,
        "an order that is late is known by this"
    );
    house.has.insert(VnetId::new(1), stray);
    house.report();
    house.deliver("a");
    assert!(house.has.is_empty());
}

#[test]
fn part_that_names_a_node_twice_is_refused() {
    let mut house = House::new();
    let ToPip::Reserve { key, mut part } = reserve(key(1, 1), 3) else {
        panic!("it is a reservation");
    };
    part.nodes.push(part.nodes[0].clone());
    let refused = house.tell("a", ToPip::Reserve { key, part });
    let [FromPip::Refused { reason, .. }] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(reason.code, ReasonCode::Impossible);
    assert!(
        reason.message.contains("node r1 occurs twice"),
        "{reason:?}"
    );
}

#[test]
fn vnp_refuses_a_document_that_is_wrong() {
    let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[[link]]\nends = [\"a\", \"b\"]\n\
                rate = \"1Mbps\"\n";
    let mut document = Document::read(text, Form::Toml).unwrap();
    document.link[0].ends[1] = End::from("c".to_owned());
    let store = MemoryStore::new(1 << 20);
    let pips = ["p".to_owned()];
    let mut vnp = Vnp::new("v", pips, store, Timing::default(), Random::new(1));
    let (vnet, generation) = (VnetId::new(1), 1);
    let document = Box::new(document);
    let want = ToVnp::Want {
        vnet,
        generation,
        document,
    };
    vnp.handle_vno(Instant::from_secs(1), "o", want);
    let Some(vnp::Output::ToVno { message, .. }) = vnp.poll_transmit() else {
        panic!("the operator is told");
    };
    let FromVnp::Standing { standing, .. } = message else {
        panic!("{message:?}");
    };
    assert!(standing.is_refused);
    let reason = standing.reason.unwrap();
    assert_eq!(reason.code, ReasonCode::Impossible);
    assert!(
        reason.message.contains("node `c` is not in the document"),
        "{reason:?}"
    );
    assert!(vnp.poll_transmit().is_none());
}

#[test]
fn operator_with_its_share_of_networks_gets_no_more() {
    let text = "[vnet]\nname = \"x\"\n[node.a]\n";
    let document = Document::read(text, Form::Toml).unwrap();
    let store = MemoryStore::new(1 << 20);
    let pips = ["p".to_owned()];
    let vnp = Vnp::new("v", pips, store, Timing::default(), Random::new(1));
    let mut vnp = vnp.with_networks_per_vno(2);
    let now = Instant::from_secs(1);
    let mut ask = |vno: &str, message: ToVnp| {
        vnp.handle_vno(now, vno, message);
        let mut heard = Vec::new();
        while let Some(output) = vnp.poll_transmit() {
            if let vnp::Output::ToVno { vno: to, message } = output {
                assert_eq!(to, vno);
                heard.push(message);
            }
        }
        heard
    };
    let want = |vnet, generation| ToVnp::Want {
        vnet: VnetId::new(vnet),
        generation,
        document: Box::new(document.clone()),
    };
    let refused = |heard: &[FromVnp]| {
        let standings = heard.iter().filter_map(|message| match message {
            FromVnp::Standing { standing, .. } => Some(standing),
            FromVnp::Removed { .. } => None,
        });
        let mut refused = standings.filter(|standing| standing.is_refused);
        refused.next().and_then(|standing| standing.reason.clone())
    };
    for vnet in [1, 2] {
        assert_eq!(refused(&ask("o", want(vnet, 1))), None);
    }
    let reason = refused(&ask("o", want(3, 1))).expect("the third is one too many");
    assert_eq!(reason.code, ReasonCode::Insufficient);
    assert!(reason.message.contains("2 networks"), "{reason:?}");
    // Existing networks may change, and other VNOs have shares of their own.
    assert_eq!(refused(&ask("o", want(2, 2))), None);
    assert_eq!(refused(&ask("other", want(4, 1))), None);
    let vnet = VnetId::new(1);
    assert!(ask("o", ToVnp::Remove { vnet }).contains(&FromVnp::Removed { vnet }));
    assert_eq!(refused(&ask("o", want(3, 1))), None);
}
