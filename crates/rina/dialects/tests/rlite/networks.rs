//! More than two members: updates are flooded to all, and PDUs are relayed.

use carina_ipcp::api::Scalar;
use carina_ipcp::{Command, Event, PolicySpec};
use carina_wire::FlowSpec;

use crate::rlite::net::{Net, SECOND, config, line};

/// The next hops to each destination at a member.
fn table(net: &mut Net, at: &str) -> Vec<(String, Vec<String>)> {
    let objects = net.objects(at, "/routing/table");
    let mut routes = Vec::new();
    for object in objects {
        let field = |name: &str| {
            let found = object.fields.iter().find(|(field, _)| field == name);
            found.map(|(_, value)| value.clone())
        };
        if let (Some(Scalar::Text(name)), Some(Scalar::List(next))) = (field("name"), field("next"))
        {
            routes.push((name, next));
        }
    }
    routes
}

/// Sends an SDU over a new flow, and another one back.
fn echo(net: &mut Net, from: &str, to: &str, app: &str, spec: FlowSpec) {
    net.accepts.insert(app.into());
    let key = net.allocate(from, "client", app, spec);
    net.run(SECOND);
    assert_eq!(net.allocated(from, key), Some(Ok(())), "{from} to {app}");
    let other = net.offered(to);
    net.write(from, key, b"over");
    net.run(SECOND);
    assert_eq!(net.read(to, other), b"over", "{from} to {to}");
    net.write(to, other, b"and back");
    net.run(SECOND);
    assert_eq!(net.read(from, key), b"and back");
    net.deallocate(from, key);
    net.run(SECOND);
    assert_eq!(net.closed(to, other), Some((true, String::new())));
}

#[test]
fn three_in_a_line_relay() {
    let mut net = line(1, &["a", "b", "c"]);
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    assert_eq!(net.names("c", "/directory"), ["app"]);
    let middle = net.address("b").to_string();
    let routes = table(&mut net, "c");
    let expected = ["a", "b"].map(|name| (name.to_string(), vec![middle.clone()]));
    assert_eq!(routes.len(), 2, "{routes:?}");
    for route in &routes {
        assert!(expected.contains(route), "{route:?}");
    }
    echo(&mut net, "c", "a", "app", FlowSpec::unreliable());
    echo(&mut net, "c", "a", "app", FlowSpec::reliable());
    // The relay has no flow, and nothing was discarded.
    assert!(net.names("b", "/flows").is_empty());
    for name in ["a", "b", "c"] {
        assert!(
            net.notices(name).is_empty(),
            "{name}: {:?}",
            net.notices(name)
        );
    }
}

const RING: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Six members in a ring, with this loss on every N-1 flow.
fn ring(seed: u64, loss: u64) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap("a");
    for pair in RING.windows(2) {
        net.add(pair[1]);
        net.lossy_wire(pair[1], pair[0], loss);
        net.run(if loss == 0 { 3 } else { 60 } * SECOND);
    }
    net.lossy_wire("a", "f", loss);
    net.run(10 * SECOND);
    net
}

#[test]
fn six_in_a_ring_find_the_other_way_when_it_is_cut() {
    let mut net = ring(2, 0);
    let app = "app".to_string();
    net.order("d", Command::Register { name: app });
    net.run(SECOND);
    for name in RING {
        assert_eq!(table(&mut net, name).len(), 5, "{name}");
        assert_eq!(net.names(name, "/directory"), ["app"], "{name}");
    }
    // Opposite in the ring, both paths are equally long.
    let opposite = table(&mut net, "a");
    let opposite = opposite.iter().find(|(name, _)| name == "d");
    assert_eq!(opposite.expect("a route").1.len(), 2);
    echo(&mut net, "b", "d", "app", FlowSpec::reliable());
    // The wire between c and d is cut, so b takes the longer path.
    net.end_wire(2);
    net.run(2 * SECOND);
    let first = net.address("a").to_string();
    let routes = table(&mut net, "b");
    let route = routes.iter().find(|(name, _)| name == "d");
    assert_eq!(route.expect("a route").1, [first]);
    echo(&mut net, "b", "d", "app", FlowSpec::reliable());
    // After another cut, b and c are isolated, and names at d are unreachable.
    net.end_wire(0);
    net.run(2 * SECOND);
    let told = net.told("b", |event| match event {
        Event::Reachable { .. } => Some(true),
        Event::Unreachable { .. } => Some(false),
        _ => None,
    });
    assert_eq!(told, [true, false]);
    let now = net.now;
    let refused = net
        .member("b")
        .allocate(now, "client", "app", FlowSpec::reliable());
    let reason = refused.expect_err("out of reach").to_string();
    assert!(reason.contains("cannot be reached"), "{reason}");
    assert_eq!(table(&mut net, "b").len(), 1);
}

#[test]
fn a_ring_comes_together_although_a_tenth_is_lost() {
    for seed in 10..14 {
        let mut net = ring(seed, 10);
        let app = "app".to_string();
        net.order("d", Command::Register { name: app });
        // Lost entries are sent again every 30 s.
        net.run(200 * SECOND);
        for name in RING {
            assert_ne!(net.address(name), 0, "seed {seed}: {name}");
            assert_eq!(table(&mut net, name).len(), 5, "seed {seed}: {name}");
            assert_eq!(
                net.names(name, "/directory"),
                ["app"],
                "seed {seed}: {name}"
            );
        }
        let mut addresses = RING.map(|name| net.address(name)).to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), RING.len(), "seed {seed}");
    }
}

#[test]
fn reliable_flows_lose_nothing_over_relays_that_do() {
    let mut net = line(3, &["a", "b", "c"]);
    net.order("a", Command::Register { name: "app".into() });
    net.accepts.insert("app".into());
    net.run(SECOND);
    let key = net.allocate("c", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("c", key), Some(Ok(())));
    let other = net.offered("a");
    for wire in &mut net.wires {
        wire.loss = 5;
    }
    let mut sent = Vec::new();
    for round in 0..200_u32 {
        let sdu = round.to_le_bytes();
        sent.extend(sdu);
        net.write("c", key, &sdu);
        net.run(SECOND / 50);
    }
    net.run(20 * SECOND);
    assert_eq!(net.read("a", other), sent);
}

#[test]
fn routes_have_alternates_under_the_policy_for_them() {
    let lfa = PolicySpec {
        name: "link-state-lfa".into(),
        ..PolicySpec::default()
    };
    let mut net = Net::new(4);
    let mut first = config();
    first.policies.insert("routing".into(), lfa);
    net.add_with("a", first);
    net.order("a", Command::Bootstrap);
    // A triangle. A member gets the policy at enrollment.
    for (name, at) in [("b", "a"), ("c", "b")] {
        net.add(name);
        net.wire(name, at);
        net.run(3 * SECOND);
    }
    net.wire("c", "a");
    net.run(3 * SECOND);
    let shown = format!("{:?}", net.objects("c", "/policies/routing"));
    assert!(shown.contains("link-state-lfa"), "{shown}");
    let objects = net.objects("c", "/routing/table");
    let alternates = objects.iter().flat_map(|object| &object.fields);
    let alternates = alternates.filter(|(name, value)| {
        name == "alternates" && matches!(value, Scalar::List(list) if list.len() == 1)
    });
    assert_eq!(alternates.count(), 2);
}

#[test]
fn a_lower_flow_that_is_not_renewed_is_forgotten() {
    let mut net = line(5, &["a", "b", "c"]);
    // c and b vanish at once, so no member reports that their lower flow is down.
    net.vanish("c");
    net.vanish("b");
    net.run(120 * SECOND);
    let links = net.names("a", "/routing/links").len();
    assert!(links >= 2, "{links}");
    net.run(900 * SECOND);
    assert!(net.names("a", "/routing/table").is_empty());
    let links = net.objects("a", "/routing/links");
    let up = links.iter().flat_map(|object| &object.fields);
    let up = up.filter(|(name, value)| name == "is_up" && *value == Scalar::Bool(true));
    assert_eq!(up.count(), 0);
}

/// The other end of the N-1 flow no longer exists, and the N-1 DIF does not report it.
#[test]
fn an_n1_flow_without_answers_is_replaced() {
    let mut net = Net::new(9);
    net.bootstrap("a");
    net.add("b");
    let wire = net.lossy_wire("b", "a", 100);
    net.run(40 * SECOND);
    let given_back = net.told("b", |event| match event {
        Event::DropN1 { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(given_back, ["its other end does not answer"]);
    let wanted = net.told("b", |event| match event {
        Event::NeedN1 { remote, .. } => Some(remote.clone()),
        _ => None,
    });
    assert!(wanted.contains(&"a".to_string()), "{wanted:?}");
    net.wires[wire].loss = 0;
    net.run(60 * SECOND);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
}
