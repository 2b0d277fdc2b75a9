//! Tests nodes that move while one of their links leads to another provider, message by message.

use std::net::Ipv4Addr;

use carina_random::Random;
use carina_time::Instant;
use carina_vnet::document::{Carrier, Document, Form, Kind};
use carina_vnet::host_part::{EndPart, Far, FarHost, InterfacePart};
use carina_vnet::message::{
    AdvertisedBorder, AdvertisedHost, Advertisement, FromPip, MoveState, PartEnd, PartLink, Reason,
    ReasonCode, Repoint, RepointAnswer, ToAgent, ToPip, ToVnp, TunnelEnd,
};
use carina_vnet::pip::MoveOutcome;
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;
use carina_vnet::vnp::{Output, Vnp};

use crate::moves::{House, LIMIT, VNET, key, node};

fn near() -> EndPart {
    EndPart {
        node: "m".to_owned(),
        interface: "eth0".to_owned(),
    }
}

/// The tunnel end at the other provider.
fn far_end(host: &str, last: u8) -> TunnelEnd {
    TunnelEnd {
        host: host.to_owned(),
        address: Ipv4Addr::new(198, 51, 100, last),
        tag: 9,
    }
}

/// A provider with machine `m` on `h1`, which has a link to another provider.
fn house() -> House {
    let mut house = House::empty();
    let link = PartLink {
        number: 0,
        carrier: Carrier::Vxlan,
        rate: "1Mbps".parse().unwrap(),
        delay_max_us: None,
        ends: [PartEnd::Node(near()), PartEnd::Border("channel".to_owned())],
        path: Default::default(),
        timetable: Default::default(),
        impairment: Default::default(),
    };
    let mut m = node("m", Kind::Vm, 2);
    m.node.interfaces = vec![InterfacePart {
        name: near().interface,
        mac: "02:00:00:00:00:01".parse().unwrap(),
        address: "10.0.0.1/30".parse().unwrap(),
        peer: Ipv4Addr::new(10, 0, 0, 2),
        address6: None,
        mtu: 1400,
        link: 0,
    }];
    assert!(house.reserve_with(1, 1, vec![m], vec![link]));
    house.tell(ToPip::Commit {
        key: key(1, 1),
        far: vec![(near(), far_end("x1", 1))],
    });
    house.report();
    assert_eq!(leads_to(&house, "h1"), (Ipv4Addr::new(198, 51, 100, 1), 9));
    house.answers();
    house
}

/// The far end and the tag of a host's link.
fn leads_to(house: &House, host: &str) -> (Ipv4Addr, u32) {
    let link = &house.hosts[host].has[&VNET].links[0];
    let Far::Host(FarHost { remote, .. }) = &link.far else {
        panic!("{link:?}");
    };
    (*remote, link.tag)
}

/// The provider's `Repoint` message, if there is one.
fn repoint(answers: &[FromPip]) -> Option<Repoint> {
    answers.iter().find_map(|answer| match answer {
        FromPip::Repoint(repoint) => Some(repoint.clone()),
        _ => None,
    })
}

fn answer(number: u64, is_decided: bool, refusal: Option<Reason>) -> ToPip {
    ToPip::RepointAnswer(RepointAnswer {
        key: key(1, 1),
        number,
        is_decided,
        ends: vec![near()],
        refusal,
    })
}

#[test]
fn provider_beyond_agrees_before_and_hears_afterwards() {
    let mut house = house();
    house.begin("m", "h2", 7).unwrap();
    let asked = repoint(&house.answers()).unwrap();
    let (end, at) = &asked.ends[0];
    assert_eq!((end, &*at.host), (&near(), "h2"));
    assert_eq!(at.address, Ipv4Addr::new(192, 0, 2, 2));
    assert!((asked.number, asked.is_decided) == (7, false));
    // No host changes anything until the other provider agrees; answers to other moves are ignored.
    house.tell(answer(6, false, None));
    house.tell(answer(7, true, None));
    house.report();
    assert!(house.hosts["h2"].orders.is_empty());
    let before = house.hosts["h1"].has[&VNET].clone();
    house.tell(answer(7, false, None));
    house.report();
    assert!(house.ordered("h2", |message| matches!(message, ToAgent::Receive(_))));
    house.says("h2", 7, MoveState::Awaited {});
    house.says("h1", 7, MoveState::Sending {});
    assert_eq!(house.hosts["h1"].has[&VNET], before);
    house.answers();
    house.says("h2", 7, MoveState::Arrived {});
    let told = repoint(&house.answers()).unwrap();
    assert!(told.is_decided && told.ends == asked.ends, "{told:?}");
    assert_eq!(leads_to(&house, "h2"), (Ipv4Addr::new(198, 51, 100, 1), 9));
    let paused_us = Some(3);
    house.says("h2", 7, MoveState::Runs { paused_us });
    assert_eq!(house.outcome(7), None);
    // By then the node has moved in any case. Another move waits until the other provider has
    // acknowledged this one, however often it must be asked.
    house.now += LIMIT;
    house.report();
    assert_eq!(house.outcome(7), Some(MoveOutcome::Moved { paused_us }));
    assert_eq!(repoint(&house.answers()), Some(told));
    let (code, words) = house.begin("m", "h1", 8).unwrap_err();
    assert!(code == ReasonCode::Conflict && words.contains("has not been notified"));
    house.tell(answer(7, true, None));
    house.begin("m", "h1", 8).unwrap();
    assert!(!repoint(&house.answers()).unwrap().is_decided);
}

#[test]
fn move_is_given_up_if_the_provider_beyond_does_not_agree() {
    let mut house = house();
    let before = house.hosts["h1"].has[&VNET].clone();
    house.begin("m", "h2", 7).unwrap();
    let words = "a node at the other end of a link moves, too";
    let refusal = Some(Reason::new(ReasonCode::Conflict, words));
    house.tell(answer(7, false, refusal));
    let Some(MoveOutcome::Stayed { reason }) = house.outcome(7) else {
        panic!("it has not been given up");
    };
    assert!(reason.ends_with(words), "{reason}");
    // The destination reports that it has nothing; only then is there room for another move.
    house.report();
    // If it reports nothing, it is waited for as long as the move may take.
    house.begin("m", "h2", 8).unwrap();
    house.now += LIMIT;
    house.report();
    let outcome = house.outcome(8).unwrap();
    assert!(matches!(outcome, MoveOutcome::Stayed { reason } if reason.contains("did not agree")));
    house.report();
    assert!(house.hosts["h2"].has.is_empty());
    assert_eq!(house.hosts["h1"].has[&VNET].links, before.links);
}

#[test]
fn links_lead_to_where_a_node_beyond_has_moved() {
    let mut house = house();
    let wanted = |number: u64, is_decided: bool, end: EndPart, to: TunnelEnd| {
        ToPip::Repoint(Repoint {
            key: key(1, 1),
            number,
            is_decided,
            ends: vec![(end, to)],
        })
    };
    let refusal = |answers: Vec<FromPip>| match &answers[..] {
        [FromPip::RepointAnswer(answer)] => answer.refusal.clone(),
        other => panic!("{other:?}"),
    };
    let other_tag = TunnelEnd {
        tag: 77,
        ..far_end("x2", 2)
    };
    assert_eq!(
        refusal(house.tell(wanted(5, false, near(), other_tag.clone()))),
        None
    );
    house.report();
    assert_eq!(leads_to(&house, "h1"), (Ipv4Addr::new(198, 51, 100, 1), 9));
    // The link's tag stays; repeating the message changes nothing.
    for _ in 0..2 {
        let answers = house.tell(wanted(5, true, near(), other_tag.clone()));
        assert_eq!(refusal(answers), None);
        house.report();
        assert_eq!(leads_to(&house, "h1"), (Ipv4Addr::new(198, 51, 100, 2), 9));
        house.answers();
    }
    let strange = EndPart {
        node: "m".to_owned(),
        interface: "eth9".to_owned(),
    };
    let refused = refusal(house.tell(wanted(6, true, strange, far_end("x3", 3)))).unwrap();
    assert_eq!(refused.code, ReasonCode::Impossible);
    // While a node moves here, one at the other provider may not move. If it has moved
    // nevertheless, the link follows it, and the move here is given up.
    house.begin("m", "h2", 7).unwrap();
    house.tell(answer(7, false, None));
    house.says("h2", 7, MoveState::Awaited {});
    house.answers();
    let refused = refusal(house.tell(wanted(8, false, near(), far_end("x3", 3)))).unwrap();
    assert_eq!(refused.code, ReasonCode::Conflict);
    house.answers();
    house.tell(wanted(8, true, near(), far_end("x3", 3)));
    house.report();
    assert_eq!(leads_to(&house, "h1"), (Ipv4Addr::new(198, 51, 100, 3), 9));
    assert!(matches!(house.outcome(7), Some(MoveOutcome::Stayed { .. })));
    assert!(house.hosts["h2"].moves.is_empty() && house.hosts["h2"].has.is_empty());
}

const NOW: Instant = Instant::from_secs(1000);

/// A VNP that has made a network of two linked nodes, `m` at provider `de` and `n` at `uk`.
fn vnp() -> Vnp<MemoryStore> {
    let store = MemoryStore::new(1 << 20);
    let pips = ["de", "uk"].map(str::to_owned);
    let mut vnp = Vnp::new("v", pips, store, Timing::default(), Random::new(1));
    let text = "[vnet]\nname = \"net\"\n[node.m]\nlocation = [\"de\"]\n\
        [node.n]\nlocation = [\"uk\"]\n\
        [[link]]\nends = [\"m\", \"n\"]\nrate = \"1Mbps\"\nas = \"vxlan\"\n";
    let want = ToVnp::Want {
        vnet: VNET,
        generation: 1,
        document: Box::new(Document::read(text, Form::Toml).unwrap()),
    };
    vnp.handle_vno(NOW, "o", want);
    for pip in ["de", "uk"] {
        let host = AdvertisedHost {
            cpus: 4,
            memory_mib: 1024,
            nics: 0,
            location: pip.to_owned(),
            labels: [].into(),
        };
        let border = AdvertisedBorder {
            name: "channel".to_owned(),
            host: 0,
            rate_bps: 1_000_000_000,
            delay_us: 0,
        };
        let seen = Advertisement {
            is_exact: true,
            hosts: vec![host],
            links: vec![],
            borders: vec![border],
        };
        vnp.handle_pip(NOW, pip, FromPip::Advertisement(seen));
    }
    for (pip, node, last) in [("de", "m", 1), ("uk", "n", 2)] {
        let ends = vec![(end_of(node), far_end(pip, last))];
        vnp.handle_pip(
            NOW,
            pip,
            FromPip::Offered {
                key: key(1, 1),
                ends,
            },
        );
    }
    for pip in ["de", "uk"] {
        vnp.handle_pip(NOW, pip, FromPip::Committed { key: key(1, 1) });
    }
    orders(&mut vnp);
    vnp
}

fn end_of(node: &str) -> EndPart {
    EndPart {
        node: node.to_owned(),
        interface: "eth0".to_owned(),
    }
}

/// The messages to providers.
fn orders(vnp: &mut Vnp<MemoryStore>) -> Vec<(String, ToPip)> {
    let mut orders = Vec::new();
    while let Some(output) = vnp.poll_transmit() {
        if let Output::ToPip { pip, message } = output {
            orders.push((pip, message));
        }
    }
    orders
}

#[test]
fn vnp_passes_on_what_providers_say_of_their_own_ends() {
    let mut vnp = vnp();
    let repoint = |node: &str| Repoint {
        key: key(1, 1),
        number: 7,
        is_decided: true,
        ends: vec![(end_of(node), far_end("d2", 9))],
    };
    vnp.handle_pip(NOW, "de", FromPip::Repoint(repoint("m")));
    let passed = ("uk".to_owned(), ToPip::Repoint(repoint("n")));
    assert_eq!(orders(&mut vnp), [passed]);
    let answer = |node: &str| RepointAnswer {
        key: key(1, 1),
        number: 7,
        is_decided: true,
        ends: vec![end_of(node)],
        refusal: None,
    };
    vnp.handle_pip(NOW, "uk", FromPip::RepointAnswer(answer("n")));
    let passed = ("de".to_owned(), ToPip::RepointAnswer(answer("m")));
    assert_eq!(orders(&mut vnp), [passed]);
    // A provider cannot send messages about another provider's link ends, or about an attempt that
    // is not live.
    vnp.handle_pip(NOW, "uk", FromPip::Repoint(repoint("m")));
    vnp.handle_pip(NOW, "de", FromPip::RepointAnswer(answer("n")));
    let late = Repoint {
        key: key(1, 2),
        ..repoint("m")
    };
    vnp.handle_pip(NOW, "de", FromPip::Repoint(late));
    assert!(orders(&mut vnp).is_empty());
    assert_eq!(vnp.discarded()["move of ends of others"], 2);
}
