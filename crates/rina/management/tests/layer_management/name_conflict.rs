//! Name conflicts between two IPCPs. A member that restarts must not be taken for a conflict with
//! itself.

use carina_ipcp::api::Scalar;
use carina_ipcp::{Command, Event};
use carina_wire::FlowSpec;

use crate::layer_management::net::{MS, Net, SECOND, chain, config};

const TAKEN: &str = "\"a\" is the name of another member that is alive; choose another name";

/// The reasons for which an IPCP ceased to be a member.
fn departures(net: &Net, at: &str) -> Vec<String> {
    net.told(at, |event| match event {
        Event::Left { reason } => Some(reason.clone()),
        _ => None,
    })
}

/// Address and incarnation of each member, as one member knows them.
fn known(net: &mut Net, at: &str) -> Vec<(String, Vec<(String, Scalar)>)> {
    let objects = net.read_rib(at, "/members", 1);
    objects
        .into_iter()
        .map(|object| (object.path, object.fields))
        .collect()
}

/// Checks that exactly one IPCP of `pair` is a member, and that it and `others` know the same
/// members. Returns its name.
fn winner(net: &mut Net, pair: [&'static str; 2], others: &[&str]) -> &'static str {
    let members = pair.map(|name| net.is_member(name));
    assert_ne!(members[0], members[1], "{pair:?}: {members:?}");
    let (winner, loser) = if members[0] {
        (pair[0], pair[1])
    } else {
        (pair[1], pair[0])
    };
    let reasons = departures(net, loser);
    assert!(
        reasons.len() == 1 && reasons[0].contains(TAKEN),
        "{reasons:?}"
    );
    assert!(departures(net, winner).is_empty());
    let view = known(net, winner);
    for name in others {
        assert_eq!(known(net, name), view, "{name}");
        assert_eq!(
            net.names(name, "/routing/table").len(),
            others.len(),
            "{name}"
        );
    }
    winner
}

#[test]
fn the_name_of_a_living_member_is_refused() {
    let mut net = chain(1, &["a", "b", "c", "d"], config());
    net.accepts.insert("server".into());
    net.order(
        "a",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let flow = net.allocate("d", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    net.add_same_name("other", "a");
    net.wire("other", "d");
    net.run(30 * SECOND);
    assert!(!net.is_member("other"));
    let refusals = net.refusals("other");
    assert!(
        refusals.len() == 1 && refusals[0].contains(TAKEN),
        "{refusals:?}"
    );
    assert!(net.notices("d").iter().any(|text| text.contains(TAKEN)));
    assert_eq!(net.count("d", "name-conflict-queries"), 1);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(net.count(name, "entries-disputed"), 0, "{name}");
    }
    assert_eq!(net.closed("d", flow), None);
    net.write("d", flow, b"still there");
    net.run(SECOND);
    let called = net.offered("a");
    assert_eq!(net.read("a", called), b"still there");
}

#[test]
fn a_new_or_withdrawn_name_needs_no_query() {
    let mut net = chain(2, &["a", "b", "c"], config());
    net.order("c", Command::Leave);
    net.run(2 * SECOND);
    net.add_same_name("other", "c");
    net.wire("other", "a");
    net.run(SECOND);
    assert!(net.is_member("other"));
    for name in ["a", "b"] {
        assert_eq!(net.count(name, "name-conflict-queries"), 0, "{name}");
    }
}

#[test]
fn a_restarted_member_enrolls_before_its_death_is_known() {
    for seed in 1..20 {
        let mut net = chain(seed, &["a", "b", "c", "d"], config());
        // The restarted member has several neighbours, which still consider it up.
        net.wire("d", "a");
        net.wire("a", "c");
        net.run(3 * SECOND);
        let address = net.address("a");
        net.restart("a", "secret");
        net.run(1_500 * MS);
        assert!(net.is_member("a"), "seed {seed}: {:?}", net.failures("a"));
        assert_eq!(net.address("a"), address);
        assert!(net.failures("a").is_empty(), "{:?}", net.failures("a"));
        net.run(60 * SECOND);
        assert!(departures(&net, "a").is_empty());
        let view = known(&mut net, "a");
        for name in ["b", "c", "d"] {
            assert_eq!(known(&mut net, name), view, "seed {seed}: {name}");
        }
    }
}

#[test]
fn a_member_that_restarts_often_in_a_partition_stays() {
    let mut net = chain(7, &["b", "a", "c"], config());
    for round in 0..6 {
        // One half of the DIF learns of this restart later than of the next one.
        let cut = round % 2;
        net.wires[cut].is_cut = true;
        net.restart("a", "secret");
        net.run(20 * SECOND);
        assert!(net.is_member("a"), "{:?}", net.failures("a"));
        net.wires[cut].is_cut = false;
        net.run(3 * SECOND);
    }
    net.run(60 * SECOND);
    assert!(departures(&net, "a").is_empty());
    assert!(net.is_member("a"));
    let view = known(&mut net, "a");
    assert_eq!(view.len(), 4);
    assert_eq!(known(&mut net, "b"), view);
    assert_eq!(known(&mut net, "c"), view);
}

#[test]
fn of_two_that_join_at_once_one_stays() {
    for seed in 1..20 {
        let mut net = chain(seed, &["b", "c", "d", "e"], config());
        net.add_same_name("one", "a");
        net.add_same_name("two", "a");
        net.wire("one", "b");
        net.wire("two", "e");
        net.run(20 * SECOND);
        winner(&mut net, ["one", "two"], &["b", "c", "d", "e"]);
    }
}

#[test]
fn after_a_partition_the_earlier_of_two_names_stays() {
    for seed in 1..4 {
        for silence in [10, 90, 700] {
            let mut net = chain(seed, &["a", "b", "c", "d"], config());
            net.order("a", Command::Register { name: "old".into() });
            net.run(SECOND);
            net.wires[1].is_cut = true;
            net.run(silence * SECOND);
            net.add_same_name("other", "a");
            net.wire("other", "d");
            net.order("other", Command::Register { name: "new".into() });
            net.run(10 * SECOND);
            assert!(net.is_member("other"), "{:?}", net.failures("other"));
            net.wires[1].is_cut = false;
            net.run(90 * SECOND);
            let winner = winner(&mut net, ["a", "other"], &["b", "c", "d"]);
            let name = if winner == "a" { "old" } else { "new" };
            for at in ["b", "c", "d"] {
                assert_eq!(net.names(at, "/directory"), [name], "{seed} {silence} {at}");
            }
            // A member that was forgotten has no precedence.
            assert!(winner == "a" || silence > 600, "{seed} {silence}");
        }
    }
}

#[test]
fn two_of_one_name_that_are_the_only_way_between_parts_meet() {
    for seed in 1..10 {
        let mut net = chain(seed, &["b", "c"], config());
        net.wires[0].is_cut = true;
        net.run(10 * SECOND);
        net.add_same_name("one", "a");
        net.add_same_name("two", "a");
        net.wire("one", "b");
        net.wire("two", "c");
        net.run(5 * SECOND);
        net.expect_members(&["one", "two"]);
        net.wire("one", "two");
        net.run_until(60, "one leaves", |net| {
            net.is_member("one") != net.is_member("two")
        });
        net.wires[0].is_cut = false;
        net.run(60 * SECOND);
        winner(&mut net, ["one", "two"], &["b", "c"]);
    }
}
