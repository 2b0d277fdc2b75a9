//! The directory and routes that all members have in the end.

use carina_ipcp::{Command, Event};

use crate::irati::net::{Net, SECOND, chain, config};

#[test]
fn registrations_come_and_go_everywhere() {
    let mut net = chain(1, &["a", "b", "c"], &config());
    net.register("a", "app.one");
    net.register("c", "app.two|1");
    net.run(SECOND);
    for at in ["a", "b", "c"] {
        assert_eq!(net.names(at, "/directory"), ["app.one", "app.two|1"]);
    }
    let name = "app.one".to_string();
    net.order("a", Command::Unregister { name });
    net.run(SECOND);
    for at in ["a", "b", "c"] {
        assert_eq!(net.names(at, "/directory"), ["app.two|1"]);
    }
    let told = net.told("b", |event| match event {
        Event::Reachable { name } => Some((name.clone(), true)),
        Event::Unreachable { name } => Some((name.clone(), false)),
        _ => None,
    });
    let one = "app.one".to_string();
    assert!(told.contains(&(one.clone(), true)) && told.contains(&(one, false)));
}

#[test]
fn name_stays_while_one_of_its_holders_is_left() {
    for seed in 1..20 {
        // In a ring of three, `m0` receives the end from both others. In a row, the route to the
        // other holder leads through the member that withdraws the name, or through a member
        // without it.
        for (mut net, goes, stays) in [
            (ring(seed, 3), "m1", "m2"),
            (chain(seed, &["m0", "m1", "m2"], &config()), "m1", "m2"),
            (chain(seed, &["m0", "m1", "m2"], &config()), "m2", "m0"),
            (ring(seed, 5), "m2", "m3"),
        ] {
            let at: Vec<String> = net.members.keys().cloned().collect();
            net.register(goes, "both");
            net.register(stays, "both");
            net.run(SECOND);
            let name = "both".to_string();
            net.order(goes, Command::Unregister { name });
            net.run(SECOND);
            for at in &at {
                assert_eq!(net.names(at, "/directory"), ["both"], "{at} of seed {seed}");
            }
            let name = "both".to_string();
            net.order(stays, Command::Unregister { name });
            net.run(2 * SECOND);
            for at in &at {
                assert_eq!(net.names(at, "/directory"), Vec::<String>::new(), "{at}");
            }
        }
    }
}

#[test]
fn one_that_joins_late_learns_everything() {
    let mut net = chain(2, &["a", "b"], &config());
    for number in 0..40 {
        net.register("a", &format!("app.{number}"));
    }
    net.run(SECOND);
    net.add("c", config());
    net.wire("c", "b");
    net.run(2 * SECOND);
    assert_eq!(net.names("c", "/directory").len(), 40);
    assert_eq!(net.names("c", "/routing/table").len(), 2);
    assert_eq!(net.names("a", "/routing/table").len(), 2);
}

#[test]
fn a_quiet_dif_stays_quiet() {
    let mut net = ring(3, 5);
    net.register("m0", "app");
    net.run(20 * SECOND);
    let before = net.flown;
    net.run(60 * SECOND);
    // Ten ends of wires: a keep-alive and its answer every five seconds, and everything once a
    // minute, in one or two PDUs for links and one for the directory.
    let flown = net.flown - before;
    assert!(flown < 10 * (2 * 13 + 8), "{flown} PDUs");
}

#[test]
fn a_ring_that_is_cut_goes_the_other_way() {
    let mut net = ring(4, 5);
    net.register("m0", "app");
    net.run(5 * SECOND);
    for at in 0..5 {
        assert_eq!(net.names(&format!("m{at}"), "/routing/table").len(), 4);
    }
    net.end_wire(0);
    net.run(10 * SECOND);
    for at in 0..5 {
        let at = format!("m{at}");
        assert_eq!(net.names(&at, "/routing/table").len(), 4, "{at}");
        assert_eq!(net.names(&at, "/directory"), ["app"], "{at}");
    }
    // Now m0 is connected to m4 only.
    net.end_wire(4);
    net.run(10 * SECOND);
    assert_eq!(net.names("m2", "/directory"), Vec::<String>::new());
    net.mend_wire(4);
    net.run(20 * SECOND);
    assert_eq!(net.names("m2", "/directory"), ["app"]);
}

#[test]
fn everybody_agrees_in_the_end_although_messages_are_lost() {
    for seed in 1..8 {
        let mut net = ring(100 + seed, 5);
        for wire in &mut net.wires {
            wire.loss = 15;
        }
        net.register("m0", "stays");
        net.register("m2", "goes");
        net.run(40 * SECOND);
        let name = "goes".to_string();
        net.order("m2", Command::Unregister { name });
        net.end_wire(1);
        net.run_until(900, "all agree", |net| {
            (0..5).all(|at| {
                let at = format!("m{at}");
                net.names(&at, "/directory") == ["stays"]
                    && net.names(&at, "/routing/table").len() == 4
            })
        });
    }
}

#[test]
fn a_restarted_member_withdraws_its_earlier_entries() {
    let mut net = ring(6, 3);
    net.register("m1", "old");
    net.run(5 * SECOND);
    net.members.remove("m1");
    net.add("m1", config());
    net.register("m1", "new");
    for (wire, end) in [(0, 0), (1, 1)] {
        net.raise(wire, end);
    }
    net.run_until(300, "only the new one is there", |net| {
        (0..3).all(|at| {
            let at = format!("m{at}");
            net.names(&at, "/directory") == ["new"] && net.names(&at, "/routing/table").len() == 2
        })
    });
}

/// Members in a ring: wire N leads from member N + 1 to member N.
fn ring(seed: u64, count: usize) -> Net {
    let names: Vec<String> = (0..count).map(|at| format!("m{at}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut net = chain(seed, &all, &config());
    net.wire(all[0], all[count - 1]);
    net.run(5 * SECOND);
    net
}
