//! Late messages, and ends that overlap with beginnings: a message about an earlier flow or
//! registration does not affect a later one.

use carina_ipcp::{Command, FlowKey};
use carina_wire::FlowSpec;

use crate::rlite::hostile::{Liar, directory, member, members, registration};
use crate::rlite::net::{MS, Net, SECOND, line};

fn accept_last(net: &mut Net, at: &str) -> FlowKey {
    let flow = net.offered(at);
    let answer = Ok(());
    net.order(at, Command::Respond { flow, answer });
    flow
}

#[test]
fn a_decision_after_the_request_was_abandoned_opens_nothing() {
    let mut net = line(51, &["a", "b"]);
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(100 * SECOND);
    assert!(
        net.allocated("b", key)
            .is_some_and(|allocated| allocated.is_err())
    );
    let flow = accept_last(&mut net, "a");
    net.run(5 * SECOND);
    assert!(net.closed("a", flow).is_some(), "a believes in a flow");
    assert!(net.names("a", "/flows").is_empty());
}

#[test]
fn the_end_of_a_stale_registration_does_not_end_the_next_one() {
    let mut net = line(52, &["a", "b", "c"]);
    let register = |net: &mut Net| {
        net.accepts.insert("app".into());
        net.order("a", Command::Register { name: "app".into() });
    };
    register(&mut net);
    net.run(SECOND);
    net.wires[0].loss = 100;
    net.order("a", Command::Unregister { name: "app".into() });
    net.run(2 * SECOND);
    net.wires[0].loss = 0;
    // b still has the old registration; it reaches a by some path, and a answers that it has ended.
    let mut liar = Liar::new(net.address("b"));
    liar.say(&mut net, 1, directory(&[registration("app", "a", 1)]));
    net.run(10 * MS);
    register(&mut net);
    net.run(2 * SECOND);
    let key = net.try_allocate("c", "client", "app", FlowSpec::reliable());
    let key = key.expect("c knows of the registration");
    net.run(SECOND);
    assert_eq!(net.allocated("c", key), Some(Ok(())));
}

/// The address of a member, as another member knows it.
fn known_address(net: &mut Net, at: &str, name: &str) -> String {
    let shown = net.objects(at, &format!("/members/{name}"));
    format!("{shown:?}")
}

#[test]
fn a_member_that_comes_back_believes_what_was_outdated() {
    let mut net = line(53, &["b", "a", "c"]);
    let mut liar = Liar::new(net.address("a"));
    let own = format!("Uint({})", net.address("c"));
    assert!(known_address(&mut net, "b", "c").contains(&own));
    liar.say(&mut net, 1, members(&[member("c", 900)]));
    assert!(known_address(&mut net, "b", "c").contains("Uint(900)"));
    net.order("b", Command::Leave);
    net.run(2 * SECOND);
    let wire = net.wire("b", "a");
    let n1 = net.wires[wire].ends[0].1;
    net.order("b", Command::Enroll { n1 });
    net.run(10 * SECOND);
    assert!(known_address(&mut net, "b", "c").contains(&own));
}

#[test]
fn a_record_with_the_own_address_yields_to_another() {
    let mut net = line(54, &["c", "b", "a"]);
    let mut liar = Liar::new(net.address("b"));
    let (own, other) = (net.address("c"), format!("Uint({})", net.address("a")));
    liar.say(&mut net, 1, members(&[member("a", own)]));
    assert!(!known_address(&mut net, "c", "a").contains(&other));
    // b sends everything to one half of its neighbours, alternately, once a minute.
    net.run(150 * SECOND);
    assert!(known_address(&mut net, "c", "a").contains(&other));
}

#[test]
fn a_member_that_enrolls_again_keeps_its_address() {
    let mut net = line(55, &["a", "b"]);
    net.add("c");
    net.wire("c", "a");
    net.run(500 * MS);
    // b has learned that an address is assigned, but not to which IPCP.
    net.wires[0].loss = 100;
    net.run(600 * MS);
    let address = net.address("c");
    assert_ne!(address, 0);
    net.wire("c", "b");
    net.run(500 * MS);
    let mut liar = Liar::new(net.address("a"));
    liar.say(&mut net, 0, members(&[member("c", address)]));
    net.run(2 * SECOND);
    assert_eq!(net.address("c"), address);
    assert_eq!(net.count("c", "addresses-changed"), 0);
    assert!(
        net.names("b", "/routing/table")
            .contains(&address.to_string())
    );
}

#[test]
fn flows_end_with_the_address_that_they_are_from() {
    // Two DIFs of the same name grow into one: a and b have address 1, and a takes another.
    let mut net = Net::new(9);
    net.bootstrap("a");
    net.bootstrap("b");
    net.add("m");
    net.wire("m", "a");
    net.run(3 * SECOND);
    net.accepts.insert("app".into());
    net.order("m", Command::Register { name: "app".into() });
    net.run(SECOND);
    let key = net.allocate("a", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let other = net.offered("m");
    net.wire("m", "b");
    net.run(60 * SECOND);
    let (is_graceful, reason) = net.closed("a", key).expect("its end");
    assert!(
        !is_graceful && reason.contains("another address"),
        "{reason}"
    );
    assert!(net.closed("m", other).is_some());
    assert!(net.names("m", "/flows").is_empty());
}

#[test]
fn a_member_that_has_left_keeps_the_flows_of_others() {
    let mut net = line(56, &["a", "b"]);
    net.order("b", Command::Leave);
    net.run(2 * SECOND);
    let wire = net.wire("a", "b");
    let n1 = net.wires[wire].ends[1].1;
    net.run(5 * SECOND);
    assert_eq!(net.address("b"), 0, "it refuses what a asks");
    net.order("b", Command::Enroll { n1 });
    net.run(5 * SECOND);
    assert_ne!(net.address("b"), 0);
}
