//! Flows: allocation and refusal, ends, and the policies derived from a specification.

use carina_cdap::{Message, Opcode, Rules};
use carina_ipcp::config::WindowConfig;
use carina_ipcp::{Command, Event, FlowKey};
use carina_wire::FlowSpec;

use crate::rlite::net::{MS, Net, SECOND, config, line};

/// Two members, with an application at the first.
fn two(seed: u64) -> Net {
    let mut net = line(seed, &["a", "b"]);
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    net
}

fn accepted(net: &mut Net, spec: FlowSpec) -> (FlowKey, FlowKey) {
    net.accepts.insert("app".into());
    let key = net.allocate("b", "client", "app", spec);
    net.run(SECOND);
    assert_eq!(net.allocated("b", key), Some(Ok(())));
    (key, net.offered("a"))
}

#[test]
fn an_application_decides() {
    let mut net = two(1);
    let key = net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(SECOND);
    let flow = net.offered("a");
    let offers = net.told("a", |event| match event {
        Event::Incoming {
            local,
            remote,
            spec,
            ..
        } => Some((local.clone(), remote.clone(), *spec)),
        _ => None,
    });
    let wanted = (
        "app".to_string(),
        "client".to_string(),
        FlowSpec::unreliable(),
    );
    assert_eq!(offers, [wanted]);
    let answer = Err("not today".into());
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    let result = net.allocated("b", key).expect("an answer");
    assert_eq!(result, Err("not today".to_string()));
    assert!(net.names("a", "/flows").is_empty() && net.names("b", "/flows").is_empty());
}

#[test]
fn names_have_four_parts() {
    let mut net = line(2, &["a", "b"]);
    let name = "app|1|entity|x".to_string();
    net.order("a", Command::Register { name: name.clone() });
    net.run(SECOND);
    let all = format!("{:?} {:?}", net.objects("b", "/"), net.events);
    assert_eq!(
        net.names("b", "/directory"),
        std::slice::from_ref(&name),
        "{all}"
    );
    net.accepts.insert(name.clone());
    let key = net.allocate("b", "client|7", &name, FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("b", key), Some(Ok(())));
    let callers = net.told("a", |event| match event {
        Event::Incoming { remote, .. } => Some(remote.clone()),
        _ => None,
    });
    assert_eq!(callers, ["client|7"]);
}

#[test]
fn an_unknown_application_is_refused_at_once() {
    let mut net = two(3);
    let now = net.now;
    let spec = FlowSpec::unreliable();
    let refused = net.member("b").allocate(now, "client", "other", spec);
    let reason = refused.expect_err("nobody has it").to_string();
    assert!(
        reason.contains("no member of DIF \"net\" has \"other\""),
        "{reason}"
    );
    let lossless = FlowSpec {
        max_loss: 0,
        ..spec
    };
    let refused = net.member("b").allocate(now, "client", "app", lossless);
    let reason = refused.expect_err("no such").to_string();
    assert!(reason.contains("needs retransmission"), "{reason}");
    // The application is unregistered, but the caller does not know yet.
    net.wires[0].loss = 100;
    net.order("a", Command::Unregister { name: "app".into() });
    net.run(10 * MS);
    net.wires[0].loss = 0;
    let key = net.allocate("b", "client", "app", spec);
    net.run(SECOND);
    let result = net.allocated("b", key).expect("an answer");
    assert!(result.is_err_and(|reason| reason.contains("not registered at a")));
}

#[test]
fn a_target_that_says_nothing_is_given_up() {
    let mut net = two(4);
    net.wires[0].loss = 100;
    let key = net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(9 * SECOND);
    assert_eq!(net.allocated("b", key), None);
    net.run(2 * SECOND);
    let result = net.allocated("b", key).expect("a result");
    assert!(result.is_err_and(|reason| reason.contains("did not answer")));
}

#[test]
fn an_answer_that_comes_too_late_ends_the_peers_flow() {
    let mut net = two(5);
    let key = net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(12 * SECOND);
    assert!(
        net.allocated("b", key)
            .is_some_and(|result| result.is_err())
    );
    let flow = net.offered("a");
    let answer = Ok(());
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    assert_eq!(net.closed("a", flow), Some((true, String::new())));
    assert!(net.names("b", "/flows").is_empty());
}

/// The answer is lost: the caller has no flow, and never opens the window of the called side.
#[test]
fn a_flow_that_the_caller_never_had_ends_where_it_was_called() {
    let mut net = Net::new(13);
    let mut config = config();
    config.cubes[0].window = Some(WindowConfig {
        credit_max: 4,
        initial_credit: 4,
    });
    net.add_with("a", config.clone());
    net.order("a", Command::Bootstrap);
    net.add_with("b", config);
    net.wire("b", "a");
    net.run(3 * SECOND);
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let key = net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(SECOND);
    let flow = net.offered("a");
    net.wires[0].loss = 100;
    net.order(
        "a",
        Command::Respond {
            flow,
            answer: Ok(()),
        },
    );
    net.wires[0].loss = 0;
    for _ in 0..10 {
        net.write("a", flow, b"into the dark");
    }
    net.deallocate("a", flow);
    net.run(20 * SECOND);
    assert!(
        net.allocated("b", key)
            .is_some_and(|result| result.is_err())
    );
    let waiting = flow.0.to_string();
    assert_eq!(
        net.names("a", "/flows"),
        [waiting],
        "it waits for its window"
    );
    net.run(60 * SECOND);
    for at in ["a", "b"] {
        assert!(net.names(at, "/flows").is_empty());
    }
}

#[test]
fn either_side_ends_a_flow_and_what_was_written_arrives() {
    for (seed, spec) in [(6, FlowSpec::unreliable()), (7, FlowSpec::reliable())] {
        let mut net = two(seed);
        let (key, other) = accepted(&mut net, spec);
        net.write("a", other, b"last words");
        net.deallocate("a", other);
        net.run(SECOND);
        assert_eq!(net.read("b", key), b"last words");
        assert_eq!(net.closed("b", key), Some((true, String::new())));
        assert!(net.names("a", "/flows").is_empty() && net.names("b", "/flows").is_empty());
    }
}

#[test]
fn a_member_calls_itself() {
    let mut net = two(8);
    net.accepts.insert("app".into());
    let key = net.allocate("a", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let other = net.offered("a");
    net.write("a", key, b"to myself");
    net.run(SECOND);
    assert_eq!(net.read("a", other), b"to myself");
    net.deallocate("a", key);
    net.run(SECOND);
    assert_eq!(net.closed("a", other), Some((true, String::new())));
}

#[test]
fn flows_of_a_member_that_is_gone_end() {
    let mut net = two(9);
    let (key, _) = accepted(&mut net, FlowSpec::reliable());
    net.vanish("a");
    net.write("b", key, b"anybody?");
    net.run(200 * SECOND);
    let (is_graceful, reason) = net.closed("b", key).expect("an end");
    assert!(!is_graceful && !reason.is_empty());
}

#[test]
fn a_member_that_leaves_ends_its_flows() {
    let mut net = two(10);
    let (key, other) = accepted(&mut net, FlowSpec::reliable());
    net.order("b", Command::Leave);
    net.run(2 * SECOND);
    assert!(
        net.closed("b", key)
            .is_some_and(|(is_graceful, _)| !is_graceful)
    );
    assert!(net.closed("a", other).is_some());
}

#[test]
fn ports_are_the_lowest_that_have_rested() {
    let mut net = two(11);
    let (first, _) = accepted(&mut net, FlowSpec::unreliable());
    let (second, _) = accepted(&mut net, FlowSpec::unreliable());
    assert_eq!((first, second), (FlowKey(1), FlowKey(2)));
    net.deallocate("b", first);
    net.run(SECOND);
    let (third, _) = accepted(&mut net, FlowSpec::unreliable());
    assert_eq!(third, FlowKey(3), "port 1 rests");
    net.run(5 * SECOND);
    let (fourth, _) = accepted(&mut net, FlowSpec::unreliable());
    assert_eq!(fourth, FlowKey(1));
}

/// The flow request among the PDUs that one end of a wire has sent.
fn request(net: &mut Net, wire: usize, end: usize) -> Vec<u8> {
    let sent = net.take_sent(wire, end);
    let mut requests = sent.iter().filter(|pdu| pdu[1] == 0x40).filter_map(|pdu| {
        let outer: Message = Rules::RLITE.decode(&pdu[28..]).ok()?;
        let is_data = outer.class == "a_data" && outer.opcode == Opcode::Write;
        is_data.then(|| outer.value?.as_bytes().map(<[u8]>::to_vec))?
    });
    requests.next_back().expect("a request")
}

#[test]
fn specifications_become_policies() {
    let mut net = two(12);
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    // Field 10, the specification, and the start of field 11: whether there is DTCP.
    let spec = FlowSpec {
        max_sdu_gap: 3,
        in_order: true,
        avg_bandwidth_bps: 100,
        max_delay_us: 7,
        ..FlowSpec::unreliable()
    };
    net.allocate("b", "client", "app", spec);
    let bytes = request(&mut net, 0, 0);
    assert!(has(
        &bytes,
        &[0x52, 10, 0x18, 100, 0x40, 0, 0x48, 1, 0x50, 3, 0x58, 7]
    ));
    assert!(has(&bytes, &[0x5a, 0x18, 0x08, 0]));
    let stream = FlowSpec {
        msg_boundaries: false,
        ..FlowSpec::reliable()
    };
    let key = net.allocate("b", "client", "app", stream);
    let bytes = request(&mut net, 0, 0);
    assert!(has(&bytes, &[0x52, 8, 0x18, 0, 0x40, 1, 0x48, 1, 0x50, 0]));
    assert!(has(&bytes, &[0x5a, 0x21, 0x08, 1]));
    net.run(SECOND);
    let specs = net.told("a", |event| match event {
        Event::Incoming { spec, .. } => Some(*spec),
        _ => None,
    });
    assert_eq!(specs, [spec, stream]);
    assert_eq!(net.allocated("b", key), None);
}

#[test]
fn stream_without_order_is_served_in_order() {
    for (seed, spec) in [(41, FlowSpec::reliable()), (42, FlowSpec::unreliable())] {
        let mut net = two(seed);
        let stream = FlowSpec {
            msg_boundaries: false,
            in_order: false,
            ..spec
        };
        let (near, far) = accepted(&mut net, stream);
        let specs = net.told("a", |event| match event {
            Event::Incoming { spec, .. } => Some(*spec),
            _ => None,
        });
        let served = (
            specs[0].in_order,
            specs[0].max_sdu_gap,
            specs[0].msg_boundaries,
        );
        assert_eq!(served, (true, 0, false), "{stream:?}");
        for piece in ["one", " and ", "two"] {
            net.write("b", near, piece.as_bytes());
            net.run(SECOND / 10);
        }
        assert_eq!(net.read("a", far), b"one and two");
    }
}

#[test]
fn flows_go_on_over_another_n1_flow_after_detaching() {
    let mut net = two(40);
    net.wire("b", "a");
    net.run(3 * SECOND);
    let (near, far) = accepted(&mut net, FlowSpec::reliable());
    let sent: Vec<u8> = (0..40).collect();
    for n in &sent {
        if *n == 5 {
            net.give_up(0, 0);
        }
        net.write("b", near, &[*n]);
        net.write("a", far, &[*n]);
        net.run(SECOND / 20);
    }
    net.run(5 * SECOND);
    assert_eq!(net.read("a", far), sent);
    assert_eq!(net.read("b", near), sent);
    net.run(120 * SECOND);
    assert_eq!(net.partings("b"), [1, 1, 0]);
    assert_eq!(net.partings("a"), [1, 0, 0]);
}
