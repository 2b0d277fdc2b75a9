//! Flows: between neighbours, over relays, refused, ended, moved, and with loss.

use carina_ipcp::{Command, DifConfig, Event, FlowKey};
use carina_wire::FlowSpec;

use crate::irati::net::{Net, SECOND, chain, config, with_policy};

/// Opens a flow between applications of two members. Returns the keys at both.
fn open(net: &mut Net, from: &str, to: &str, app: &str, spec: FlowSpec) -> (FlowKey, FlowKey) {
    let mine = net.allocate(from, "client", app, spec);
    net.run(SECOND);
    assert_eq!(net.allocated(from, mine), Some(Ok(())));
    let theirs = *net.incoming[to].last().expect("an incoming flow");
    (mine, theirs)
}

fn exchange(net: &mut Net, a: (&str, FlowKey), b: (&str, FlowKey), count: u32) {
    let sdus = |who: &str| -> Vec<Vec<u8>> {
        (0..count)
            .map(|at| format!("{at} of {who}").into_bytes())
            .collect()
    };
    for (from, to) in [(a, b), (b, a)] {
        let sent = sdus(from.0);
        let mut came = Vec::new();
        for sdu in &sent {
            net.write(from.0, from.1, sdu);
            net.run(SECOND / 100);
            came.extend(net.read(to.0, to.1));
        }
        for _ in 0..120 {
            if came.len() == sent.len() {
                break;
            }
            net.run(SECOND);
            came.extend(net.read(to.0, to.1));
        }
        assert_eq!(came, sent);
    }
}

#[test]
fn both_cubes_carry_sdus_both_ways() {
    let mut net = chain(1, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    for spec in [FlowSpec::unreliable(), FlowSpec::reliable()] {
        let (mine, theirs) = open(&mut net, "b", "a", "app", spec);
        exchange(&mut net, ("b", mine), ("a", theirs), 120);
    }
}

#[test]
fn flows_go_over_relays() {
    let mut net = chain(2, &["a", "b", "c", "d", "e"], &config());
    net.register("a", "app");
    net.run(SECOND);
    let (mine, theirs) = open(&mut net, "e", "a", "app", FlowSpec::reliable());
    exchange(&mut net, ("e", mine), ("a", theirs), 60);
    assert!(net.count("c", "a-data-forwarded") >= 2);
}

#[test]
fn a_flow_within_one_system_needs_no_neighbour() {
    let mut net = Net::new(3);
    net.bootstrap("a", config());
    net.register("a", "app");
    let (mine, theirs) = open(&mut net, "a", "a", "app", FlowSpec::reliable());
    exchange(&mut net, ("a", mine), ("a", theirs), 10);
    let reason = String::new();
    net.order("a", Command::Deallocate { flow: mine, reason });
    net.run(SECOND);
    assert_eq!(net.closed("a", theirs), Some((true, String::new())));
    assert_eq!(net.names("a", "/flows"), Vec::<String>::new());
}

#[test]
fn either_side_may_end_a_flow() {
    let mut net = chain(4, &["a", "b", "c"], &config());
    net.register("a", "app");
    net.run(SECOND);
    for ends in ["c", "a"] {
        let (mine, theirs) = open(&mut net, "c", "a", "app", FlowSpec::reliable());
        let keys = [("c", mine), ("a", theirs)];
        let (ends, other) = match ends {
            "c" => (keys[0], keys[1]),
            _ => (keys[1], keys[0]),
        };
        net.write(ends.0, ends.1, b"last words");
        let (flow, reason) = (ends.1, String::new());
        net.order(ends.0, Command::Deallocate { flow, reason });
        net.run(2 * SECOND);
        assert_eq!(net.read(other.0, other.1), [b"last words".to_vec()]);
        assert_eq!(net.closed(other.0, other.1), Some((true, String::new())));
        for at in ["a", "c"] {
            assert_eq!(net.names(at, "/flows"), Vec::<String>::new());
        }
    }
}

#[test]
fn a_flow_that_ends_leaves_the_request_for_another_alone() {
    let mut net = chain(41, &["a", "b"], &config());
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let accept = |net: &mut Net| {
        let flow = *net.incoming["a"].last().expect("an incoming flow");
        let answer = Ok(());
        net.order("a", Command::Respond { flow, answer });
    };
    let first = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    accept(&mut net);
    net.run(SECOND);
    assert_eq!(net.allocated("b", first), Some(Ok(())));
    // The first flow still has SDUs to send while the second is requested: both requests have the
    // smallest invoke id that was free.
    net.write("b", first, b"last words");
    let reason = String::new();
    let flow = first;
    net.order("b", Command::Deallocate { flow, reason });
    let second = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.names("b", "/flows").len(), 1, "the first has ended");
    accept(&mut net);
    net.run(SECOND);
    assert_eq!(net.allocated("b", second), Some(Ok(())));
    assert_eq!(net.count("b", "response-unsolicited"), 0);
}

#[test]
fn refusals_say_why() {
    let mut net = chain(5, &["a", "b"], &config());
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let refused = |net: &mut Net, key: FlowKey| match net.allocated("b", key) {
        Some(Err(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let (flow, answer) = (net.incoming["a"][0], Err("not today".into()));
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    assert_eq!(refused(&mut net, key), "a: not today");
    let unknown = net.try_allocate("b", "client", "nowhere", FlowSpec::reliable());
    assert!(unknown.unwrap_err().contains("no member"));
    // The application is unregistered, and b does not know yet.
    net.wires[0].loss = 100;
    net.order("a", Command::Unregister { name: "app".into() });
    net.wires[0].loss = 0;
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let reason = refused(&mut net, key);
    assert!(
        reason.contains("\"app\" is not registered at a"),
        "{reason}"
    );
}

#[test]
fn every_request_has_a_time_limit() {
    let mut net = chain(6, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    net.wires[0].loss = 100;
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(12 * SECOND);
    let result = net.allocated("b", key);
    let Some(Err(reason)) = result else {
        panic!("{result:?}")
    };
    assert!(reason.contains("did not answer"), "{reason}");
}

/// The flow objects at both members.
fn flows(net: &mut Net) -> [Vec<String>; 2] {
    ["a", "b"].map(|at| net.names(at, "/flows"))
}

#[test]
fn a_flow_whose_answer_is_lost_is_open_at_neither_end() {
    let mut net = chain(11, &["a", "b"], &config());
    net.register("a", "app");
    net.accepts.remove("app");
    net.run(SECOND);
    let mine = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let theirs = net.incoming["a"][0];
    net.wires[0].loss = 100;
    let answer = Ok(());
    net.order(
        "a",
        Command::Respond {
            flow: theirs,
            answer,
        },
    );
    net.run(SECOND);
    net.wires[0].loss = 0;
    net.run(12 * SECOND);
    let reason = net.allocated("b", mine).expect("a result").unwrap_err();
    assert!(reason.contains("a message was lost"), "{reason}");
    // b has told a that it gave the flow up.
    assert_eq!(net.closed("a", theirs), Some((true, String::new())));
    net.run(60 * SECOND);
    assert_eq!(flows(&mut net), [Vec::<String>::new(), Vec::new()]);
}

#[test]
fn a_caller_says_its_end_again_in_case_it_was_lost() {
    let mut net = chain(12, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    let (mine, theirs) = open(&mut net, "b", "a", "app", FlowSpec::reliable());
    net.wires[0].loss = 100;
    let reason = String::new();
    net.order("b", Command::Deallocate { flow: mine, reason });
    net.run(2 * SECOND);
    assert_eq!(net.closed("a", theirs), None, "two of three are lost");
    net.wires[0].loss = 0;
    net.run(3 * SECOND);
    assert_eq!(net.closed("a", theirs), Some((true, String::new())));
    // A later flow with the same port-id is another flow.
    net.run(10 * SECOND);
    let (again, other) = open(&mut net, "b", "a", "app", FlowSpec::reliable());
    assert_eq!(again, mine);
    let ends = |net: &Net| {
        let pick = |event: &Event| matches!(event, Event::Closed { .. }).then_some(());
        net.told("a", pick).len()
    };
    exchange(&mut net, ("b", again), ("a", other), 5);
    net.run(20 * SECOND);
    assert_eq!(ends(&net), 1);
}

#[test]
fn a_member_that_leaves_refuses_pending_flows() {
    let mut net = chain(13, &["a", "b"], &config());
    net.register("a", "app");
    net.accepts.remove("app");
    net.run(SECOND);
    let mine = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    net.order("a", Command::Leave);
    net.run(SECOND);
    let reason = net.allocated("b", mine).expect("a result").unwrap_err();
    assert!(reason.contains("this member leaves the DIF"), "{reason}");
}

#[test]
fn a_request_follows_an_application_that_has_moved() {
    let mut net = chain(7, &["a", "b", "c"], &config());
    net.register("a", "app");
    net.run(SECOND);
    // c does not learn that the application is at b now.
    net.wires[1].loss = 100;
    net.order("a", Command::Unregister { name: "app".into() });
    net.register("b", "app");
    net.run(SECOND);
    net.wires[1].loss = 0;
    let (mine, theirs) = open(&mut net, "c", "b", "app", FlowSpec::reliable());
    exchange(&mut net, ("c", mine), ("b", theirs), 5);
    assert_eq!(net.count("a", "flow-requests-forwarded"), 1);
}

#[test]
fn a_cube_that_the_other_side_does_not_have_is_refused() {
    let mut net = Net::new(8);
    net.bootstrap("a", config());
    let mut other: DifConfig = config();
    other.cubes[1].id = 9;
    net.add("b", other);
    net.wire("b", "a");
    net.register("a", "app");
    net.run(3 * SECOND);
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let reason = net.allocated("b", key).expect("a result").unwrap_err();
    assert!(reason.contains("a has no QoS cube 9"), "{reason}");
}

#[test]
fn access_control_applies_to_flow_requests() {
    let list = [("flows", "friend>app")];
    let config = with_policy(config(), "access-control", "list", &list);
    let mut net = chain(9, &["a", "b"], &config);
    net.register("a", "app");
    net.run(SECOND);
    let good = net.allocate("b", "friend", "app", FlowSpec::reliable());
    let bad = net.allocate("b", "stranger", "app", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("b", good), Some(Ok(())));
    let reason = net.allocated("b", bad).expect("a result").unwrap_err();
    assert!(reason.contains("may not call"), "{reason}");
}

#[test]
fn a_reliable_flow_over_relays_survives_loss() {
    for seed in 1..6 {
        let mut net = chain(seed, &["a", "b", "c"], &config());
        net.register("a", "app");
        net.run(SECOND);
        for wire in &mut net.wires {
            wire.loss = 5;
        }
        let spec = FlowSpec::reliable();
        let mut pair = None;
        for _ in 0..10 {
            let mine = net.allocate("c", "client", "app", spec);
            net.run(12 * SECOND);
            if net.allocated("c", mine) == Some(Ok(())) {
                pair = Some((mine, *net.incoming["a"].last().expect("one")));
                break;
            }
        }
        let (mine, theirs) = pair.expect("one of ten requests comes through");
        exchange(&mut net, ("c", mine), ("a", theirs), 60);
    }
}

#[test]
fn flows_to_a_member_that_is_gone_end() {
    let mut net = chain(10, &["a", "b", "c"], &config());
    net.register("a", "app");
    net.run(SECOND);
    let (mine, _) = open(&mut net, "c", "a", "app", FlowSpec::reliable());
    net.end_wire(0);
    net.run(60 * SECOND);
    let (is_graceful, reason) = net.closed("c", mine).expect("its end");
    assert!(
        !is_graceful && reason.contains("cannot be reached"),
        "{reason}"
    );
}

#[test]
fn an_end_after_a_failure_is_not_one_in_order() {
    let mut net = chain(14, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    let (mine, theirs) = open(&mut net, "b", "a", "app", FlowSpec::reliable());
    net.wires[0].loss = 100;
    net.write("b", mine, b"lost words");
    let (flow, reason) = (mine, String::new());
    net.order("b", Command::Deallocate { flow, reason });
    // After 35 s the connection fails; the first of three end messages is lost too.
    net.run(71 * SECOND / 2);
    assert_eq!(net.closed("a", theirs), None);
    net.wires[0].loss = 0;
    net.run(SECOND);
    let (is_graceful, reason) = net.closed("a", theirs).expect("its end");
    assert!(!is_graceful && reason.starts_with("b: "), "{reason}");
}

#[test]
fn a_member_that_leaves_says_why_its_flows_end() {
    let mut net = chain(15, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    let (_, theirs) = open(&mut net, "b", "a", "app", FlowSpec::reliable());
    net.order("b", Command::Leave);
    net.run(SECOND);
    let reason = "b: this member leaves the DIF".to_string();
    assert_eq!(net.closed("a", theirs), Some((false, reason)));
}
