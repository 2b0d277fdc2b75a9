//! Permanent refusals, and those that are not.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::FlowSpec;
use carina_api::control::{Dialect, DifRole};
use carina_api::ipc::Mode;

use crate::support::members::{enrolled, ipcp, refused_for_good, request};
use crate::support::pair::Pair;
use crate::support::*;

#[test]
fn a_taken_name_is_final_and_an_absent_member_is_not() {
    let pair = Pair::new("taken", "");
    let create = request("net", DifRole::Create, "hv.x", "net.one");
    pair.host.control().create_dif(&create).unwrap();
    enrolled(&pair.host, "net.one");
    let join = request("net", DifRole::Join, "hv.x", "net.one");
    pair.guest.control().create_dif(&join).unwrap();
    refused_for_good(&pair.guest, "net.one", "choose another");
    let waits = request("other", DifRole::Join, "hv.x", "other.guest");
    pair.guest.control().create_dif(&waits).unwrap();
    eventually("nobody is there", || {
        ipcp(&pair.guest, "other.guest").member.unwrap().failures > 1
    });
    let info = ipcp(&pair.guest, "other.guest").member.unwrap();
    assert!(!info.is_final, "{info:?}");
    let caller = pair.guest.conn();
    caller.ask_with("anybody", Some("other"), FlowSpec::reliable(), Mode::Ring);
    assert!(!caller.error().is_final);
}

#[test]
fn an_irati_dif_refuses_for_good_by_access_control() {
    let pair = Pair::new("unwelcome", "");
    let mut create = request("net", DifRole::Create, "hv.x", "net.host");
    create.dialect = Dialect::Irati;
    create.config = Some(serde_json::json!({
        "policies": { "access-control": { "name": "list", "params": { "join": "x*" } } }
    }));
    pair.host.control().create_dif(&create).unwrap();
    enrolled(&pair.host, "net.host");
    let mut join = request("net", DifRole::Join, "hv.x", "net.guest");
    join.dialect = Dialect::Irati;
    pair.guest.control().create_dif(&join).unwrap();
    refused_for_good(&pair.guest, "net.guest", "access-control");
}
