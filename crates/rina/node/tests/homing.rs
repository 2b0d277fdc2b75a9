//! Running members that gain or lose an N-1 DIF, by command and by configuration.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::{ClientError, DifCreate, DifExtend, DifRole, MemberState};
use carina_api::ipc::Mode;
use carina_api::{AppName, ErrorBody, ErrorCode, FlowSpec};
use serde_json::{Value, json};

use crate::support::members::{enrolled, ipcp, member, routed};
use crate::support::pair::Pair;
use crate::support::*;

fn request(role: DifRole, over: &[&str], ipcp: &str, config: Value) -> DifCreate {
    let value = json!({
        "name": "net", "role": role, "over": over, "ipcp": ipcp, "config": config,
    });
    serde_json::from_value(value).unwrap()
}

/// Creates DIF `net` over `hv.x` only, with a member on each side.
fn over_one(name: &str, config: Value) -> Pair {
    let pair = Pair::doubly_joined(name, 1400);
    let host = request(DifRole::Create, &["hv.x"], "net.host", config);
    pair.host.control().create_dif(&host).unwrap();
    enrolled(&pair.host, "net.host");
    let guest = request(DifRole::Join, &["hv.x"], "net.guest", Value::Null);
    pair.guest.control().create_dif(&guest).unwrap();
    enrolled(&pair.guest, "net.guest");
    pair
}

fn wish(over: &str) -> DifExtend {
    DifExtend {
        over: dif(over),
        via: None,
        ipcp: None,
    }
}

fn refusal(house: &House, name: &str, wish: &DifExtend) -> ErrorBody {
    match house.control().extend_dif(name, wish) {
        Err(ClientError::Refused { body, .. }) => body,
        other => panic!("{other:?}"),
    }
}

/// Waits until the member has this neighbour over the N-1 DIF.
fn neighbours_over(house: &House, name: &str, over: &str, neighbour: &str) {
    let neighbour = AppName::new(neighbour).unwrap();
    eventually_or(&format!("{neighbour} is a neighbour over {over}"), || {
        let info = member(house, name);
        let mut n1s = info.n1.iter();
        if n1s.any(|n1| n1.dif == dif(over) && n1.neighbour.as_ref() == Some(&neighbour)) {
            Ok(())
        } else {
            Err(format!("{:?}", info.n1))
        }
    });
}

/// Creates DIF `net` over `hv.x` and `wire`, with a member on each side.
fn over_both(name: &str) -> Pair {
    let pair = over_one(name, json!({ "max_pdu": 1300 }));
    let extended = pair
        .host
        .control()
        .extend_dif("net", &wish("wire"))
        .unwrap();
    assert_eq!(extended.member.unwrap().over, [dif("hv.x"), dif("wire")]);
    pair.guest
        .control()
        .extend_dif("net", &wish("wire"))
        .unwrap();
    neighbours_over(&pair.guest, "net.guest", "wire", "net.host");
    neighbours_over(&pair.host, "net.host", "wire", "net.guest");
    neighbours_over(&pair.host, "net.host", "hv.x", "net.guest");
    pair
}

/// Sends many SDUs from guest to host, and calls `cut` with the host in the middle of the transfer.
fn while_data_flows(pair: &Pair, cut: impl Fn(&House)) {
    let server = pair.host.conn();
    server.register("sink", Some("net")).unwrap();
    eventually("the name is known", || {
        let difs = pair.guest.control().difs().unwrap();
        let net = difs.into_iter().find(|found| found.name == dif("net"));
        net.is_some_and(|net| net.names.contains(&app("sink")))
    });
    routed(&pair.guest, "net", "net.host");
    let caller = pair.guest.conn();
    caller.ask_with("sink", Some("net"), FlowSpec::reliable(), Mode::Ring);
    server.accept(server.flow_request().request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    let sdu = |n: u32| [&n.to_be_bytes()[..], &[n as u8; 900]].concat();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for n in 0..COUNT {
                mine.send_patiently(&sdu(n));
            }
            mine
        });
        for n in 0..COUNT {
            if n == COUNT / 3 {
                cut(&pair.host);
            }
            assert_eq!(theirs.recv_whole().unwrap(), sdu(n), "SDU {n}");
        }
        // The other direction works as well.
        let mut mine = writer.join().unwrap();
        theirs.send(b"thanks");
        assert_eq!(mine.recv().unwrap(), b"thanks");
    });
}

#[test]
fn traffic_goes_on_over_the_other_link_when_one_is_cut() {
    let pair = over_both("homing");
    let before = member(&pair.host, "net.host").address;
    while_data_flows(&pair, |host| {
        // SDUs under way over this link are lost with it.
        host.control().destroy_ipcp("shim").unwrap();
    });
    let info = member(&pair.host, "net.host");
    assert_eq!(info.neighbours, [app("net.guest")], "{info:?}");
    assert_eq!(info.address, before);
}

#[test]
fn traffic_goes_on_when_one_n1_dif_is_retracted() {
    let pair = over_both("retracted");
    let before = member(&pair.host, "net.host").address;
    while_data_flows(&pair, |host| {
        let told = host.control().retract_dif("net", "hv.x", None).unwrap();
        assert_eq!(told.member.unwrap().over, [dif("wire")]);
    });
    let gone_from = |house: &House, name: &str| {
        eventually_or("no N-1 flow is left there", || {
            let info = member(house, name);
            if info
                .n1
                .iter()
                .any(|n1| n1.dif == dif("hv.x") && n1.port.is_some())
            {
                Err(format!("{:?}", info.n1))
            } else {
                Ok(())
            }
        });
    };
    gone_from(&pair.host, "net.host");
    gone_from(&pair.guest, "net.guest");
    let info = member(&pair.host, "net.host");
    assert!(info.n1.iter().all(|n1| n1.dif == dif("wire")), "{info:?}");
    assert_eq!(info.neighbours, [app("net.guest")], "{info:?}");
    assert_eq!(info.address, before);
    let names = |house: &House| {
        let difs = house.control().difs().unwrap();
        let below = difs.into_iter().find(|found| found.name == dif("hv.x"));
        below.map(|below| below.names).unwrap_or_default()
    };
    assert_eq!(names(&pair.host), [app("net"), app("net.guest")]);
    // The member can use the DIF again.
    let extended = pair
        .host
        .control()
        .extend_dif("net", &wish("hv.x"))
        .unwrap();
    assert_eq!(extended.member.unwrap().over, [dif("wire"), dif("hv.x")]);
    neighbours_over(&pair.host, "net.host", "hv.x", "net.guest");
}

#[test]
fn the_only_n1_dif_and_a_foreign_one_are_not_retracted() {
    let pair = over_one("rooted", json!({ "max_pdu": 1300 }));
    let refused = |name: &str, below: &str, ipcp: Option<&str>, code, words: &[&str]| {
        let refusal = pair.host.control().retract_dif(name, below, ipcp);
        let Err(ClientError::Refused { body, .. }) = refusal else {
            panic!("{refusal:?}");
        };
        assert_eq!(body.code, code, "{body}");
        for word in words {
            assert!(body.message.contains(word), "{word}: {body}");
        }
    };
    let alone = ["hv.x is the only N-1 DIF", "leave"];
    refused("net", "hv.x", None, ErrorCode::Conflict, &alone);
    let not_below = ["not over wire", "over hv.x"];
    refused("net", "wire", None, ErrorCode::NotFound, &not_below);
    refused("wire", "hv.x", None, ErrorCode::NotFound, &["wire"]);
    let stranger = Some("stranger");
    refused("net", "hv.x", stranger, ErrorCode::NotFound, &["stranger"]);
    let info = member(&pair.host, "net.host");
    assert_eq!(info.neighbours, [app("net.guest")], "{info:?}");
}

const COUNT: u32 = 6_000;

#[test]
fn extensions_that_cannot_be_are_refused_in_words() {
    let pair = over_one("unfit", Value::Null);
    let refused = |name: &str, wish: &DifExtend, code: ErrorCode, words: &[&str]| {
        let body = refusal(&pair.host, name, wish);
        assert_eq!(body.code, code, "{body}");
        for word in words {
            assert!(body.message.contains(word), "{word}: {body}");
        }
    };
    // The VMPI region carries longer PDUs than `wire`.
    let words = ["wire carries 1400 bytes", "max_pdu"];
    refused("net", &wish("wire"), ErrorCode::Conflict, &words);
    refused("net", &wish("hv.x"), ErrorCode::Conflict, &["already"]);
    refused(
        "net",
        &wish("net"),
        ErrorCode::BadRequest,
        &["its own N-1 DIF"],
    );
    refused("net", &wish("atlantis"), ErrorCode::NotFound, &["atlantis"]);
    refused("wire", &wish("hv.x"), ErrorCode::NotFound, &["wire"]);
    let stranger = DifExtend {
        ipcp: Some("stranger".parse().unwrap()),
        ..wish("wire")
    };
    refused("net", &stranger, ErrorCode::NotFound, &["stranger"]);
    assert_eq!(member(&pair.host, "net.host").over, [dif("hv.x")]);
    // A DIF that runs over this one cannot be its N-1 DIF.
    let top = request(DifRole::Create, &["net"], "top.host", Value::Null);
    let top = DifCreate {
        name: dif("top"),
        ..top
    };
    pair.host.control().create_dif(&top).unwrap();
    refused(
        "net",
        &wish("top"),
        ErrorCode::BadRequest,
        &["its own N-1 DIF"],
    );
}

#[test]
fn a_configuration_extends_and_retracts_a_member() {
    let text = |over: &str| {
        format!(
            "[[ipcp]]\nname = \"a\"\ntype = \"loopback\"\ndif = \"left\"\n\
             [[ipcp]]\nname = \"b\"\ntype = \"loopback\"\ndif = \"right\"\n\
             [[dif]]\nname = \"net\"\nrole = \"create\"\nover = [{over}]\nipcp = \"one\"\n"
        )
    };
    let house = House::new("extended", &text("\"left\""));
    enrolled(&house, "one");
    let id = ipcp(&house, "one").id;
    let apply = |over: &str| house.control().apply(&text(over)).unwrap();
    let applied = apply("\"left\", \"right\"");
    assert_eq!(applied.extended, ["one".parse().unwrap()], "{applied:?}");
    assert!(
        applied.created.is_empty() && applied.destroyed.is_empty(),
        "{applied:?}"
    );
    let now = ipcp(&house, "one");
    assert_eq!(now.id, id, "it is the same member");
    let info = now.member.unwrap();
    assert_eq!(info.over, [dif("left"), dif("right")]);
    assert_eq!(info.state, MemberState::Enrolled);
    let apps = house.control().flows().unwrap();
    assert!(
        apps.is_empty(),
        "nobody is there to be a neighbour: {apps:?}"
    );
    // The order of the N-1 DIFs has no meaning.
    let applied = apply("\"right\", \"left\"");
    assert!(
        applied.extended.is_empty() && applied.created.is_empty(),
        "{applied:?}"
    );
    // One N-1 DIF is removed. Removing the other as well would leave no N-1 DIF in common.
    let applied = apply("\"right\"");
    assert_eq!(applied.retracted, ["one".parse().unwrap()], "{applied:?}");
    assert!(applied.destroyed.is_empty() && applied.extended.is_empty());
    let now = ipcp(&house, "one");
    assert_eq!(now.id, id, "it is the same member");
    assert_eq!(now.member.unwrap().over, [dif("right")]);
    let applied = apply("\"left\"");
    assert_eq!(applied.destroyed, ["one".parse().unwrap()]);
    assert_eq!(applied.created, ["one".parse().unwrap()]);
}
