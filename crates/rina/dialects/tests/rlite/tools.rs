//! The RIB as tools see it, and the commands of people.

use carina_ipcp::Command;
use carina_ipcp::api::{RibOp, Scalar};
use carina_wire::FlowSpec;

use crate::rlite::net::{Net, SECOND, line};

fn read(net: &mut Net, at: &str, path: &str, scope: u32) -> Result<Vec<String>, String> {
    let objects = net.try_read_rib(at, path, scope)?;
    Ok(objects.into_iter().map(|object| object.path).collect())
}

#[test]
fn objects_have_the_native_paths() {
    let mut net = line(1, &["a", "b"]);
    net.order("b", Command::Register { name: "app".into() });
    net.accepts.insert("app".into());
    net.run(SECOND);
    let key = net.allocate("a", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let b = net.address("b");
    let all = read(&mut net, "a", "/", 9).expect("all objects");
    for path in [
        "/".to_string(),
        "/dif".to_string(),
        "/dif/cubes/1".to_string(),
        "/policies/routing".to_string(),
        "/policies/address-assignment".to_string(),
        "/members/a".to_string(),
        "/members/b".to_string(),
        "/neighbours/b".to_string(),
        "/directory/app".to_string(),
        format!("/routing/links/1-{b}"),
        format!("/routing/links/{b}-1"),
        format!("/routing/table/{b}"),
        format!("/flows/{}", key.0),
        "/data-transfer".to_string(),
        "/counters".to_string(),
    ] {
        assert_eq!(
            all.iter().filter(|candidate| **candidate == path).count(),
            1,
            "{path}: {all:?}"
        );
    }
    let one = read(&mut net, "a", "/members", 0).expect("one object");
    assert_eq!(one, ["/members"]);
    let missing = read(&mut net, "a", "/nothing", 0);
    assert_eq!(missing, Err("there is no object \"/nothing\"".to_string()));
}

#[test]
fn names_with_a_slash_are_one_part_of_a_path() {
    let mut net = line(4, &["a/1", "b%2F"]);
    let name = "app/x".to_string();
    net.order("b%2F", Command::Register { name });
    net.run(SECOND);
    for path in [
        "/members/a%2F1",
        "/members/b%252F",
        "/neighbours/b%252F",
        "/directory/app%2Fx",
    ] {
        let found = read(&mut net, "a/1", path, 0);
        assert_eq!(found, Ok(vec![path.to_string()]));
    }
}

#[test]
fn the_n1_flows_and_not_the_constants_limit_the_pdu() {
    let mut net = line(1, &["a", "b"]);
    for member in ["a", "b"] {
        let read = RibOp::Read {
            path: "/dif".to_string(),
            scope: 0,
            filter: String::new(),
        };
        let shown = net.rib(member, None, read);
        let fields = &shown.expect("the object")[0].fields;
        let longest = fields.iter().find(|(name, _)| name == "max_pdu");
        let longest = longest.map(|(_, value)| value);
        assert_eq!(longest, Some(&Scalar::Uint(1452)), "{member}: {fields:?}");
    }
}

#[test]
fn what_rlite_cannot_do_is_refused_with_the_reason() {
    let mut net = line(2, &["a", "b"]);
    let read = |path: &str| RibOp::Read {
        path: path.into(),
        scope: 0,
        filter: String::new(),
    };
    let answer = net.rib("a", Some("b"), read("/dif"));
    assert!(answer.is_err_and(|reason| reason.contains("do not answer RIB requests")));
    // Its own name and its own address both denote this member.
    assert!(net.rib("a", Some("a"), read("/dif")).is_ok());
    assert!(net.rib("a", Some("1"), read("/dif")).is_ok());
    let expel = Command::Expel {
        id: 7,
        member: "b".into(),
    };
    net.order("a", expel);
    let notices = net.notices("a");
    assert!(
        notices[0].contains("\"b\" cannot be expelled"),
        "{notices:?}"
    );
    assert_ne!(net.address("b"), 0);
}

#[test]
fn existing_parameters_can_be_written() {
    let mut net = line(3, &["a", "b"]);
    let write = |path: &str, name: &str, value: &str| RibOp::Write {
        path: path.into(),
        fields: vec![(name.into(), Scalar::Text(value.into()))],
    };
    let path = "/policies/address-assignment";
    let answer = net.rib("a", None, write(path, "nack-wait", "250ms"));
    let shown = format!("{:?}", answer.expect("written"));
    assert!(shown.contains("250ms"), "{shown}");
    let answer = net.rib("a", None, write(path, "nack-wait", "a while"));
    assert!(answer.is_err_and(|reason| reason.contains("no duration")));
    let answer = net.rib("a", None, write("/policies/routing", "name", "random"));
    assert!(answer.is_err_and(|reason| reason.contains("link-state-lfa")));
    let answer = net.rib("a", None, write("/dif", "name", "x"));
    assert!(answer.is_err_and(|reason| reason.contains("/policies/COMPONENT")));
    let answer = net.rib("a", None, write("/policies/rmt-scheduling", "name", "fifo"));
    assert!(answer.is_ok(), "{answer:?}");
}
