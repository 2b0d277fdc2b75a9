//! Enrollment, addresses, authentication, and the loss of neighbours.

use carina_ipcp::{Catalogue, Command, Config, Event, Ipcp};
use carina_wire::Bytes;
use carina_wire::dif::Dialect;

use crate::irati::net::{MS, Net, SECOND, Words, chain, config, with_addresses, with_policy};

#[test]
fn addresses_come_from_the_table_of_every_member() {
    let config = with_addresses("a=16, b=17");
    let net = chain(1, &["a", "b"], &config);
    assert_eq!((net.address("a"), net.address("b")), (16, 17));
    let up = |at: &str| {
        net.told(at, |event| match event {
            Event::NeighbourUp { name, address, .. } => Some((name.clone(), address.0)),
            _ => None,
        })
    };
    assert_eq!(up("a"), [("b".to_string(), 17)]);
    assert_eq!(up("b"), [("a".to_string(), 16)]);
}

#[test]
fn a_refusal_names_the_missing_table_entry() {
    let mut net = Net::new(2);
    net.bootstrap("a", with_addresses("a=16"));
    net.add("b", with_addresses("b=17"));
    net.wire("b", "a");
    net.run(3 * SECOND);
    assert!(!net.is_member("b"));
    let failures = net.failures("b");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("`b=ADDRESS`"), "{failures:?}");
    // Waiting does not add the entry.
    assert_eq!(net.refusals("b"), failures);
    assert!(net.notices("a").concat().contains("`b=ADDRESS`"));
}

#[test]
fn an_ipcp_without_an_address_is_given_one_with_the_constants() {
    let mut net = Net::new(3);
    net.bootstrap("a", with_addresses("a=16, b=17"));
    net.add("b", with_policy(config(), "address-assignment", "", &[]));
    net.wire("b", "a");
    net.run(2 * SECOND);
    assert_eq!(net.address("b"), 17);
    // The constants, the cubes, and whatevercast names, whose format is unknown.
    assert_eq!(net.count("b", "objects-ignored"), 3);
    assert_eq!(net.notices("b"), Vec::<String>::new());
}

#[test]
fn an_address_that_another_has_is_not_given() {
    let mut net = Net::new(4);
    net.bootstrap("a", with_addresses("a=16, b=17"));
    net.add("c", with_addresses("c=17"));
    net.wire("c", "a");
    net.run(2 * SECOND);
    assert!(!net.is_member("c"));
    assert!(!net.refusals("c").is_empty(), "it has no entry");
    let config = with_policy(
        config(),
        "address-assignment",
        "known-addresses",
        &[("addresses", "x=16"), ("prefixes", "*=16-17")],
    );
    let mut net = Net::new(4);
    net.bootstrap("a", config.clone());
    for name in ["b", "c"] {
        net.add(
            name,
            with_policy(config.clone(), "address-assignment", "", &[]),
        );
        net.wire(name, "a");
        net.run(2 * SECOND);
    }
    assert_eq!(net.address("a"), 17);
    assert!(!net.is_member("b") && !net.is_member("c"));
    assert!(net.failures("b")[0].contains("no address from 16 to 17 is free"));
    // The reason may pass: a member that leaves frees its address.
    assert_eq!(net.refusals("b"), Vec::<String>::new());
}

#[test]
fn a_password_is_asked_for_and_a_wrong_one_is_refused() {
    let config = with_policy(config(), "authentication", "xor-password", &[]);
    let mut net = Net::new(5);
    net.bootstrap("a", config.clone());
    net.add("b", config.clone());
    net.add_with("c", config, "wrong!");
    net.add("d", crate::irati::net::config());
    for name in ["b", "c", "d"] {
        net.wire(name, "a");
        net.run(2 * SECOND);
    }
    assert!(net.is_member("b"), "{:?}", net.failures("b"));
    assert!(!net.is_member("c") && !net.is_member("d"));
    assert!(net.failures("c")[0].contains("authentication failed"));
    let reason = &net.failures("d")[0];
    assert!(reason.contains("PSOC_authentication-password"), "{reason}");
    for name in ["c", "d"] {
        assert_eq!(net.refusals(name), net.failures(name), "{name}");
    }
}

#[test]
fn a_refusal_is_for_good_where_time_does_not_change_its_reason() {
    let mut net = Net::new(6);
    net.add("a", config());
    let list = with_policy(config(), "access-control", "list", &[("join", "x*")]);
    net.bootstrap("x", list);
    for (name, peer) in [("b", "a"), ("c", "x")] {
        net.add(name, config());
        net.wire(name, peer);
        net.run(2 * SECOND);
        assert!(!net.is_member(name));
    }
    // The refusing IPCP may become a member later.
    assert!(net.failures("b").concat().contains("is no member"));
    assert_eq!(net.refusals("b"), Vec::<String>::new());
    assert!(net.refusals("c").concat().contains("access-control"));
    net.order("a", Command::Bootstrap);
    net.run(60 * SECOND);
    assert!(net.is_member("b") && !net.is_member("c"));
}

#[test]
fn two_initiators_at_once_become_neighbours_once() {
    let mut net = Net::new(6);
    let config = config();
    net.bootstrap("a", config.clone());
    for name in ["b", "c"] {
        net.add(name, config.clone());
        net.wire(name, "a");
        net.run(2 * SECOND);
    }
    let wire = net.wire("b", "c");
    let n1 = net.wires[wire].ends[1].1;
    net.order("c", Command::Enroll { n1 });
    net.run(5 * SECOND);
    let with = |net: &Net, at: &str| {
        net.told(at, |event| match event {
            Event::NeighbourUp { name, .. } => Some(name.clone()),
            _ => None,
        })
    };
    assert_eq!(with(&net, "b"), ["a", "c"]);
    assert_eq!(with(&net, "c"), ["a", "b"]);
}

#[test]
fn only_a_restarted_neighbour_is_enrolled_again() {
    let mut net = chain(7, &["a", "b"], &config());
    // A further N-1 flow between the same two is refused, and the first one stays.
    net.wire("b", "a");
    net.run(60 * SECOND);
    assert_eq!(net.names("a", "/neighbours")[0], "b");
    let lost = |net: &Net| {
        net.told("a", |event| match event {
            Event::NeighbourDown { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    };
    assert_eq!(lost(&net), Vec::<String>::new());
    // The system of b restarts, and its N-1 flow does not end.
    net.members.remove("b");
    net.add("b", config());
    net.raise(0, 0);
    net.run_until(90, "b is back", |net| net.is_member("b"));
    assert_eq!(lost(&net), ["the neighbour has restarted"]);
}

#[test]
fn a_silent_neighbour_is_lost() {
    let mut net = chain(8, &["a", "b"], &config());
    net.run(30 * SECOND);
    net.members.remove("b");
    net.run_until(60, "a has noticed", |net| {
        net.names("a", "/neighbours").iter().all(|name| name != "b")
    });
}

/// Seconds until `a` loses `b`, which dies before its first keep-alive was due.
fn seconds_until_missed(net: &mut Net) -> u64 {
    net.run(SECOND);
    assert!(net.names("a", "/neighbours").contains(&"b".to_string()));
    net.vanish("b");
    let start = net.now;
    net.run_until(300, "a has noticed", |net| {
        net.names("a", "/neighbours").iter().all(|name| name != "b")
    });
    (net.now - start) / SECOND
}

#[test]
fn a_neighbour_without_any_keep_alive_gets_more_time() {
    let mut net = chain(8, &["a", "b"], &config());
    // Keep-alives every 5 s, of which three may stay unanswered.
    assert!((15..=25).contains(&seconds_until_missed(&mut net)));
    for expected in [30..=36, 60..=66] {
        net.add("b", config());
        net.raise(0, 0);
        net.run_until(90, "b is back", |net| net.is_member("b"));
        let seconds = seconds_until_missed(&mut net);
        assert!(expected.contains(&seconds), "{seconds}");
    }
    // After one answer, the time is the original one again.
    net.add("b", config());
    net.raise(0, 0);
    net.run_until(90, "b is back", |net| net.is_member("b"));
    net.run(10 * SECOND);
    assert!((15..=25).contains(&seconds_until_missed(&mut net)));
}

#[test]
fn a_stale_neighbour_receives_a_release() {
    let mut net = chain(11, &["a", "b"], &config());
    net.run(12 * SECOND);
    // a ends the connection, but its M_RELEASE is lost.
    net.wires[0].loss = 100;
    let member = "b".to_string();
    net.order("a", Command::Expel { id: 0, member });
    net.wires[0].loss = 0;
    assert!(net.names("b", "/neighbours").contains(&"a".to_string()));
    net.run(6 * SECOND);
    let lost = net.told("b", |event| match event {
        Event::NeighbourDown { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(lost, ["the neighbour has released the connection"]);
    assert!(net.count("a", "no-connection") >= 1);
}

#[test]
fn an_n1_flow_from_which_nothing_comes_is_given_back() {
    let mut net = Net::new(12);
    net.add("b", config());
    net.wire("b", "a");
    net.run(40 * SECOND);
    let given_back = net.told("b", |event| match event {
        Event::DropN1 { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(given_back.len(), 1, "{given_back:?}");
    assert!(given_back[0].contains("M_CONNECT did not come"));
}

/// Two members with an N-1 flow become neighbours, whatever is lost and whichever connects first.
#[test]
fn an_n1_flow_is_never_in_vain() {
    for seed in 1..20 {
        let mut net = chain(seed, &["a", "b"], &config());
        net.add("c", config());
        net.wire("c", "a");
        net.run(2 * SECOND);
        let wire = net.wire("b", "c");
        let n1 = net.wires[wire].ends[1].1;
        net.order("c", Command::Enroll { n1 });
        net.wires[wire].loss = 60;
        net.run(20 * SECOND);
        net.wires[wire].loss = 0;
        net.run_until(60, "b and c are neighbours", |net| {
            let mut are =
                |at: &str, name: &str| net.names(at, "/neighbours").contains(&name.to_string());
            are("b", "c") && are("c", "b")
        });
    }
}

#[test]
fn a_member_that_leaves_is_gone_and_can_come_back() {
    let mut net = chain(9, &["a", "b", "c"], &config());
    net.register("b", "app");
    net.run(2 * SECOND);
    net.order("b", Command::Leave);
    net.run(8 * SECOND);
    assert!(!net.is_member("b"));
    assert_eq!(net.names("a", "/directory"), Vec::<String>::new());
    assert_eq!(net.names("a", "/routing/table"), Vec::<String>::new());
    let n1 = net.wires[0].ends[0].1;
    net.order("b", Command::Enroll { n1 });
    net.run_until(90, "b and c are back", |net| {
        net.is_member("b") && net.names("c", "/routing/table").len() == 2
    });
    assert_eq!(net.names("c", "/directory"), ["app"]);
}

#[test]
fn an_expelled_neighbour_is_not_admitted_again() {
    let mut net = chain(10, &["a", "b"], &config());
    let member = "x".to_string();
    net.order("a", Command::Expel { id: 0, member });
    assert!(
        net.notices("a")
            .concat()
            .contains("\"x\" cannot be expelled")
    );
    let member = "b".to_string();
    net.order("a", Command::Expel { id: 0, member });
    net.run(90 * SECOND);
    assert!(net.names("a", "/neighbours").iter().all(|name| name != "b"));
    assert!(
        net.failures("b")
            .concat()
            .contains("was expelled from the DIF")
    );
}

#[test]
fn policies_that_the_dialect_does_not_have_are_refused() {
    let refused = |component: &str, name: &str, params: &[(&str, &str)]| {
        let config = Config {
            name: "a".into(),
            dif: "normal.DIF".into(),
            dialect: Dialect::Irati,
            dif_config: Some(with_policy(config(), component, name, params)),
        };
        let toolbox = Box::new(Words::new("secret"));
        let made = Ipcp::<Bytes>::new(
            carina_dialects::DIALECTS,
            config,
            toolbox,
            Catalogue::empty(),
            1,
        );
        made.err().expect("a refusal").to_string()
    };
    let static_routes = refused("routing", "static", &[]);
    assert!(static_routes.contains("irati has no policy \"static\""));
    let password = refused("authentication", "password", &[]);
    assert!(password.contains("xor-password"), "{password}");
    let blocks = refused("address-assignment", "blocks", &[]);
    assert!(blocks.contains("blocks"), "{blocks}");
    let table = refused("address-assignment", "", &[("addresses", "a16")]);
    assert!(table.contains("is not NAME=ADDRESS"), "{table}");
}

#[test]
fn enrollment_succeeds_although_messages_are_lost() {
    for seed in 1..20 {
        let mut net = Net::new(seed);
        net.bootstrap("a", config());
        net.add("b", config());
        let wire = net.wire("b", "a");
        net.wires[wire].loss = 10;
        net.run_until(300, "both are neighbours", |net| {
            let are = |net: &mut Net, at: &str, name: &str| {
                net.names(at, "/neighbours").contains(&name.to_string())
            };
            are(net, "a", "b") && are(net, "b", "a")
        });
    }
}

#[test]
fn a_detached_n1_flow_is_replaced_by_another() {
    let mut net = chain(12, &["a", "b"], &config());
    net.wire("b", "a");
    net.run(3 * SECOND);
    net.give_up(0, 0);
    net.run(3 * SECOND);
    // The IPCP at the other end of the old N-1 flow is no longer known.
    assert_eq!(net.names("b", "/neighbours")[0], "a");
    net.run(120 * SECOND);
    assert_eq!(net.partings("b"), [1, 1, 0]);
    assert_eq!(net.partings("a"), [1, 0, 0]);
    assert_eq!(net.names("b", "/neighbours")[0], "a");
}

/// The operator repeatedly orders an IPCP to enroll through each of its N-1 flows. All but the last
/// lead to IPCPs that are not members.
#[test]
fn no_n1_flow_waits_for_ever_for_refusals_through_others() {
    let mut net = Net::new(15);
    net.bootstrap("member", config());
    net.add("hub", config());
    let outsiders: Vec<String> = (0..30).map(|at| format!("outsider{at}")).collect();
    let mut wires = Vec::new();
    for name in &outsiders {
        net.add(name, config());
        wires.push(net.wire("hub", name));
    }
    wires.push(net.wire("member", "hub"));
    // A refusal takes 2 ms, so half of the others are tried before the next order.
    for _ in 0..100 {
        for wire in &wires {
            let ends = net.wires[*wire].ends.clone();
            let (_, n1) = ends.into_iter().find(|end| end.0 == "hub").expect("an end");
            net.order("hub", Command::Enroll { n1 });
        }
        net.run(30 * MS);
    }
    assert!(net.is_member("hub"));
}

#[test]
fn orders_to_enroll_do_not_keep_a_dead_n1_flow() {
    let mut net = Net::new(16);
    net.add("b", config());
    let wire = net.wire("b", "a");
    let n1 = net.wires[wire].ends[0].1;
    for _ in 0..50 {
        net.order("b", Command::Enroll { n1 });
        net.run(SECOND);
    }
    let is_given_back = |event: &Event| matches!(event, Event::DropN1 { .. }).then_some(());
    assert_eq!(net.told("b", is_given_back).len(), 1);
}
