//! Tests the far tunnel ends that a VNP names: they may only lead to another provider.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_random::Random;
use carina_time::Instant;
use carina_vnet::document::{Boot, Carrier, Document, Form, Kind};
use carina_vnet::host_part::{Cause, EndPart, Far, InterfacePart, NodePart, VnetId};
use carina_vnet::message::{
    AdvertisedHost, Advertisement, FromAgent, FromPip, FromVnp, Obstacle, PartEnd, PartKey,
    PartLink, PartNode, PartRequest, PartStatus, Reason, ReasonCode, ToAgent, ToPip, ToVnp,
    TunnelEnd,
};
use carina_vnet::pip::inventory::{Border, Discovery, Host, Inventory};
use carina_vnet::pip::{Output, Pip};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;
use carina_vnet::vnp::{self, Vnp};

const NOW: Instant = Instant::from_secs(1000);

/// A provider with two hosts, and a border at the first one.
fn provider() -> Pip<MemoryStore> {
    let host = |name: &str, last: u8, cpus: u64| Host {
        name: name.to_owned(),
        cpus,
        memory_mib: 1024,
        nics: 0,
        location: "uk".to_owned(),
        labels: BTreeMap::new(),
        address: Ipv4Addr::new(192, 0, 2, last),
        tunnel_addresses: 3,
    };
    let border = Border {
        name: "x".to_owned(),
        host: "h1".to_owned(),
        rate_bps: 1 << 30,
        delay_us: 0,
        reaches: vec!["198.51.100.0/24".parse().unwrap()],
    };
    let inventory = Inventory {
        discovery: Discovery::Pip,
        hosts: vec![host("h1", 16, 64), host("h2", 32, 0)],
        links: vec![],
        borders: vec![border],
    };
    let store = MemoryStore::new(1 << 20);
    let mut pip = Pip::new("p", inventory, store, Timing::default()).unwrap();
    let report = FromAgent {
        host: "h1".to_owned(),
        ..FromAgent::default()
    };
    pip.handle_agent(NOW, report);
    pip
}

fn near() -> EndPart {
    EndPart {
        node: "r1".to_owned(),
        interface: "eth0".to_owned(),
    }
}

/// A reservation of a node with a link that leaves the provider.
fn reserve(key: PartKey) -> ToPip {
    let interface = InterfacePart {
        name: "eth0".to_owned(),
        mac: "02:00:00:00:00:01".parse().unwrap(),
        address: "10.0.0.1/30".parse().unwrap(),
        peer: Ipv4Addr::new(10, 0, 0, 2),
        address6: None,
        mtu: 1400,
        link: 0,
    };
    let node = NodePart {
        name: "r1".to_owned(),
        kind: Kind::Vm,
        image: "carina".to_owned(),
        cpus: 1,
        memory_mib: 64,
        boot: Boot::Clone,
        interfaces: vec![interface],
        routes: vec![],
        routes6: vec![],
        founder: None,
        has_loop: false,
        start: Default::default(),
    };
    let node = PartNode {
        node,
        location: vec![],
        nics: 0,
        labels: BTreeMap::new(),
        apart_from: vec![],
        host: None,
    };
    let link = PartLink {
        number: 0,
        carrier: Carrier::Gre,
        rate: "1Mbps".parse().unwrap(),
        delay_max_us: None,
        ends: [PartEnd::Node(near()), PartEnd::Border("x".to_owned())],
        path: Default::default(),
        timetable: Default::default(),
        impairment: Default::default(),
    };
    let part = Box::new(PartRequest {
        name: "net".to_owned(),
        nodes: vec![node],
        links: vec![link],
        access: vec![],
    });
    ToPip::Reserve { key, part }
}

fn end(address: [u8; 4], tag: u32) -> TunnelEnd {
    let (host, address) = ("far-1".to_owned(), Ipv4Addr::from(address));
    TunnelEnd { host, address, tag }
}

fn key(vnet: u64) -> PartKey {
    let (vnet, round) = (VnetId::new(vnet), 1);
    PartKey { vnet, round }
}

/// Sends a message of a VNP; returns the provider's answers, and the tunnels that it orders.
fn tell(pip: &mut Pip<MemoryStore>, vnp: &str, message: ToPip) -> (Vec<FromPip>, Vec<Far>) {
    pip.handle_vnp(NOW, vnp, message);
    let (mut answers, mut tunnels) = (Vec::new(), Vec::new());
    while let Some(output) = pip.poll_transmit() {
        match output {
            Output::ToVnp { message, .. } => answers.push(message),
            Output::ToAgent { message, .. } => {
                if let ToAgent::Set(part) = message {
                    tunnels.extend(part.links.into_iter().map(|link| link.far));
                }
            }
        }
    }
    (answers, tunnels)
}

fn refusal(answers: &[FromPip]) -> &Reason {
    match answers {
        [FromPip::Refused { reason, .. }] => reason,
        other => panic!("it is refused: {other:?}"),
    }
}

#[test]
fn far_end_is_at_no_host_of_the_provider_itself() {
    let mut pip = provider();
    tell(&mut pip, "v", reserve(key(1)));
    let wrong = [
        // A tunnel between two hosts of the provider, with a tag that another network gets next.
        (end([192, 0, 2, 32], 7), "at a host of this provider"),
        (end([192, 0, 2, 16], 7), "at a host of this provider"),
        // An address for tunnels without a tag.
        (end([192, 0, 2, 35], 7), "at a host of this provider"),
        (end([127, 0, 0, 1], 7), "no host has such"),
        (end([224, 0, 0, 9], 7), "no host has such"),
        (end([198, 51, 101, 1], 7), "none of the known addresses"),
        (end([198, 51, 100, 1], 0), "must be 1 to 16777215"),
        (end([198, 51, 100, 1], 1 << 24), "must be 1 to 16777215"),
    ];
    for (far_end, words) in wrong {
        let far = vec![(near(), far_end)];
        let (answers, tunnels) = tell(&mut pip, "v", ToPip::Commit { key: key(1), far });
        let reason = refusal(&answers);
        assert_eq!(reason.code, ReasonCode::Impossible);
        assert!(reason.message.contains("r1:eth0"), "{reason:?}");
        assert!(reason.message.contains(words), "{reason:?}");
        let leaks = ["192.0.2", "h1", "h2"].map(|word| reason.message.contains(word));
        assert_eq!(leaks, [false; 3], "{reason:?}");
        assert!(tunnels.is_empty());
    }
    let elsewhere = EndPart {
        interface: "eth1".to_owned(),
        ..near()
    };
    let far_end = end([198, 51, 100, 1], 7);
    for far in [
        vec![(elsewhere, far_end.clone())],
        vec![(near(), far_end.clone()), (near(), far_end.clone())],
    ] {
        let (answers, _) = tell(&mut pip, "v", ToPip::Commit { key: key(1), far });
        assert_eq!(refusal(&answers).code, ReasonCode::Impossible);
    }
    // The part whose commitment was refused is still reserved.
    let far = vec![(near(), far_end)];
    let (answers, tunnels) = tell(&mut pip, "v", ToPip::Commit { key: key(1), far });
    assert!(answers.contains(&FromPip::Committed { key: key(1) }));
    assert!(matches!(&tunnels[..], [Far::Host(far)] if far.host == "far-1"));
}

#[test]
fn tunnel_of_anothers_network_is_not_taken() {
    let mut pip = provider();
    let far = |tag| vec![(near(), end([198, 51, 100, 1], tag))];
    tell(&mut pip, "v", reserve(key(1)));
    let commit = |key, far| ToPip::Commit { key, far };
    tell(&mut pip, "v", commit(key(1), far(9)));
    tell(&mut pip, "w", reserve(key(2)));
    let (answers, _) = tell(&mut pip, "w", commit(key(2), far(9)));
    let reason = refusal(&answers);
    assert_eq!(reason.code, ReasonCode::Conflict);
    assert!(
        reason.message.contains("same end addresses and tag"),
        "{reason:?}"
    );
    let (answers, _) = tell(&mut pip, "w", commit(key(2), far(10)));
    assert!(answers.contains(&FromPip::Committed { key: key(2) }));
}

#[test]
fn part_that_no_host_can_make_is_refused_at_once() {
    let refused = |change: fn(&mut PartRequest)| {
        let ToPip::Reserve { key, mut part } = reserve(key(1)) else {
            panic!("it is a reservation");
        };
        change(&mut part);
        let (answers, _) = tell(&mut provider(), "v", ToPip::Reserve { key, part });
        let reason = refusal(&answers);
        assert_eq!(reason.code, ReasonCode::Impossible);
        reason.message.clone()
    };
    type Change = fn(&mut PartRequest);
    let wrong: [(Change, &str); 6] = [
        (|part| part.name = "../x".to_owned(), "network \"../x\""),
        (
            |part| part.nodes[0].node.image = "x".repeat(1 << 20),
            "an image has a name",
        ),
        (
            |part| part.nodes[0].node.interfaces[0].mtu = 1,
            "mtu 1: must be 68 to 9000",
        ),
        (|part| part.links.clear(), "link 0 does not end there"),
        (
            |part| part.nodes[0].location = vec!["x".repeat(1 << 20)],
            "must have at most 256 letters",
        ),
        (
            |part| {
                part.nodes[0].labels = (0..999)
                    .map(|number| (number.to_string(), "".into()))
                    .collect()
            },
            "999 labels of a node",
        ),
    ];
    for (change, words) in wrong {
        let message = refused(change);
        assert!(message.contains(words) && message.len() < 300, "{message}");
    }
    // A round that is too large for a generation.
    let mut late = key(1);
    late.round = u64::MAX;
    let (answers, _) = tell(&mut provider(), "v", reserve(late));
    assert!(refusal(&answers).message.contains("must be at most"));
}

#[test]
fn tag_of_one_network_tells_nothing_of_the_next() {
    let tag = |vnet: u64| {
        let (answers, _) = tell(&mut provider(), "v", reserve(key(vnet)));
        match &answers[..] {
            [FromPip::Offered { ends, .. }] => ends[0].1.tag,
            other => panic!("it is offered: {other:?}"),
        }
    };
    let tags = [1, 2, 3].map(tag);
    assert_eq!(tag(1), tags[0], "the same network is asked again");
    assert!(
        tags[0].abs_diff(tags[1]) > 16 && tags[1].abs_diff(tags[2]) > 16,
        "{tags:?}"
    );
    assert!(tags.iter().all(|tag| (1..1 << 24).contains(tag)));
}

/// A VNP whose only provider has reserved a network of one node, and is asked to make it.
fn committing() -> Vnp<MemoryStore> {
    let store = MemoryStore::new(1 << 20);
    let pips = ["p".to_owned()];
    let mut vnp = Vnp::new("v", pips, store, Timing::default(), Random::new(1));
    let text = "[vnet]\nname = \"net\"\n[node.r1]\n";
    let document = Box::new(Document::read(text, Form::Toml).unwrap());
    let (vnet, generation) = (VnetId::new(1), 1);
    let want = ToVnp::Want {
        vnet,
        generation,
        document,
    };
    vnp.handle_vno(NOW, "o", want);
    let host = AdvertisedHost {
        cpus: 4,
        memory_mib: 1024,
        nics: 0,
        location: "uk".to_owned(),
        labels: [].into(),
    };
    let seen = Advertisement {
        is_exact: true,
        hosts: vec![host],
        ..Advertisement::default()
    };
    vnp.handle_pip(NOW, "p", FromPip::Advertisement(seen));
    let (key, ends) = (key(1), vec![]);
    vnp.handle_pip(NOW, "p", FromPip::Offered { key, ends });
    while vnp.poll_transmit().is_some() {}
    vnp
}

/// The text of the last reason that the operator gets.
fn told(vnp: &mut Vnp<MemoryStore>) -> Option<String> {
    let mut last = None;
    while let Some(output) = vnp.poll_transmit() {
        if let vnp::Output::ToVno { message, .. } = output
            && let FromVnp::Standing { standing, .. } = message
        {
            last = standing.reason.map(|reason| reason.message);
        }
    }
    last
}

#[test]
fn word_of_a_pip_that_is_no_node_reaches_no_operator() {
    let mut vnp = committing();
    let key = key(1);
    vnp.handle_pip(NOW, "p", FromPip::Committed { key });
    let says = |vnp: &mut Vnp<MemoryStore>, obstacle| {
        let status = PartStatus {
            obstacle: Some(obstacle),
            ..PartStatus::default()
        };
        vnp.handle_pip(NOW, "p", FromPip::Status { key, status });
        told(vnp)
    };
    let failed = says(
        &mut vnp,
        Obstacle::NodeFailed("r1".to_owned(), Cause::Image),
    );
    assert!(
        failed
            .unwrap()
            .contains("node r1: it has failed: its host has no bootable image")
    );
    let leak = Obstacle::NodeFailed("r1 on host h1 at 192.0.2.16".to_owned(), Cause::Image);
    let words = says(&mut vnp, leak).unwrap();
    assert!(
        !words.contains("h1") && !words.contains("192.0.2"),
        "{words}"
    );
}

#[test]
fn reason_of_a_pip_is_passed_on_in_one_line() {
    let mut vnp = committing();
    let key = key(1);
    let message = format!("no\u{1b}[2J\nroom {}", "x".repeat(1 << 20));
    let reason = Reason::new(ReasonCode::Impossible, message);
    vnp.handle_pip(NOW, "p", FromPip::Refused { key, reason });
    vnp.handle_pip(NOW, "p", FromPip::Released { key });
    let words = told(&mut vnp).unwrap();
    assert!(
        words.starts_with("no[2Jroom x") && words.len() <= 1000,
        "{}",
        words.len()
    );
}

#[test]
fn vnp_lets_all_go_when_a_commitment_is_refused() {
    let mut vnp = committing();
    let key = key(1);
    let reason = Reason::new(ReasonCode::Impossible, "the far end of r1:eth0: no");
    vnp.handle_pip(NOW, "p", FromPip::Refused { key, reason });
    let mut orders = Vec::new();
    while let Some(output) = vnp.poll_transmit() {
        if let vnp::Output::ToPip { message, .. } = output {
            orders.push(message);
        }
    }
    assert_eq!(orders, [ToPip::Release { key }]);
    vnp.handle_pip(NOW, "p", FromPip::Released { key });
    let words = told(&mut vnp);
    assert_eq!(words.as_deref(), Some("the far end of r1:eth0: no"));
}
