//! A partitioned DIF, and its state after the parts are joined again.

use carina_ipcp::{Command, Event};

use crate::layer_management::net::{Net, SECOND, chain, config};

#[test]
fn both_halves_learn_what_happened_in_the_other() {
    let mut net = chain(1, &["a", "b", "c", "d"], config());
    net.order("a", Command::Register { name: "old".into() });
    net.order(
        "d",
        Command::Register {
            name: "kept".into(),
        },
    );
    net.run(SECOND);
    net.wires[1].is_cut = true;
    net.run(20 * SECOND);
    net.order("a", Command::Register { name: "new".into() });
    net.order("a", Command::Unregister { name: "old".into() });
    net.order(
        "d",
        Command::Register {
            name: "other".into(),
        },
    );
    net.run(5 * SECOND);
    assert_eq!(net.names("c", "/directory"), ["kept", "old", "other"]);
    net.wires[1].is_cut = false;
    net.run(60 * SECOND);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(
            net.names(name, "/directory"),
            ["kept", "new", "other"],
            "{name}"
        );
    }
}

#[test]
fn entries_of_a_lost_member_are_hidden_and_shown_again() {
    let mut net = chain(2, &["a", "b", "c"], config());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    net.wires[1].is_cut = true;
    net.run(30 * SECOND);
    assert_eq!(net.names("a", "/directory"), ["server"]);
    net.run(60 * SECOND);
    assert!(net.names("a", "/directory").is_empty());
    let gone = net.told("a", |event| match event {
        Event::Unreachable { name } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(gone, ["server"]);
    net.wires[1].is_cut = false;
    net.run(60 * SECOND);
    assert_eq!(net.names("a", "/directory"), ["server"]);
}

#[test]
fn any_order_of_cuts_ends_with_one_view() {
    for seed in 1..12u64 {
        let names = ["a", "b", "c", "d", "e"];
        let mut net = chain(seed, &names, config());
        net.wire("e", "a");
        net.run(3 * SECOND);
        let mut random = seed;
        for round in 0..12u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round + 1);
            let wire = (random >> 33) as usize % net.wires.len();
            net.wires[wire].is_cut ^= true;
            let name = names[(random >> 40) as usize % names.len()];
            let app = format!("app-{}", (random >> 45) % 4);
            let command = if random >> 50 & 1 == 0 {
                Command::Register { name: app }
            } else {
                Command::Unregister { name: app }
            };
            net.order(name, command);
            net.run((random >> 52) % 20 * SECOND / 4);
        }
        for wire in &mut net.wires {
            wire.is_cut = false;
        }
        net.run(120 * SECOND);
        let view = one_view(&mut net, "a");
        for name in names {
            assert_eq!(one_view(&mut net, name), view, "seed {seed}: {name}");
            assert_eq!(
                net.names(name, "/routing/table").len(),
                4,
                "seed {seed}: {name}"
            );
        }
    }
}

/// A text with all members and applications that a member knows, for comparison.
fn one_view(net: &mut Net, name: &str) -> String {
    let mut view = String::new();
    for object in net.read_rib(name, "/directory", 1) {
        let members = object.fields.iter().find(|(name, _)| name == "members");
        view += &format!("{} {:?}\n", object.path, members);
    }
    for object in net.read_rib(name, "/members", 1) {
        view += &format!("{} {:?}\n", object.path, object.fields);
    }
    view
}
