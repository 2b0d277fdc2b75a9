//! Two nodes in one process, joined through a VMPI region like a VM and its host.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::{EventKind, HvSide};
use carina_api::ipc::Mode;
use carina_api::{ErrorCode, FlowSpec};
use carina_vmpi::hl::Side;
use carina_vmpi::ll::memfd::MemfdRegion;

use crate::support::pair::Pair;
use crate::support::*;

#[test]
fn flow_crosses_the_region_in_every_mix_of_modes() {
    for modes in [
        [Mode::Ring, Mode::Ring],
        [Mode::Socket, Mode::Ring],
        [Mode::Ring, Mode::Socket],
        [Mode::Socket, Mode::Socket],
    ] {
        let pair = Pair::new("cross", "");
        let (_server, mut mine, mut theirs) = pair.flow(modes);
        for n in 0..200u8 {
            mine.send(&[n; 300]);
            assert_eq!(theirs.recv().unwrap(), [n; 300], "{modes:?}");
            theirs.send(&[n; 3]);
            assert_eq!(mine.recv().unwrap(), [n; 3], "{modes:?}");
        }
        mine.send(b"last words");
        mine.close();
        assert_eq!(theirs.recv().unwrap(), b"last words", "{modes:?}");
        assert_eq!(theirs.recv(), None, "{modes:?}");
        drop(theirs);
        for house in [&pair.host, &pair.guest] {
            eventually("no flow is left", || {
                house.control().flows().unwrap().is_empty()
            });
        }
    }
}

#[test]
fn both_nodes_say_who_is_at_the_other_end() {
    let pair = Pair::new("who", "");
    let shim = |house: &House| {
        house
            .control()
            .ipcps()
            .unwrap()
            .into_iter()
            .find(|i| i.name.as_str() == "shim")
            .unwrap()
    };
    let (host, guest) = (shim(&pair.host), shim(&pair.guest));
    assert_eq!(
        (host.peer.as_deref(), host.side),
        (Some("guest"), Some(HvSide::Host))
    );
    assert_eq!(
        (guest.peer.as_deref(), guest.side),
        (Some("host"), Some(HvSide::Guest))
    );
    assert_eq!(host.vmpi_id, Some(0));
}

#[test]
fn denial_of_the_remote_application_reaches_the_caller() {
    let pair = Pair::new("deny", "");
    let server = pair.register("echo");
    let caller = pair.guest.conn();
    caller.ask("echo");
    server.deny(server.flow_request().request, "not for you");
    let error = caller.error();
    assert_eq!(error.code, ErrorCode::FlowDenied);
    assert!(error.message.contains("not for you"), "{error}");
}

#[test]
fn name_unregistered_at_the_peer_is_unknown_here() {
    let pair = Pair::new("unreg", "");
    let server = pair.register("echo");
    drop(server);
    eventually("the name is gone", || {
        pair.guest.control().apps().unwrap().is_empty()
    });
    let caller = pair.guest.conn();
    caller.ask("echo");
    assert_eq!(caller.error().code, ErrorCode::UnknownName);
}

#[test]
fn death_of_an_application_ends_the_flow_at_the_peer() {
    let pair = Pair::new("death", "");
    let (_server, mine, mut theirs) = pair.flow([Mode::Ring, Mode::Ring]);
    drop(mine);
    assert_eq!(theirs.recv(), None);
    assert!(theirs.notice().is_some());
}

#[test]
fn a_node_death_ends_flows_and_a_new_node_joins() {
    let mut pair = Pair::new("node", "");
    let (server, mine, mut theirs) = pair.flow([Mode::Ring, Mode::Ring]);
    let since = pair
        .host
        .control()
        .events(0, std::time::Duration::ZERO)
        .unwrap()
        .next;
    pair.guest.node.take().unwrap().stop();
    assert!(mine.notice().unwrap().0.contains("is stopping"));
    assert_eq!(theirs.recv(), None);
    assert!(theirs.notice().is_some());
    let events = || {
        pair.host
            .control()
            .events(since, std::time::Duration::ZERO)
            .unwrap()
    };
    eventually("the link goes down", || {
        events()
            .events
            .iter()
            .any(|e| e.kind == EventKind::LinkDown)
    });
    drop((server, theirs));
    pair.guest.node = Some(start(&pair.guest.scratch, "node.name = \"guest\""));
    pair.attach(&pair.guest, Side::Guest);
    pair.wait_up();
    let (_server, mut mine, mut theirs) = pair.flow([Mode::Ring, Mode::Ring]);
    mine.send(b"again");
    assert_eq!(theirs.recv().unwrap(), b"again");
}

#[test]
fn names_registered_early_are_sent_when_the_link_is_up() {
    let host = House::new("early-h", "node.name = \"host\"");
    let guest = House::new("early-g", "node.name = \"guest\"");
    let _server = host.register("early");
    let caller = guest.conn();
    let pair = Pair {
        host,
        guest,
        region: MemfdRegion::create(1 << 20).unwrap(),
    };
    pair.attach(&pair.guest, Side::Guest);
    caller.ask_with("early", Some("hv.x"), FlowSpec::reliable(), Mode::Ring);
    assert_eq!(caller.error().code, ErrorCode::LinkDown);
    pair.attach(&pair.host, Side::Host);
    pair.wait_up();
    eventually("the name is known", || {
        pair.guest
            .control()
            .apps()
            .unwrap()
            .iter()
            .any(|app| app.name.as_str() == "early")
    });
    let difs = pair.guest.control().difs().unwrap();
    assert_eq!(difs[1].names, [app("early")]);
}

#[test]
fn dif_order_of_the_configuration_decides_who_is_asked() {
    for (order, at_host) in [("", false), ("node.dif_order = [\"hv.x\"]", true)] {
        let pair = Pair::new("order", order);
        let far = pair.register("echo");
        let near = pair.guest.register("echo");
        let caller = pair.guest.conn();
        caller.ask("echo");
        let (asked, other) = if at_host {
            (&far, &near)
        } else {
            (&near, &far)
        };
        asked.flow_request();
        assert!(!readable(&other.0, 50));
    }
}

#[test]
fn a_late_answer_is_denied_on_both_sides() {
    // The guest waits longer for the answer of its host.
    let pair = Pair::with("late", ["limits.answer_ms = 50", ""]);
    let server = pair.register("echo");
    let caller = pair.guest.conn();
    caller.ask("echo");
    let request = server.flow_request().request;
    let error = caller.error();
    assert!(error.message.contains("50 ms"), "{error}");
    server.accept(request, Mode::Ring);
    assert_eq!(server.error().code, ErrorCode::NotFound);
}
