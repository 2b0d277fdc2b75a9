//! Members that connect over new N-1 flows, that come back, or that must not connect.

use carina_ipcp::{Command, Event};
use carina_wire::FlowSpec;

use crate::layer_management::net::{Kind, Net, SECOND, chain, config, with_policy};

fn neighbours(net: &mut Net, of: &str) -> Vec<String> {
    let names = net.names(of, "/neighbours");
    names
        .into_iter()
        .filter(|name| !name.starts_with("n1-"))
        .collect()
}

#[test]
fn two_members_become_neighbours_without_enrollment() {
    let mut net = chain(1, &["a", "b", "c"], config());
    let before = net.members["c"].address();
    net.wire("c", "a");
    net.run(2 * SECOND);
    assert_eq!(neighbours(&mut net, "a"), ["b", "c"]);
    assert_eq!(net.members["c"].address(), before);
    let enrolled = net.told("c", |event| {
        matches!(event, Event::Enrolled { .. }).then_some(())
    });
    assert_eq!(enrolled.len(), 1);
}

#[test]
fn both_sides_may_ask_at_once() {
    for seed in 1..10 {
        let mut net = chain(seed, &["a", "b", "c"], config());
        net.wire_with("c", "a", 1500, Kind::BothAsk);
        net.run(2 * SECOND);
        assert_eq!(neighbours(&mut net, "a"), ["b", "c"], "seed {seed}");
        assert_eq!(neighbours(&mut net, "c"), ["a", "b"], "seed {seed}");
        // An IPCP that joins and a member may also connect to each other at the same time.
        net.add("d", None, "secret");
        net.wire_with("b", "d", 1500, Kind::BothAsk);
        net.run(2 * SECOND);
        assert!(net.is_member("d"), "seed {seed}: {:?}", net.failures("d"));
    }
}

#[test]
fn a_second_n1_flow_takes_over_when_the_first_ends() {
    let mut net = chain(2, &["a", "b"], config());
    net.wire("a", "b");
    net.run(2 * SECOND);
    net.accepts.insert("server".into());
    net.order(
        "b",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    let other = net.incoming["b"][0];
    net.end_wire(0);
    net.write("a", key, b"still here");
    net.run(2 * SECOND);
    assert_eq!(net.read("b", other), b"still here");
    assert_eq!(neighbours(&mut net, "a"), ["b"]);
    // The side that requested the first N-1 flow requests it again.
    let wanted = net.told("b", |event| match event {
        Event::NeedN1 { dif, remote } => Some((dif.clone(), remote.clone())),
        _ => None,
    });
    net.run(5 * SECOND);
    let later = net.told("b", |event| {
        matches!(event, Event::NeedN1 { .. }).then_some(())
    });
    assert!(wanted.len() <= later.len() && !later.is_empty());
}

#[test]
fn a_restarted_member_keeps_its_address_and_its_flows_end() {
    let mut net = chain(3, &["a", "b", "c"], config());
    net.accepts.insert("server".into());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let before = net.members["c"].address();
    net.restart("c", "secret");
    net.run(5 * SECOND);
    assert_eq!(net.members["c"].address(), before);
    let (is_graceful, reason) = net.closed("a", key).expect("an end");
    assert!(!is_graceful && reason.contains("restarted"), "{reason}");
    // The registrations of the earlier incarnation are removed.
    assert!(net.names("a", "/directory").is_empty());
}

#[test]
fn a_member_in_the_middle_restarts() {
    let mut net = chain(4, &["a", "b", "c"], config());
    net.restart("b", "secret");
    net.run(20 * SECOND);
    for name in ["a", "b", "c"] {
        assert_eq!(net.names(name, "/members"), ["a", "b", "c"]);
        assert_eq!(net.names(name, "/routing/table").len(), 2, "{name}");
    }
}

#[test]
fn silence_ends_neighbours_and_a_word_brings_them_back() {
    let mut net = chain(5, &["a", "b"], config());
    net.wires[0].is_cut = true;
    net.run(10 * SECOND);
    for name in ["a", "b"] {
        let down = net.told(name, |event| match event {
            Event::NeighbourDown { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert_eq!(down, ["no sign of life"], "{name}");
    }
    net.wires[0].is_cut = false;
    net.run(40 * SECOND);
    assert_eq!(neighbours(&mut net, "a"), ["b"]);
    assert_eq!(neighbours(&mut net, "b"), ["a"]);
}

#[test]
fn another_dif_is_refused_with_its_name() {
    let mut net = Net::new(6);
    net.bootstrap("a", config());
    net.add_to("other", "b", None, "secret");
    net.wire("b", "a");
    net.run(2 * SECOND);
    let failures = net.failures("b");
    assert!(
        failures[0].contains("this member is in DIF \"net\", not in \"other\""),
        "{failures:?}"
    );
    assert!(
        net.notices("a")[0].contains("refused"),
        "{:?}",
        net.notices("a")
    );
}

#[test]
fn a_member_without_others_joins_the_existing_dif() {
    for (lone, first) in [("a", "c"), ("d", "b")] {
        let mut net = chain(7, &[first, "x"], config());
        net.bootstrap(lone, config());
        net.wire(lone, first);
        net.run(5 * SECOND);
        let mut expected = vec![lone.to_string(), first.to_string(), "x".into()];
        expected.sort();
        assert_eq!(net.names(lone, "/members"), expected);
        assert_eq!(net.names("x", "/members"), expected);
    }
}

#[test]
fn two_difs_of_one_name_stay_apart_and_say_so() {
    let mut net = chain(8, &["a", "b"], config());
    net.bootstrap("c", config());
    net.add("d", None, "secret");
    net.wire("d", "c");
    net.run(2 * SECOND);
    net.wire("a", "c");
    net.run(5 * SECOND);
    assert_eq!(net.names("a", "/members"), ["a", "b"]);
    assert_eq!(net.names("c", "/members"), ["c", "d"]);
    for name in ["a", "c"] {
        let notices = net.notices(name);
        assert!(
            notices
                .iter()
                .any(|text| text.contains("bootstrapped separately")),
            "{notices:?}"
        );
    }
}

#[test]
fn an_n1_flow_that_is_too_small_is_refused_with_what_would_do() {
    let mut net = chain(9, &["a", "b"], config());
    net.add("c", None, "secret");
    net.wire_with("c", "a", 900, Kind::Plain);
    net.run(2 * SECOND);
    let failures = net.failures("c");
    assert!(failures[0].contains("carries 900 bytes"), "{failures:?}");
    assert!(failures[0].contains("1500"), "{failures:?}");
}

#[test]
fn a_protected_n1_flow_survives_loss_and_restart() {
    let config = with_policy(config(), "authentication", "challenge", &[]);
    let config = with_policy(config, "sdu-protection", "stamp", &[]);
    for seed in 1..8 {
        let mut net = Net::new(seed);
        net.bootstrap("a", config.clone());
        net.add("b", None, "secret");
        let wire = net.wire_with("b", "a", 1500, Kind::Exposed);
        net.wires[wire].loss = 20;
        net.run(60 * SECOND);
        assert!(net.is_member("b"), "seed {seed}: {:?}", net.failures("b"));
        net.restart("b", "secret");
        net.run(60 * SECOND);
        assert!(net.is_member("b"), "seed {seed}: {:?}", net.failures("b"));
        assert_eq!(neighbours(&mut net, "a"), ["b"], "seed {seed}");
    }
}

#[test]
fn a_dif_without_authentication_is_not_joined_by_mistake() {
    let mut net = Net::new(10);
    net.bootstrap("a", config());
    let wants = with_policy(config(), "authentication", "challenge", &[]);
    net.add("b", Some(wants), "secret");
    net.wire("b", "a");
    net.run(2 * SECOND);
    assert!(!net.is_member("b"));
    assert!(
        net.failures("b")[0].contains("does not authenticate"),
        "{:?}",
        net.failures("b")
    );
}

#[test]
fn all_policies_of_the_dif_come_with_enrollment() {
    let config = with_policy(config(), "qos-selection", "best-fit", &[]);
    let config = with_policy(config, "address-assignment", "blocks", &[("size", "8")]);
    let mut net = chain(11, &["a", "b"], config);
    for name in ["a", "b"] {
        let shown = net.read_rib(name, "/policies/address-assignment", 0);
        let fields = format!("{:?}", shown[0].fields);
        assert!(
            fields.contains("blocks") && fields.contains("\"8\""),
            "{fields}"
        );
    }
}
