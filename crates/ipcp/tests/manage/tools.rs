//! The RIB as tools use it, here and at other members.

use carina_ipcp::api::{RibObject, RibOp, Scalar};

use crate::net::{chain, config, with_policy};

fn read(path: &str, scope: u32) -> RibOp {
    RibOp::Read {
        path: path.into(),
        scope,
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
fn every_part_of_the_tree_is_there() {
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
        "/transfer",
        "/counters",
    ] {
        assert!(all.iter().any(|object| object.path == path), "{path}");
    }
    let top = net.read_rib("a", "/", 1);
    assert!(
        top.iter()
            .all(|object| object.path.matches('/').count() == 1)
    );
    let error = net.rib("a", None, read("/nothing", 0)).unwrap_err();
    assert!(error.contains("there is no object"), "{error}");
}

#[test]
fn another_member_shows_its_rib_by_name_and_by_address_also_over_loss() {
    let mut net = chain(2, &["a", "b", "c"], config());
    let here = net.rib("c", None, read("/dif", 0)).expect("own object");
    let there = net.rib("a", Some("c"), read("/dif", 0)).expect("an object");
    assert_eq!(here, there);
    let address = net.members["c"].address().expect("a member").to_string();
    let there = net
        .rib("a", Some(&address), read("/dif", 0))
        .expect("an object");
    assert_eq!(here, there);
    for wire in &mut net.wires {
        wire.loss = 10;
    }
    // More than fits in one PDU.
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
fn policies_change_where_the_catalogue_and_access_control_allow() {
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
    // Data transfer's, too.
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
    // A value that is refused leaves everything as it was.
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
    net.run(5 * crate::net::SECOND);
    assert_eq!(net.names("a", "/routing/table").len(), 2);
}
