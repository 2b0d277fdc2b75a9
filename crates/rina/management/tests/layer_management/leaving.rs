//! Leaving by command, by expulsion, and by crash.

use carina_ipcp::api::Scalar;
use carina_ipcp::{Command, Event, FlowKey};
use carina_wire::FlowSpec;

use crate::layer_management::net::{MS, Net, SECOND, chain, config, with_policy};

fn left(net: &Net, name: &str) -> Vec<String> {
    net.told(name, |event| match event {
        Event::Left { reason } => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn flows_of_a_member_that_leaves_end_with_the_reason() {
    let mut net = chain(1, &["a", "b", "c"], config());
    net.accepts.insert("server".into());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", FlowSpec::unreliable());
    net.run(SECOND);
    net.order("c", Command::Leave);
    net.run(2 * SECOND);
    let (is_graceful, reason) = net.closed("a", key).expect("an end");
    assert!(!is_graceful && reason.contains("leave"), "{reason}");
    assert_eq!(left(&net, "c").len(), 1);
    assert!(net.names("a", "/directory").is_empty());
    let dropped = net.told("c", |event| {
        matches!(event, Event::DropN1 { .. }).then_some(())
    });
    assert_eq!(dropped.len(), 1);
}

#[test]
fn departure_ends_once_the_neighbours_have_answered() {
    let mut net = chain(1, &["a", "b", "c"], config());
    net.order("b", Command::Leave);
    net.run(20 * MS);
    assert_eq!(left(&net, "b").len(), 1);
    // A neighbour that does not answer is waited for half a second.
    let mut net = chain(1, &["a", "b"], config());
    net.members.remove("a");
    net.order("b", Command::Leave);
    net.run(400 * MS);
    assert_eq!(left(&net, "b"), Vec::<String>::new());
    net.run(200 * MS);
    assert_eq!(left(&net, "b").len(), 1);
    // Two members that leave at the same time do not wait for each other.
    let mut net = chain(1, &["a", "b"], config());
    net.order("a", Command::Leave);
    net.order("b", Command::Leave);
    net.run(20 * MS);
    assert_eq!((left(&net, "a").len(), left(&net, "b").len()), (1, 1));
}

/// Whether a member considers each of the links between `b` and `c` up; `b`'s report comes first.
fn links_of_the_end(net: &mut Net, at: &str) -> Vec<bool> {
    let mut words: Vec<(String, bool)> = Vec::new();
    for link in net.read_rib(at, "/routing/links", 1) {
        let field = |name: &str| link.fields.iter().find(|(key, _)| key == name);
        let (Some((_, Scalar::Text(from))), Some((_, Scalar::Bool(is_up)))) =
            (field("name"), field("is_up"))
        else {
            continue;
        };
        let ends = link.path.trim_start_matches("/routing/links/");
        if !ends.split('-').any(|end| end == "1") {
            words.push((from.clone(), *is_up));
        }
    }
    words.sort();
    words.into_iter().map(|(_, is_up)| is_up).collect()
}

#[test]
fn links_of_a_member_that_leaves_or_dies_are_taken_back() {
    let mut net = chain(5, &["a", "b", "c"], config());
    assert_eq!(links_of_the_end(&mut net, "a"), [true, true]);
    net.order("c", Command::Leave);
    net.run(SECOND);
    assert_eq!(links_of_the_end(&mut net, "a"), [false, false]);

    let mut net = chain(6, &["a", "b", "c"], config());
    // The N-1 DIF does not report the end.
    net.members.remove("c");
    // After three missed keep-alives of a second each, `c` is lost. Its own report of the link
    // remains.
    net.run(6 * SECOND);
    assert_eq!(links_of_the_end(&mut net, "a"), [false, true]);
    let members = net.read_rib("a", "/members/c", 0);
    let reachable = ("is_reachable".to_string(), Scalar::Bool(false));
    assert!(members[0].fields.contains(&reachable), "{members:?}");
}

#[test]
fn a_member_that_left_may_enroll_again() {
    let mut net = chain(2, &["a", "b"], config());
    net.order("b", Command::Leave);
    net.run(2 * SECOND);
    net.end_wire(0);
    net.wire("b", "a");
    net.run(2 * SECOND);
    assert!(net.is_member("b"), "{:?}", net.failures("b"));
    assert_eq!(net.names("a", "/members"), ["a", "b"]);
}

#[test]
fn n1_flow_of_one_that_left_and_died_is_asked_for_again() {
    let mut net = Net::new(8);
    net.bootstrap("a", config());
    net.add("b", None, "secret");
    net.wire("a", "b");
    net.run(2 * SECOND);
    net.expect_members(&["a", "b"]);
    net.order("b", Command::Leave);
    // B has announced that it leaves, and dies before it ends its N-1 flows.
    net.run(SECOND / 10);
    net.vanish("b");
    net.add("b", None, "secret");
    net.run(90 * SECOND);
    let dropped = net.told("a", |event| match event {
        Event::DropN1 { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(dropped, ["nothing is heard from its other end"]);
    net.expect_members(&["a", "b"]);
}

#[test]
fn expelled_member_leaves_and_stays_away() {
    let config = with_policy(config(), "access-control", "list", &[("expel", "a")]);
    let mut net = chain(3, &["a", "b", "c"], config);
    let expel = |id: u64| Command::Expel {
        id,
        member: "c".into(),
    };
    net.order("b", expel(1));
    net.run(5 * SECOND);
    assert!(net.is_member("c"));
    assert!(net.notices("b")[0].contains("may not expel members"));
    let answered = |net: &Net, at: &str, id: u64| {
        let answers = net.told(at, |event| match event {
            Event::Answer { id: of, result } if *of == id => Some(result.clone()),
            _ => None,
        });
        answers[0].clone()
    };
    let refusal = answered(&net, "b", 1).unwrap_err();
    assert!(refusal.contains("access-control"), "{refusal}");
    net.order("a", expel(2));
    net.run(5 * SECOND);
    assert!(!net.is_member("c"));
    assert_eq!(answered(&net, "a", 2), Ok(Vec::new()));
    assert_eq!(left(&net, "c").len(), 1, "{:?}", left(&net, "c"));
    net.end_wire(1);
    net.wire("c", "b");
    net.run(5 * SECOND);
    assert!(!net.is_member("c"));
    assert!(
        net.failures("c")[0].contains("was expelled"),
        "{:?}",
        net.failures("c")
    );
    assert_eq!(net.names("a", "/members"), ["a", "b"]);
    // The expulsion ends.
    net.run(320 * SECOND);
    net.end_wire(2);
    net.wire("c", "b");
    net.run(5 * SECOND);
    assert!(net.is_member("c"), "{:?}", net.failures("c"));
}

#[test]
fn an_access_list_decides_which_ipcps_join() {
    let config = with_policy(config(), "access-control", "list", &[("join", "a,good-*")]);
    let mut net = Net::new(4);
    net.bootstrap("a", config);
    for name in ["good-one", "bad-one"] {
        net.add(name, None, "secret");
        net.wire(name, "a");
    }
    net.run(3 * SECOND);
    assert!(net.is_member("good-one"));
    assert!(!net.is_member("bad-one"));
    assert!(
        net.failures("bad-one")[0].contains("may not join"),
        "{:?}",
        net.failures("bad-one")
    );
}

/// Two members joined by two wires, with a flow between them.
fn doubly_joined(spec: FlowSpec) -> (Net, FlowKey, FlowKey) {
    let mut net = chain(7, &["a", "b"], config());
    net.wire("b", "a");
    net.accepts.insert("server".into());
    let name = "server".to_string();
    net.order("a", Command::Register { name });
    net.run(2 * SECOND);
    let near = net.allocate("b", "client", "server", spec);
    net.run(SECOND);
    assert_eq!(net.allocated("b", near), Some(Ok(())));
    let far = net.offered("a");
    (net, near, far)
}

#[test]
fn flows_go_on_over_another_n1_flow_after_detaching() {
    let (mut net, near, far) = doubly_joined(FlowSpec::reliable());
    let sent: Vec<Vec<u8>> = (0..40).map(|n| vec![n]).collect();
    for (n, sdu) in sent.iter().enumerate() {
        if n == 5 {
            net.give_up(0, 0);
        }
        net.write("b", near, sdu);
        net.write("a", far, sdu);
        net.run(SECOND / 20);
    }
    net.run(5 * SECOND);
    assert_eq!(net.take_delivered("a", far), sent);
    assert_eq!(net.take_delivered("b", near), sent);
    // A repeated command changes nothing.
    net.give_up(0, 0);
    net.run(50 * SECOND);
    assert_eq!(net.partings("b"), [1, 1, 0]);
    assert_eq!(net.partings("a"), [1, 0, 0]);
    // The N-1 DIF does not tell `a` that the flow has ended, and `a` receives nothing over it.
    net.run(70 * SECOND);
    assert_eq!(net.partings("b"), [1, 1, 0]);
    assert_eq!(net.partings("a"), [1, 1, 0]);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
}

#[test]
fn a_detached_n1_flow_loses_no_pdu_on_its_way() {
    for side in [0, 1] {
        let (mut net, near, far) = doubly_joined(FlowSpec::unreliable());
        let sent: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n]).collect();
        for (n, sdu) in sent.iter().enumerate() {
            if n == 100 {
                net.give_up(0, side);
            }
            net.write("b", near, sdu);
            net.write("a", far, sdu);
            // Several PDUs are on a wire at a time.
            net.run(SECOND / 5_000);
        }
        net.run(5 * SECOND);
        for (at, flow) in [("a", far), ("b", near)] {
            let mut got = net.take_delivered(at, flow);
            got.sort();
            assert_eq!(got, sent, "{at}, given up at end {side}");
        }
    }
}

#[test]
fn an_n1_flow_without_a_neighbour_is_given_up_at_once() {
    let (mut net, ..) = doubly_joined(FlowSpec::unreliable());
    let wire = net.wire("b", "c");
    net.run(SECOND);
    net.give_up(wire, 0);
    net.run(60 * SECOND);
    assert_eq!(net.partings("b"), [0, 1, 0]);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
}
