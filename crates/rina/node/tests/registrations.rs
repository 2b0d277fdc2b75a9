//! Registrations that a DIF refuses, and the errors that applications receive.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::DifRole;
use carina_api::ipc::Mode;
use carina_api::{DifName, ErrorBody, ErrorCode, FlowSpec};
use serde_json::json;

use crate::support::members::{enrolled, request};
use crate::support::pair::Pair;
use crate::support::*;

/// Makes the first member of DIF `net`, where a member stores at most `names_max` registrations.
fn create(house: &House, over: &str, names_max: &str) {
    let params = json!({ "names-max": names_max });
    let mut wish = request("net", DifRole::Create, over, "net.first");
    let config = json!({ "policies": { "directory": { "name": "on-demand", "params": params } } });
    wish.config = Some(serde_json::from_value(config).unwrap());
    house.control().create_dif(&wish).unwrap();
    enrolled(house, "net.first");
}

/// The DIFs in which the node lists an application.
fn difs_of(house: &House, name: &str) -> Vec<DifName> {
    let apps = house.control().apps().unwrap();
    let of_name = apps.into_iter().filter(|info| info.name == app(name));
    of_name.flat_map(|info| info.difs).collect()
}

fn is_limit(error: &ErrorBody) {
    assert_eq!(error.code, ErrorCode::LimitReached, "{error}");
    for words in [
        "the DIF net does not register",
        "holds 1 registrations",
        "names-max",
    ] {
        assert!(error.message.contains(words), "{error}");
    }
}

fn is_called(caller: &Conn, server: &Conn, name: &str) {
    caller.ask_with(name, Some("net"), FlowSpec::reliable(), Mode::Ring);
    let asked = server.flow_request_of(caller);
    server.accept(asked.request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    mine.send(b"hello");
    assert_eq!(theirs.recv().unwrap(), b"hello");
}

#[test]
fn a_full_directory_is_reported_and_nothing_is_registered() {
    let house = House::new("reg-full", "");
    create(&house, "local", "1");
    let first = house.conn();
    assert_eq!(first.register("first", Some("net")).unwrap(), [dif("net")]);
    let second = house.conn();
    is_limit(&second.register("second", Some("net")).unwrap_err());
    eventually("it is nowhere", || difs_of(&house, "second").is_empty());
    // Registering in all DIFs fails too, and leaves no registration in the DIFs that would accept
    // it.
    is_limit(&second.register("second", None).unwrap_err());
    eventually("it is nowhere", || difs_of(&house, "second").is_empty());
    assert_eq!(
        second.register("second", Some("local")).unwrap(),
        [dif("local")]
    );
    assert_eq!(difs_of(&house, "second"), [dif("local")]);
    is_called(&house.conn(), &first, "first");
    drop(first);
    let third = house.conn();
    eventually("there is room again", || {
        third.register("third", Some("net")).is_ok()
    });
    is_called(&house.conn(), &third, "third");
}

#[test]
fn a_registration_before_joining_is_refused_later() {
    let pair = Pair::new("reg-late", "");
    let (host, guest) = (&pair.host, &pair.guest);
    let mut join = request("net", DifRole::Join, "hv.x", "net.second");
    join.via = Some(app("net.first"));
    guest.control().create_dif(&join).unwrap();
    let [x, y] = ["x", "y"].map(|name| {
        let conn = guest.conn();
        assert_eq!(conn.register(name, Some("net")).unwrap(), [dif("net")]);
        conn
    });
    let everywhere = guest.conn();
    everywhere.register("z", None).unwrap();
    create(host, "hv.x", "1");
    enrolled(guest, "net.second");
    // Both homes have room for one registration.
    is_limit(&y.error());
    assert!(y.hear().is_none());
    eventually("it is registered no more", || {
        difs_of(guest, "y").is_empty()
    });
    is_called(&host.conn(), &x, "x");
    // An application that asked for all DIFs stays registered in the others.
    eventually("it is elsewhere only", || {
        difs_of(guest, "z") == [dif("local"), dif("hv.x")]
    });
    let caller = guest.conn();
    caller.ask_with("z", Some("local"), FlowSpec::reliable(), Mode::Ring);
    let asked = everywhere.flow_request_of(&caller);
    everywhere.deny(asked.request, "not today");
    assert!(caller.error().message.contains("not today"));
}
