//! The longest PDU of a DIF, which depends on what its N-1 DIFs carry.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::FlowSpec;
use carina_api::control::{DifCreate, DifRole, MemberInfo, N1Info, N1State};
use carina_api::ipc::Mode;
use serde_json::json;

use crate::support::members::{enrolled, member, routed};
use crate::support::pair::Pair;
use crate::support::*;

fn request(role: DifRole, name: &str, over: &[&str], ipcp: &str) -> DifCreate {
    let value = json!({"name": name, "role": role, "over": over, "ipcp": ipcp});
    serde_json::from_value(value).unwrap()
}

fn make(house: &House, request: &DifCreate) {
    house.control().create_dif(request).unwrap();
}

fn max_pdu(house: &House, name: &str) -> u64 {
    let objects = house.control().rib(Some(name), None, "/dif", 0).unwrap();
    objects[0].fields["max_pdu"].as_u64().unwrap()
}

#[test]
fn a_dif_over_memory_and_network_joins_in_either_order() {
    for over in ["hv.x", "wire"] {
        let pair = Pair::doubly_joined("either", 1400);
        make(
            &pair.host,
            &request(DifRole::Create, "net", &["hv.x", "wire"], "net.host"),
        );
        enrolled(&pair.host, "net.host");
        assert_eq!(max_pdu(&pair.host, "net"), 1400, "before anybody has come");
        make(
            &pair.guest,
            &request(DifRole::Join, "net", &[over], "net.guest"),
        );
        enrolled(&pair.guest, "net.guest");
        assert_eq!(max_pdu(&pair.guest, "net"), 1400);
        pair.guest.control().leave_dif("net", None).unwrap();
        let other = if over == "wire" { "hv.x" } else { "wire" };
        make(
            &pair.guest,
            &request(DifRole::Join, "net", &[other], "net.guest"),
        );
        enrolled(&pair.guest, "net.guest");
    }
}

#[test]
fn protection_has_its_room_where_others_can_listen() {
    let pair = Pair::doubly_joined("protected", 1400);
    for (over, expected) in [("wire", 1400 - 64), ("hv.x", 65_530)] {
        let mut create = request(DifRole::Create, "net", &[over], "net.host");
        create.config = Some(json!({"policies": {"sdu-protection": {"name": "crc32"}}}));
        make(&pair.host, &create);
        enrolled(&pair.host, "net.host");
        assert_eq!(max_pdu(&pair.host, "net"), expected, "{over}");
        make(
            &pair.guest,
            &request(DifRole::Join, "net", &[over], "net.guest"),
        );
        enrolled(&pair.guest, "net.guest");
        for house in [&pair.host, &pair.guest] {
            house.control().leave_dif("net", None).unwrap();
        }
    }
}

#[test]
fn what_cannot_carry_the_longest_pdu_is_refused_in_words() {
    let pair = Pair::doubly_joined("refused", 1400);
    let mut create = request(DifRole::Create, "net", &["hv.x", "wire"], "net.host");
    create.config = Some(json!({"max_pdu": 9000}));
    let refusal = pair.host.control().create_dif(&create).unwrap_err();
    let refusal = refusal.to_string();
    assert!(
        refusal.contains("wire carries 1400 bytes") && refusal.contains("has 9000"),
        "{refusal}"
    );
    create.over = vec![dif("hv.x")];
    make(&pair.host, &create);
    enrolled(&pair.host, "net.host");
    // Over both: the N-1 DIF that does not fit is reported, and not tried again and again.
    let both = request(DifRole::Join, "net", &["wire", "hv.x"], "net.guest");
    make(&pair.guest, &both);
    enrolled(&pair.guest, "net.guest");
    wire_is_refused(&pair);
}

/// The N-1 flows of the guest's member in `wire`.
fn on_wire(pair: &Pair) -> Vec<N1Info> {
    let all = member(&pair.guest, "net.guest").n1.into_iter();
    all.filter(|n1| n1.dif == dif("wire")).collect()
}

/// Checks that, once no request is under way, the guest's member shows for `wire` only the reason
/// why it cannot be used.
fn wire_is_refused(pair: &Pair) {
    let is_moving = |n1: &N1Info| matches!(n1.state, N1State::Allocating | N1State::Up);
    eventually("the answer has come", || {
        !on_wire(pair).iter().any(is_moving)
    });
    let states = on_wire(pair);
    assert_eq!(states.len(), 1, "{states:?}");
    assert_eq!(states[0].state, N1State::Refused, "{states:?}");
    let reason = states[0].reason.as_ref().unwrap();
    assert!(reason.contains("wire carries 1400 bytes"), "{reason}");
}

#[test]
fn an_n1_flow_where_pdus_do_not_fit_is_not_asked_for_again() {
    for is_accepted in [false, true] {
        let pair = Pair::doubly_joined("under-way", 1400);
        let mut create = request(DifRole::Create, "net", &["hv.x"], "net.host");
        create.config = Some(json!({"max_pdu": 9000}));
        make(&pair.host, &create);
        enrolled(&pair.host, "net.host");
        // An application that answers late.
        let late = pair.host.conn();
        late.register("net", Some("wire")).unwrap();
        let both = request(DifRole::Join, "net", &["wire", "hv.x"], "net.guest");
        make(&pair.guest, &both);
        let asked = late.flow_request().request;
        enrolled(&pair.guest, "net.guest");
        let states: Vec<_> = on_wire(&pair).iter().map(|n1| n1.state).collect();
        assert_eq!(states, [N1State::Allocating, N1State::Refused]);
        if is_accepted {
            late.accept(asked, Mode::Ring);
            let mut flow = late.flow();
            while flow.recv().is_some() {}
            let (reason, _) = flow.notice().unwrap();
            assert!(reason.contains("wire carries 1400 bytes"), "{reason}");
        } else {
            late.deny(asked, "not today");
        }
        wire_is_refused(&pair);
    }
}

#[test]
fn the_words_of_a_member_that_refuses_arrive() {
    let pair = Pair::new("words", "");
    make(&pair.host, &request(DifRole::Create, "net", &["hv.x"], "a"));
    enrolled(&pair.host, "a");
    make(&pair.guest, &request(DifRole::Join, "net", &["hv.x"], "a"));
    let refused = |info: &MemberInfo| info.failures > 1;
    eventually("it has tried more than once", || {
        refused(&member(&pair.guest, "a"))
    });
    // The reason of the refusal is not replaced by that of the N-1 flow's end, which follows.
    let why = member(&pair.guest, "a").last_error.unwrap();
    assert!(why.contains("is the name of this IPCP"), "{why}");
}

/// Adds a DIF over `over`, with a member on each side.
fn layer(pair: &Pair, name: &str, over: &str, config: serde_json::Value) {
    let names = ["host", "guest"].map(|side| format!("{name}.{side}"));
    let mut first = request(DifRole::Create, name, &[over], &names[0]);
    first.config = Some(config);
    make(&pair.host, &first);
    enrolled(&pair.host, &names[0]);
    make(
        &pair.guest,
        &request(DifRole::Join, name, &[over], &names[1]),
    );
    enrolled(&pair.guest, &names[1]);
}

#[test]
fn pdus_of_an_upper_dif_fit_those_of_the_lower_one_each() {
    let pair = Pair::new("upper", "");
    layer(&pair, "one", "hv.x", json!({"max_pdu": 1400}));
    // In front of an SDU are 19 bytes of PCI and one of delimiting.
    layer(&pair, "two", "one", json!({}));
    assert_eq!(max_pdu(&pair.guest, "two"), 1380);
    let bare = json!({"policies": {"delimiting": {"name": "none"}}, "widths": {"address": 4}});
    layer(&pair, "three", "two", bare);
    assert_eq!(max_pdu(&pair.guest, "three"), 1360);
    layer(&pair, "four", "three", json!({}));
    assert_eq!(max_pdu(&pair.guest, "four"), 1337);
    let n1 = pair.host.control();
    let n1 = n1.rib(Some("two"), None, "/data-transfer/n1", 1).unwrap();
    let carried: Vec<u64> = n1
        .iter()
        .filter_map(|flow| flow.fields.get("sdu-max")?.as_u64())
        .collect();
    assert_eq!(carried, [1380]);
    // The configured length is used: DIF one fragments, DIF three cannot.
    layer(&pair, "wide", "one", json!({"max_pdu": 9000}));
    assert_eq!(max_pdu(&pair.guest, "wide"), 9000);
    let server = pair.host.conn();
    server.register("sink", Some("wide")).unwrap();
    eventually("the sink is known", || {
        let difs = pair.guest.control().difs().unwrap();
        let wide = difs.iter().find(|found| found.name == dif("wide"));
        wide.unwrap().names.contains(&app("sink"))
    });
    routed(&pair.guest, "wide", "wide.host");
    let caller = pair.guest.conn();
    caller.ask_with("sink", Some("wide"), FlowSpec::reliable(), Mode::Ring);
    server.accept(server.flow_request().request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    mine.send_patiently(&[7; 8000]);
    assert_eq!(theirs.recv_whole().unwrap(), [7; 8000]);
    let mut wide = request(DifRole::Create, "wider", &["three"], "wider.host");
    wide.config = Some(json!({"max_pdu": 9000}));
    let refusal = pair.host.control().create_dif(&wide).unwrap_err();
    assert!(refusal.to_string().contains("three carries 1337 bytes"));
}

#[test]
fn a_dif_begins_when_its_system_is_in_the_dif_below() {
    let pair = Pair::new("waiting", "");
    make(
        &pair.guest,
        &request(DifRole::Join, "low", &["hv.x"], "low.guest"),
    );
    make(
        &pair.guest,
        &request(DifRole::Create, "top", &["low"], "top.guest"),
    );
    let waiting = member(&pair.guest, "top.guest");
    assert_eq!(waiting.step, "waiting until this system is a member of low");
    let server = pair.guest.conn();
    server.register("early", Some("top")).unwrap();
    let mut low = request(DifRole::Create, "low", &["hv.x"], "low.host");
    low.config = Some(json!({"max_pdu": 1000}));
    make(&pair.host, &low);
    enrolled(&pair.guest, "top.guest");
    assert_eq!(max_pdu(&pair.guest, "top"), 980);
    make(
        &pair.host,
        &request(DifRole::Join, "top", &["low"], "top.host"),
    );
    enrolled(&pair.host, "top.host");
    eventually("what was registered before is known", || {
        let objects = pair.host.control().rib(Some("top"), None, "/directory", 1);
        let paths = objects.unwrap_or_default();
        paths.iter().any(|object| object.path.ends_with("/early"))
    });
}
