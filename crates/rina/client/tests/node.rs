//! Applications that use a real node.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use carina_client::{Error, ErrorBody, Flow, FlowSpec, Node, Registration, RegistrationEvent};

use crate::support::{House, app, eventually, sleeping};

/// Allocates from `caller` to `registration` and accepts.
fn connect(node: &Node, registration: &mut Registration) -> (Flow, Flow) {
    let (caller, called) = (app("caller"), registration.name().clone());
    let asking = node
        .start_allocate(&caller, &called, None, &FlowSpec::reliable())
        .unwrap();
    let theirs = registration.accept().unwrap();
    (asking.finish().unwrap(), theirs)
}

fn contents(number: u32, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Lengths of test SDUs: 0 bytes, 1 MiB, and many between.
fn length_of(number: u32) -> usize {
    match number % 20 {
        0 => 0,
        1 => 1 << 20,
        2 => (number as usize).wrapping_mul(104_729) % (1 << 20),
        _ => (number as usize).wrapping_mul(7919) % 9000,
    }
}

#[test]
fn random_sdus_cross_unharmed_in_both_directions_at_once() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("sink"), None).unwrap();
    let (mine, theirs) = connect(&node, &mut registration);
    let threads: Vec<_> = [mine, theirs]
        .into_iter()
        .flat_map(|flow| {
            let (mut tx, mut rx) = flow.split();
            let sender = thread::spawn(move || {
                for number in 0..400 {
                    tx.send(&contents(number, length_of(number))).unwrap();
                }
            });
            let receiver = thread::spawn(move || {
                for number in 0..400 {
                    let sdu = rx.recv_vec(1 << 20).unwrap();
                    assert!(sdu == contents(number, length_of(number)), "SDU {number}");
                }
                assert!(matches!(rx.recv_vec(1), Err(Error::Closed)));
            });
            [sender, receiver]
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn flow_tells_who_is_at_its_ends() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("server"), None).unwrap();
    assert_eq!(registration.difs().len(), 1);
    let asking = {
        let spec = FlowSpec {
            avg_bandwidth_bps: 0,
            ..FlowSpec::reliable()
        };
        node.start_allocate(&app("client"), &app("server"), None, &spec)
            .unwrap()
    };
    let request = registration.next_request().unwrap();
    assert_eq!(
        (request.local.as_str(), request.remote.as_str()),
        ("server", "client")
    );
    assert_eq!(request.spec, FlowSpec::reliable());
    let theirs = registration.accept_request(&request).unwrap();
    let mine = asking.finish().unwrap();
    assert_eq!(mine.info().remote.as_str(), "server");
    assert_eq!(theirs.info().remote.as_str(), "client");
    assert_eq!(mine.info().dif, registration.difs()[0]);
}

#[test]
fn refusals_carry_their_reason() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let refused = |error: Error| match error {
        Error::Refused(ErrorBody { code, message, .. }) => (code.as_str().to_owned(), message),
        other => panic!("{other}"),
    };
    let spec = FlowSpec::reliable();
    let nobody = node
        .allocate(&app("me"), &app("nobody"), None, &spec)
        .unwrap_err();
    let (code, message) = refused(nobody);
    assert_eq!(code, "unknown-name");
    assert!(message.contains("nobody"), "{message}");

    let mut registration = node.register(&app("taken"), None).unwrap();
    assert_eq!(
        refused(node.register(&app("taken"), None).unwrap_err()).0,
        "duplicate-name"
    );

    let asking = node
        .start_allocate(&app("me"), &app("taken"), None, &spec)
        .unwrap();
    let request = registration.next_request().unwrap();
    registration.refuse(&request, "not today").unwrap();
    assert_eq!(
        refused(asking.finish().unwrap_err()),
        ("flow-denied".into(), "not today".into())
    );

    drop(registration);
    eventually("the name is free again", || {
        node.register(&app("taken"), None).is_ok()
    });
}

#[test]
fn missing_node_is_named_by_its_socket() {
    let house = House::new();
    let error = Node::connect_to(house.run_dir().join("ipc.sock")).unwrap_err();
    assert!(matches!(error, Error::NoNode { .. }) && error.to_string().contains("ipc.sock"));
}

#[test]
fn requests_wait_their_turn_while_one_is_accepted() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("busy"), None).unwrap();
    let spec = FlowSpec::reliable();
    let asking: Vec<_> = (0..20)
        .map(|n| {
            node.start_allocate(&app(&format!("c{n}")), &app("busy"), None, &spec)
                .unwrap()
        })
        .collect();
    let flows: Vec<_> = (0..20).map(|_| registration.accept().unwrap()).collect();
    for asked in asking {
        let mut mine = asked.finish().unwrap();
        mine.send(mine.info().local.clone().as_str().as_bytes())
            .unwrap();
    }
    for mut flow in flows {
        let from = flow.info().remote.clone();
        assert_eq!(flow.recv_vec(10).unwrap(), from.as_str().as_bytes());
    }
    assert!(registration.try_next_request().unwrap().is_none());
}

/// Calls `attempt` until it returns something.
fn polled<T>(what: &str, mut attempt: impl FnMut() -> Result<Option<T>, Error>) -> T {
    let mut found = None;
    eventually(what, || {
        found = attempt().unwrap();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn program_that_never_waits_registers_and_accepts() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut pending = node.start_register(&app("polled"), None).unwrap();
    let mut registration = polled("registered", || pending.try_finish());
    assert!(pending.poll_fd().is_none(), "the answer was returned");
    assert!(matches!(pending.try_finish(), Err(Error::NodeGone)));
    assert!(registration.try_next_event().unwrap().is_none());
    let spec = FlowSpec::reliable();
    let mut asking = node
        .start_allocate(&app("caller"), &app("polled"), None, &spec)
        .unwrap();
    let mut theirs = polled("accepted", || {
        let Some(event) = registration.try_next_event()? else {
            return Ok(None);
        };
        match event {
            RegistrationEvent::Request(request) => {
                registration.start_accept(&request)?;
                Ok(None)
            }
            RegistrationEvent::AcceptedFlow { flow, .. } => Ok(Some(flow)),
            other => panic!("{other:?}"),
        }
    });
    let mut mine = polled("allocated", || asking.try_finish());
    mine.send(b"hello").unwrap();
    assert_eq!(theirs.recv_vec(10).unwrap(), b"hello");
    let mut taken = node.start_register(&app("polled"), None).unwrap();
    let mut refused = None;
    eventually("refused", || {
        refused = taken.try_finish().err();
        refused.is_some()
    });
    assert!(matches!(refused, Some(Error::Refused(_))), "{refused:?}");
}

#[test]
fn ring_end_and_socket_end_understand_each_other() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("mixed"), None).unwrap();
    let asking = node
        .start_allocate(&app("ring"), &app("mixed"), None, &FlowSpec::reliable())
        .unwrap();
    let request = registration.next_request().unwrap();
    let theirs = registration.accept_request_socket(&request).unwrap();
    let mut mine = asking.finish().unwrap();
    let mut buffer = [0; 70_000];
    for number in 0..50 {
        let sdu = contents(number, 1 + number as usize * 1200);
        mine.send(&sdu).unwrap();
        let length = rustix::io::read(theirs.socket.as_fd(), &mut buffer[..]).unwrap();
        assert!(buffer[..length] == sdu[..]);
        rustix::io::write(theirs.socket.as_fd(), &sdu).unwrap();
        assert!(mine.recv_vec(70_000).unwrap() == sdu);
    }
    drop(theirs);
    let error = mine.recv(&mut buffer).unwrap_err();
    assert!(error.is_end_of_flow(), "{error}");
}

/// The error of `call` on `flow`, which sleeps until `blow` ends it.
fn ended_by(
    mut flow: Flow,
    call: fn(&mut Flow) -> Result<(), Error>,
    blow: impl FnOnce(),
) -> Error {
    sleeping::ended_by(move || call(&mut flow).unwrap_err(), blow)
}

fn receive(flow: &mut Flow) -> Result<(), Error> {
    flow.recv(&mut [0; 100]).map(drop)
}

fn send_without_end(flow: &mut Flow) -> Result<(), Error> {
    loop {
        flow.send(&[0; 1000])?;
    }
}

#[test]
fn killed_peer_ends_calls_that_sleep() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    for call in [receive, send_without_end] {
        let mut peer = house.process("sleeper");
        let mut flow = None;
        eventually("the other process has registered", || {
            flow = node
                .allocate(&app("me"), &app("sleeper"), None, &FlowSpec::reliable())
                .ok();
            flow.is_some()
        });
        let error = ended_by(flow.unwrap(), call, || peer.kill());
        assert!(matches!(error, Error::FlowFailed { .. }), "{error}");
    }
}

#[test]
fn killed_node_ends_calls_that_sleep_and_a_new_one_serves() {
    let house = House::new();
    let mut process = house.process("node");
    let node = house.client();
    let mut registration = node.register(&app("server"), None).unwrap();
    let (mine, theirs) = connect(&node, &mut registration);
    let error = ended_by(mine, send_without_end, || process.kill());
    assert!(matches!(error, Error::NodeGone), "{error}");
    drop(theirs);
    assert!(matches!(registration.next_request(), Err(Error::NodeGone)));
    assert!(matches!(
        node.register(&app("server"), None),
        Err(Error::NoNode { .. })
    ));

    let _process = house.process("node");
    let node = house.client();
    let mut registration = node.register(&app("server"), None).unwrap();
    let (mut mine, mut theirs) = connect(&node, &mut registration);
    mine.send(b"again").unwrap();
    assert_eq!(theirs.recv_vec(10).unwrap(), b"again");
}

#[test]
fn closing_one_end_lets_the_other_read_what_was_sent() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("server"), None).unwrap();
    let (mut mine, mut theirs) = connect(&node, &mut registration);
    for number in 0..100 {
        mine.send(&contents(number, 500)).unwrap();
    }
    mine.close();
    thread::sleep(Duration::from_millis(50));
    for number in 0..100 {
        assert!(theirs.recv_vec(500).unwrap() == contents(number, 500));
    }
    assert!(matches!(theirs.recv_vec(500), Err(Error::Closed)));
    let error = send_without_end(&mut theirs).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
#[ignore = "part of another test"]
fn process_of_another_test() {
    let Ok(role) = std::env::var("CARINA_TEST_ROLE") else {
        return println!("skipped: only other tests know what to play here");
    };
    let run_dir = std::env::var_os("CARINA_RUN").unwrap();
    match role.as_str() {
        "node" => carina_node::Node::run(crate::support::config_in(run_dir.into())).unwrap(),
        "sleeper" => {
            let node = Node::connect().unwrap();
            let mut registration = node.register(&app("sleeper"), None).unwrap();
            let _flow = registration.accept().unwrap();
            // Runs until the other test closes the pipe.
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn stream_flows_have_a_socket_unless_one_is_attached() {
    let house = House::new();
    let _running = house.node();
    let node = house.client();
    let mut registration = node.register(&app("streams"), None).unwrap();
    let ask = |attached| {
        let (local, remote) = (app("caller"), app("streams"));
        let spec = FlowSpec::reliable();
        let asking = node.start_allocate_stream(&local, &remote, None, &spec, attached);
        asking.unwrap()
    };
    let (kept, attached) = UnixStream::pair().unwrap();
    let asking = ask(Some(attached.into()));
    let request = registration.next_request().unwrap();
    let theirs = registration.accept_request_stream(&request, None).unwrap();
    assert!(asking.finish().unwrap().socket.is_none());
    let mut theirs = UnixStream::from(theirs.socket.unwrap());
    (&kept).write_all(b"through").unwrap();
    drop(kept);
    let mut read = String::new();
    theirs.read_to_string(&mut read).unwrap();
    assert_eq!(read, "through");

    let asking = ask(None);
    let request = registration.next_request().unwrap();
    let pipe = std::io::pipe().unwrap().0;
    let refused = registration.accept_request_stream(&request, Some(pipe.into()));
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let refused = asking.finish();
    let Err(Error::Refused(ErrorBody { message, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.contains("is not a socket"), "{message}");
}
