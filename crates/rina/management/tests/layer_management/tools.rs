//! The RIB as tools use it, at the own member and at others.

use carina_cdap::{Message, Opcode};
use carina_ipcp::Command;
use carina_ipcp::api::{RibObject, RibOp, Scalar};
use carina_ipcp::config::{QosCube, RateConfig, WindowConfig};

use crate::layer_management::hostile::pdu;
use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

fn read(path: &str, scope: u32) -> RibOp {
    RibOp::Read {
        path: path.into(),
        scope,
        filter: String::new(),
    }
}

fn write(component: &str, fields: &[(&str, &str)]) -> RibOp {
    RibOp::Write {
        path: format!("/policies/{component}"),
        fields: fields
            .iter()
            .map(|(name, value)| (name.to_string(), Scalar::Text(value.to_string())))
            .collect(),
    }
}

fn field(object: &RibObject, name: &str) -> Scalar {
    let field = object.fields.iter().find(|(field, _)| field == name);
    field
        .unwrap_or_else(|| panic!("{object:?} has no {name}"))
        .1
        .clone()
}

#[test]
fn every_part_of_the_rib_tree_exists() {
    let mut net = chain(1, &["a", "b"], config());
    let all = net.read_rib("a", "/", 9);
    for path in [
        "/",
        "/dif",
        "/dif/cubes/3",
        "/policies/routing",
        "/members/b",
        "/neighbours/b",
        "/directory",
        "/routing/links",
        "/routing/table",
        "/flows",
        "/data-transfer",
        "/counters",
    ] {
        assert!(all.iter().any(|object| object.path == path), "{path}");
    }
    let mut paths: Vec<&String> = all.iter().map(|object| &object.path).collect();
    paths.sort();
    let count = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), count, "an object has one path");
    // The counters of both halves of the IPCP are in one object, also when read by another member.
    let counters = net.read_rib("a", "/counters", 0);
    assert_eq!(counters.len(), 1);
    assert!(matches!(
        field(&counters[0], "pdus-received"),
        Scalar::Uint(1..)
    ));
    assert!(matches!(
        field(&counters[0], "enrolled-others"),
        Scalar::Uint(1)
    ));
    let top = net.read_rib("a", "/", 1);
    assert!(
        top.iter()
            .all(|object| object.path.matches('/').count() == 1)
    );
    let error = net.rib("a", None, read("/nothing", 0)).unwrap_err();
    assert!(error.contains("there is no object"), "{error}");
}

#[test]
fn the_rib_of_another_member_is_read_despite_loss() {
    let mut net = chain(2, &["a", "b", "c"], config());
    let own = net.rib("c", None, read("/dif", 0)).expect("own object");
    let remote = net.rib("a", Some("c"), read("/dif", 0)).expect("an object");
    assert_eq!(own, remote);
    let address = net.members["c"].address().expect("a member").to_string();
    let remote = net
        .rib("a", Some(&address), read("/dif", 0))
        .expect("an object");
    assert_eq!(own, remote);
    for wire in &mut net.wires {
        wire.loss = 10;
    }
    // The answer does not fit in one PDU.
    let all = net.rib("a", Some("c"), read("/", 9)).expect("objects");
    assert!(all.len() > 40, "{}", all.len());
    assert_eq!(
        field(
            all.iter().find(|object| object.path == "/dif").expect("it"),
            "member"
        ),
        Scalar::Text("c".into())
    );
    let error = net
        .rib("a", Some("c"), read("/members/nobody", 0))
        .unwrap_err();
    assert!(error.contains("there is no object"), "{error}");
    assert!(net.rib("a", Some("nobody"), read("/", 0)).is_err());
}

#[test]
fn a_cube_shows_all_that_it_promises_also_at_another_member() {
    let mut config = config();
    config.cubes = vec![QosCube {
        in_order: true,
        window: Some(WindowConfig {
            credit_max: 99,
            initial_credit: 7,
        }),
        rate: Some(RateConfig {
            pdus: 10,
            frame_ms: 100,
        }),
        max_sdu_gap: Some(2),
        partial_delivery: true,
        ecn: true,
        initial_a_ms: 33,
        ..QosCube::plain(6, "all")
    }];
    let mut net = chain(5, &["a", "b"], config);
    let found = net.rib("a", Some("b"), read("/dif/cubes/6", 0));
    let found = found.expect("the cube").remove(0);
    for (name, value) in [
        ("credit_max", Scalar::Uint(99)),
        ("initial_credit", Scalar::Uint(7)),
        ("rate_pdus", Scalar::Uint(10)),
        ("rate_frame_ms", Scalar::Uint(100)),
        ("max_sdu_gap", Scalar::Uint(2)),
        ("partial_delivery", Scalar::Bool(true)),
        ("ecn", Scalar::Bool(true)),
        ("initial_a_ms", Scalar::Uint(33)),
    ] {
        assert_eq!(field(&found, name), value, "{name}");
    }
}

#[test]
fn a_filter_leaves_what_is_asked_for_here_and_at_other_members() {
    let mut net = chain(5, &["a", "b", "c"], config());
    let ask = |filter: &str| RibOp::Read {
        path: "/".into(),
        scope: 9,
        filter: filter.into(),
    };
    for member in [None, Some("c")] {
        let cubes = net
            .rib("a", member, ask("class=qos_cube"))
            .expect("objects");
        assert_eq!(cubes.len(), 6, "{member:?}: five, and what is above them");
        let reliable = ask("class=qos_cube&retransmission=true&in_order=true");
        let found = net.rib("a", member, reliable).expect("objects");
        assert_eq!(found.len(), 1, "{member:?}");
        assert_eq!(found[0].path, "/dif/cubes/3");
        let none = net
            .rib("a", member, ask("class=nothing"))
            .expect("an answer");
        assert!(none.is_empty(), "{member:?}: {none:?}");
        let error = net.rib("a", member, ask("qos_cube")).unwrap_err();
        assert!(error.contains("FIELD=VALUE"), "{member:?}: {error}");
    }
    let long = ask(&format!("name={}", "x".repeat(1024)));
    let error = net.rib("a", Some("c"), long).unwrap_err();
    assert!(error.contains("at most 1024"), "{error}");
}

#[test]
fn a_read_that_is_cancelled_sends_no_more_parts() {
    let mut net = chain(6, &["a", "b"], config());
    for number in 0..1_000 {
        let name = format!("an-application-with-a-name-of-some-length-{number}");
        net.order("a", Command::Register { name });
    }
    net.run(5 * SECOND);
    let [a, b] = ["a", "b"].map(|name| net.members[name].address().expect("a member").0);
    let mut read = Message::object(Opcode::Read, "", "/directory");
    read.scope = 1;
    let mut cancel = Message::new(Opcode::CancelRead);
    // B sent no request, so it counts each part as stale, and counts nothing else.
    let mut parts = |net: &mut Net, id: i32, cancels: bool| {
        let before = net.count("b", "stale");
        (read.invoke_id, cancel.invoke_id) = (id, id);
        net.inject(0, 1, pdu(b, a, &read.encode()));
        if cancels {
            net.inject(0, 1, pdu(b, a, &cancel.encode()));
        }
        net.run(5 * SECOND);
        net.count("b", "stale") - before
    };
    let all = parts(&mut net, 1_000_001, false);
    assert!(all > 40, "{all}");
    let first = parts(&mut net, 1_000_002, true);
    assert!((1..=16).contains(&first), "{first} of {all}");
}

#[test]
fn policies_change_where_access_control_allows() {
    let config = with_policy(config(), "access-control", "list", &[("write", "a")]);
    let mut net = chain(3, &["a", "b", "c"], config);
    let best = write("qos-selection", &[("name", "best-fit")]);
    net.rib("a", Some("c"), best.clone()).expect("allowed");
    let shown = net
        .rib("a", Some("c"), read("/policies/qos-selection", 0))
        .expect("an object");
    assert_eq!(field(&shown[0], "name"), Scalar::Text("best-fit".into()));
    let error = net.rib("b", Some("c"), best).unwrap_err();
    assert!(error.contains("may not write"), "{error}");
    // Policies of data transfer can change, too.
    let schedule = write(
        "rmt-scheduling",
        &[("name", "weighted-fair"), ("quantum", "4096")],
    );
    net.rib("a", None, schedule).expect("a change");
    let shown = net.read_rib("a", "/policies/rmt-scheduling", 0);
    assert_eq!(field(&shown[0], "quantum"), Scalar::Text("4096".into()));
    for (wrong, word) in [
        (
            write("qos-selection", &[("name", "worst-fit")]),
            "first-fit",
        ),
        (write("rmt-scheduling", &[("quantum", "1")]), "256"),
        (
            write("directory", &[("name", "on-demand")]),
            "cannot be changed",
        ),
        (write("nothing", &[]), "no component"),
    ] {
        let error = net.rib("a", None, wrong).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    // A value that is refused changes nothing.
    let shown = net.read_rib("a", "/policies/rmt-scheduling", 0);
    assert_eq!(field(&shown[0], "quantum"), Scalar::Text("4096".into()));
}

#[test]
fn routing_policy_can_change_while_the_dif_runs() {
    let mut net = chain(4, &["a", "b", "c"], config());
    let static_routes = write("routing", &[("name", "static")]);
    net.rib("a", None, static_routes).expect("a change");
    assert!(net.names("a", "/routing/table").len() <= 1);
    net.rib("a", None, write("routing", &[("name", "link-state")]))
        .expect("a change");
    net.run(5 * crate::layer_management::net::SECOND);
    assert_eq!(net.names("a", "/routing/table").len(), 2);
}
