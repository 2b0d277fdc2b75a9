//! Enrollment: joining, failures, and leaving.

use carina_ipcp::{Command, Event};

use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

#[test]
fn an_ipcp_joins_and_both_are_neighbours() {
    let mut net = chain(1, &["a", "b"], config());
    assert!(net.failures("b").is_empty(), "{:?}", net.failures("b"));
    let up = |event: &Event| match event {
        Event::NeighbourUp { name, .. } => Some(name.clone()),
        _ => None,
    };
    assert_eq!(net.told("a", up), ["b"]);
    assert_eq!(net.told("b", up), ["a"]);
    assert_ne!(net.members["a"].address(), net.members["b"].address());
    assert_eq!(net.names("a", "/members"), ["a", "b"]);
    assert_eq!(net.names("b", "/members"), ["a", "b"]);
    let enrolled = |event: &Event| match event {
        Event::Enrolled { config, .. } => Some(config.clone()),
        _ => None,
    };
    let (of_a, of_b) = (net.told("a", enrolled), net.told("b", enrolled));
    assert_eq!(of_b[0].cubes, of_a[0].cubes);
    assert_eq!(of_b[0].max_pdu, 1500);
}

#[test]
fn joining_survives_a_lossy_wire() {
    for seed in 1..20 {
        let mut net = Net::new(seed);
        net.bootstrap(
            "a",
            with_policy(config(), "authentication", "challenge", &[]),
        );
        net.add("b", None, "secret");
        let wire = net.wire("b", "a");
        net.wires[wire].loss = 30;
        net.run(60 * SECOND);
        assert!(net.is_member("b"), "seed {seed}: {:?}", net.failures("b"));
    }
}

#[test]
fn wrong_password_is_refused_and_both_sides_know() {
    let mut net = Net::new(3);
    net.bootstrap(
        "a",
        with_policy(config(), "authentication", "challenge", &[]),
    );
    net.add("b", None, "wrong");
    net.wire("b", "a");
    net.run(5 * SECOND);
    assert!(!net.is_member("b"));
    assert!(
        net.failures("b")[0].contains("authentication failed"),
        "{:?}",
        net.failures("b")
    );
    assert!(
        net.notices("a")[0].contains("the proof is wrong"),
        "{:?}",
        net.notices("a")
    );
    // The attempt is not repeated again and again.
    assert_eq!(net.failures("b").len(), 1);
    net.add("c", None, "secret");
    net.wire("c", "a");
    net.run(2 * SECOND);
    assert!(net.is_member("c"));
}

#[test]
fn four_in_a_row_know_one_another() {
    let mut net = chain(4, &["a", "b", "c", "d"], config());
    for name in ["a", "b", "c", "d"] {
        assert_eq!(net.names(name, "/members"), ["a", "b", "c", "d"]);
        assert_eq!(net.names(name, "/routing/table").len(), 3, "{name}");
    }
}

#[test]
fn leaving_in_order_is_known_everywhere() {
    let mut net = chain(5, &["a", "b", "c"], config());
    net.order("c", Command::Leave);
    net.run(2 * SECOND);
    assert!(!net.is_member("c"));
    assert_eq!(net.names("a", "/members"), ["a", "b"]);
    assert_eq!(net.names("b", "/neighbours"), ["a", "n1-4"]);
}
