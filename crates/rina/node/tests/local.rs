//! Applications of one node, over real sockets and rings.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::{EventKind, FlowState};
use carina_api::ipc::Mode;
use carina_api::{ErrorCode, FlowSpec};

use crate::support::*;

#[test]
fn local_flow_carries_sdus_both_ways_in_every_mix_of_modes() {
    for modes in [
        [Mode::Ring, Mode::Ring],
        [Mode::Socket, Mode::Socket],
        [Mode::Ring, Mode::Socket],
        [Mode::Socket, Mode::Ring],
    ] {
        let house = House::new("modes", "");
        let (_server, mut mine, mut theirs) = local_flow(&house, modes);
        assert_eq!((mine.flow.mode, theirs.flow.mode), (modes[0], modes[1]));
        for n in 0..100u8 {
            mine.send(&[n; 100]);
            assert_eq!(theirs.recv().unwrap(), [n; 100], "{modes:?}");
            theirs.send(&[n; 1]);
            assert_eq!(mine.recv().unwrap(), [n; 1], "{modes:?}");
        }
        let flows = house.control().flows().unwrap();
        assert_eq!(flows.len(), 1, "{modes:?}");
        assert_eq!(flows[0].direct, modes[0] == modes[1], "{modes:?}");
        assert_eq!(flows[0].state, FlowState::Up);
        mine.send(b"last words");
        mine.close();
        assert_eq!(theirs.recv().unwrap(), b"last words", "{modes:?}");
        assert_eq!(theirs.recv(), None, "{modes:?}");
        drop(theirs);
        eventually("no flow is left", || {
            house.control().flows().unwrap().is_empty()
        });
    }
}

#[test]
fn graceful_close_is_reported_as_such_and_a_death_is_not() {
    let house = House::new("close", "");
    let (_server, mine, theirs) = local_flow(&house, [Mode::Ring, Mode::Ring]);
    mine.close();
    let (reason, graceful) = theirs.notice().unwrap();
    assert!(graceful, "{reason}");
    assert!(reason.contains("closed"), "{reason}");
    drop((theirs, _server));
    eventually("the name is free", || {
        house.control().apps().unwrap().is_empty()
    });
    let (_server, mine, mut theirs) = local_flow(&house, [Mode::Ring, Mode::Ring]);
    drop(mine);
    let (reason, graceful) = theirs.notice().unwrap();
    assert!(!graceful && reason.contains("died"), "{reason}");
    assert_eq!(
        theirs.end.as_mut().unwrap().rx.state(),
        carina_ring::State::Failed
    );
}

#[test]
fn denial_carries_the_reason_to_the_caller() {
    let house = House::new("deny", "");
    let server = house.register("echo");
    let caller = house.conn();
    caller.ask("echo");
    server.deny(server.flow_request().request, "busy today");
    let error = caller.error();
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::FlowDenied, "busy today")
    );
    // The connection may be used for another request.
    caller.ask("echo");
    server.accept(server.flow_request().request, Mode::Ring);
    caller.flow();
    server.flow();
}

#[test]
fn unknown_names_and_difs_are_named_in_the_refusal() {
    let house = House::new("unknown", "");
    let caller = house.conn();
    caller.ask("nobody");
    let error = caller.error();
    assert_eq!(error.code, ErrorCode::UnknownName);
    assert!(error.message.contains("nobody"), "{error}");
    caller.ask_with("nobody", Some("atlantis"), FlowSpec::reliable(), Mode::Ring);
    let error = caller.error();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(
        error.message.contains("atlantis") && error.message.contains("local"),
        "{error}"
    );
}

#[test]
fn duplicate_name_is_refused_until_the_first_is_gone() {
    let house = House::new("duplicate", "");
    let first = house.register("echo");
    let error = house.conn().register("echo", None).unwrap_err();
    assert_eq!(error.code, ErrorCode::DuplicateName);
    assert!(error.message.contains("echo"), "{error}");
    drop(first);
    eventually("the name is free", || {
        house.conn().register("echo", None).is_ok()
    });
}

#[test]
fn spec_that_no_dif_meets_is_refused_with_field_and_value() {
    let house = House::new("spec", "");
    let _server = house.register("echo");
    let caller = house.conn();
    let spec = FlowSpec {
        max_delay_us: 7,
        ..FlowSpec::reliable()
    };
    caller.ask_with("echo", None, spec, Mode::Ring);
    let error = caller.error();
    assert_eq!(error.code, ErrorCode::SpecNotMet);
    assert!(error.message.contains("max_delay_us: 7"), "{error}");
    assert!(error.message.contains("local"), "{error}");
}

#[test]
fn registration_ends_with_its_application_and_denies_requests() {
    let house = House::new("gone", "");
    let server = house.register("echo");
    let caller = house.conn();
    caller.ask("echo");
    server.flow_request();
    assert_eq!(house.control().apps().unwrap()[0].pending, 1);
    drop(server);
    let error = caller.error();
    assert_eq!(error.code, ErrorCode::FlowDenied);
    assert!(error.message.contains("ended"), "{error}");
    assert!(house.control().apps().unwrap().is_empty());
}

#[test]
fn caller_that_gives_up_takes_its_request_back() {
    let house = House::new("giveup", "");
    let server = house.register("echo");
    let caller = house.conn();
    caller.ask("echo");
    let request = server.flow_request().request;
    drop(caller);
    eventually("the request is withdrawn", || {
        house.control().flows().unwrap().is_empty()
    });
    server.accept(request, Mode::Ring);
    let error = server.error();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert_eq!(house.control().node().unwrap().flows, 0);
}

#[test]
fn silence_of_an_application_is_denied_in_time() {
    let house = House::new("silence", "[limits]\nanswer_ms = 50\n");
    let server = house.register("echo");
    let caller = house.conn();
    caller.ask("echo");
    server.flow_request();
    let error = caller.error();
    assert!(error.message.contains("50 ms"), "{error}");
    assert!(house.control().flows().unwrap().is_empty());
}

#[test]
fn stopped_node_tells_its_applications() {
    let mut house = House::new("stop", "");
    let (server, mine, mut theirs) = local_flow(&house, [Mode::Ring, Mode::Ring]);
    house.node.take().unwrap().stop();
    assert!(mine.notice().unwrap().0.contains("is stopping"));
    assert_eq!(mine.notice(), None);
    assert_eq!(theirs.recv(), None);
    assert!(server.hear().is_none());
    assert!(!house.dir().ipc_sock().exists() && !house.dir().control_sock().exists());
    house.node = Some(start(&house.scratch, ""));
    house.register("echo");
}

#[test]
fn command_ends_a_flow_for_both_applications() {
    let house = House::new("cut", "");
    let (_server, mine, theirs) = local_flow(&house, [Mode::Ring, Mode::Ring]);
    house.control().deallocate_flow(mine.flow.port).unwrap();
    for end in [&mine, &theirs] {
        assert!(end.notice().unwrap().0.contains("command"));
    }
    let error = house
        .control()
        .deallocate_flow(carina_api::PortId(999))
        .unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
}

#[test]
fn events_tell_the_story_and_the_long_poll_waits_for_more() {
    let house = House::new("events", "");
    let control = house.control();
    let seen = control.events(0, std::time::Duration::ZERO).unwrap();
    assert!(seen.events.iter().any(|e| e.kind == EventKind::IpcpCreated));
    let waiter = std::thread::spawn({
        let control = control.clone();
        move || control.events(seen.next, PATIENCE).unwrap()
    });
    let _server = house.register("late");
    let news = waiter.join().unwrap();
    assert_eq!(news.events[0].kind, EventKind::AppRegistered);
    assert_eq!(news.events[0].subject, "late");
}
