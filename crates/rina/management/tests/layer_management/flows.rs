//! Registration, allocation and deallocation.

use carina_ipcp::{Command, Event, FlowKey};
use carina_wire::FlowSpec;

use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

#[test]
fn a_flow_carries_data_over_two_hops_and_ends_in_order() {
    let mut net = chain(1, &["a", "b", "c"], config());
    net.accepts.insert("server".into());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let reachable = net.told("a", |event| match event {
        Event::Reachable { name } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(reachable, ["server"]);
    let key = net.allocate("a", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let other = net.incoming["c"][0];
    net.write("a", key, b"hello");
    net.write("c", other, b"good day");
    net.run(SECOND);
    assert_eq!(net.read("c", other), b"hello");
    assert_eq!(net.read("a", key), b"good day");
    net.write("a", key, b"bye");
    net.order(
        "a",
        Command::Deallocate {
            flow: key,
            reason: String::new(),
        },
    );
    net.run(SECOND);
    assert_eq!(net.read("c", other), b"bye");
    assert_eq!(net.closed("c", other), Some((true, String::new())));
    for name in ["a", "c"] {
        assert!(net.names(name, "/flows").is_empty());
    }
}

/// Members a, b and c in a row. Member c accepts flows. Returns the net and both ends of a flow.
fn net(seed: u64) -> (Net, FlowKey, FlowKey) {
    let mut net = chain(seed, &["a", "b", "c"], config());
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
    let other = net.incoming["c"][0];
    (net, key, other)
}

#[test]
fn refusals_say_why() {
    let (mut net, _, _) = net(2);
    net.order(
        "c",
        Command::Register {
            name: "picky".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "picky", FlowSpec::reliable());
    net.run(5 * SECOND);
    assert_eq!(net.allocated("a", key), None);
    let other = *net.incoming["c"].last().expect("a request");
    let answer = Err("not today".into());
    net.order(
        "c",
        Command::Respond {
            flow: other,
            answer,
        },
    );
    net.run(SECOND);
    let error = net.allocated("a", key).expect("a result").unwrap_err();
    assert!(error.contains("not today"), "{error}");
    let spec = FlowSpec {
        max_delay_us: 1,
        ..FlowSpec::reliable()
    };
    let now = net.now;
    let error = net
        .member("a")
        .allocate(now, "client", "server", spec)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no QoS cube"), "{error}");
}

#[test]
fn requests_survive_loss_and_are_made_once() {
    for seed in 1..15 {
        let (mut net, _, _) = net(seed);
        for wire in &mut net.wires {
            wire.loss = 15;
        }
        let before = net.incoming["c"].len();
        let key = net.allocate("a", "client", "server", FlowSpec::reliable());
        net.run(60 * SECOND);
        assert_eq!(net.allocated("a", key), Some(Ok(())), "seed {seed}");
        assert_eq!(net.incoming["c"].len(), before + 1, "seed {seed}");
        let other = *net.incoming["c"].last().expect("a flow");
        net.write("a", key, b"through");
        net.order(
            "a",
            Command::Deallocate {
                flow: key,
                reason: String::new(),
            },
        );
        net.run(60 * SECOND);
        assert_eq!(net.read("c", other), b"through", "seed {seed}");
        assert_eq!(
            net.closed("c", other),
            Some((true, String::new())),
            "seed {seed}"
        );
    }
}

#[test]
fn an_application_that_is_in_a_hurry_says_so_to_the_other() {
    let (mut net, key, other) = net(3);
    net.order(
        "c",
        Command::Deallocate {
            flow: other,
            reason: "fire".into(),
        },
    );
    net.run(SECOND);
    assert_eq!(net.closed("a", key), Some((false, "fire".into())));
}

#[test]
fn both_may_end_a_flow_at_once() {
    let (mut net, key, other) = net(4);
    net.order(
        "a",
        Command::Deallocate {
            flow: key,
            reason: String::new(),
        },
    );
    net.order(
        "c",
        Command::Deallocate {
            flow: other,
            reason: String::new(),
        },
    );
    net.run(5 * SECOND);
    for name in ["a", "c"] {
        assert!(net.names(name, "/flows").is_empty(), "{name}");
    }
}

#[test]
fn a_call_that_is_given_up_leaves_nothing_behind() {
    let (mut net, _, _) = net(5);
    net.order(
        "c",
        Command::Register {
            name: "slow".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "slow", FlowSpec::reliable());
    net.run(SECOND);
    let other = *net.incoming["c"].last().expect("a request");
    net.order(
        "a",
        Command::Deallocate {
            flow: key,
            reason: String::new(),
        },
    );
    net.run(SECOND);
    assert!(net.closed("c", other).is_some());
    net.order(
        "c",
        Command::Respond {
            flow: other,
            answer: Ok(()),
        },
    );
    net.run(SECOND);
    assert_eq!(net.names("c", "/flows").len(), 1);
}

#[test]
fn a_flow_to_a_member_that_is_gone_fails_after_r() {
    for spec in [FlowSpec::reliable(), FlowSpec::unreliable()] {
        let (mut net, _, _) = net(6);
        let key = net.allocate("a", "client", "server", spec);
        net.run(SECOND);
        assert_eq!(net.allocated("a", key), Some(Ok(())));
        net.kill("c");
        net.write("a", key, b"into the void");
        net.run(45 * SECOND);
        let (is_graceful, _) = net.closed("a", key).expect("an end");
        assert!(!is_graceful);
    }
}

#[test]
fn two_applications_of_one_member_talk() {
    for spec in [FlowSpec::reliable(), FlowSpec::unreliable()] {
        let (mut net, _, _) = net(7);
        net.accepts.insert("local".into());
        net.order(
            "a",
            Command::Register {
                name: "local".into(),
            },
        );
        net.run(SECOND);
        let key = net.allocate("a", "client", "local", spec);
        net.run(SECOND);
        assert_eq!(net.allocated("a", key), Some(Ok(())));
        let other = net.incoming["a"][0];
        assert_ne!(key, other);
        net.write("a", key, b"near");
        net.write("a", other, b"by");
        net.run(SECOND);
        assert_eq!(
            (net.read("a", other), net.read("a", key)),
            (b"near".to_vec(), b"by".to_vec())
        );
        net.order(
            "a",
            Command::Deallocate {
                flow: other,
                reason: String::new(),
            },
        );
        net.run(SECOND);
        assert_eq!(net.closed("a", key), Some((true, String::new())));
        assert_eq!(net.names("a", "/flows").len(), 1);
    }
}

#[test]
fn a_single_member_without_n1_flows_serves_its_applications() {
    let mut net = Net::new(8);
    net.bootstrap("a", config());
    net.accepts.insert("local".into());
    net.order(
        "a",
        Command::Register {
            name: "local".into(),
        },
    );
    let key = net.allocate("a", "client", "local", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    net.write("a", key, &[5; 10_000]);
    net.run(SECOND);
    let other = net.incoming["a"][0];
    assert_eq!(net.read("a", other).len(), 10_000);
}

#[test]
fn access_control_decides_at_the_called_member() {
    let config = with_policy(
        config(),
        "access-control",
        "list",
        &[("flows", "friend-*>server")],
    );
    let mut net = chain(9, &["a", "b"], config);
    net.accepts.insert("server".into());
    net.order(
        "b",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let good = net.allocate("a", "friend-1", "server", FlowSpec::reliable());
    let bad = net.allocate("a", "stranger", "server", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", good), Some(Ok(())));
    let error = net.allocated("a", bad).expect("a result").unwrap_err();
    assert!(error.contains("may not call"), "{error}");
}

#[test]
fn sequence_numbers_that_run_out_do_not_end_a_flow() {
    let mut config = config();
    config.widths.seq = 2;
    let mut net = chain(10, &["a", "b"], config);
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
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let other = net.incoming["b"][0];
    let mut expected = 0u64;
    let mut received = 0u64;
    for round in 0..400 {
        for _ in 0..500 {
            let now = net.now;
            if net.member("a").room(key) < 1000 {
                break;
            }
            net.member("a")
                .on_sdu(now, key, vec![round as u8; 1000].into(), false);
            net.pump("a");
            expected += 1000;
        }
        net.run(SECOND / 10);
        received += net.read("b", other).len() as u64;
    }
    net.run(5 * SECOND);
    received += net.read("b", other).len() as u64;
    assert_eq!((received, net.closed("b", other)), (expected, None));
    assert!(expected > 70_000_000, "{expected}");
}

#[test]
fn a_request_waits_for_a_route_to_the_only_holder() {
    let (mut net, _, _) = net(31);
    net.end_wire(1);
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", FlowSpec::unreliable());
    net.run(2 * SECOND);
    assert_eq!(net.allocated("a", key), None);
    net.wire("b", "c");
    net.run(2 * SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
}

#[test]
fn a_request_without_a_route_ends_with_words_about_it() {
    let (mut net, _, _) = net(32);
    net.end_wire(1);
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", FlowSpec::reliable());
    net.run(12 * SECOND);
    let error = net.allocated("a", key).expect("a result").unwrap_err();
    assert!(error.contains("no route to c"), "{error}");
}
