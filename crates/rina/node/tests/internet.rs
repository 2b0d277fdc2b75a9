//! Two nodes joined by IP: UDP and TCP over the loopback interface.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use carina_api::FlowSpec;
use carina_api::control::{EventKind, LinkState};
use carina_api::ipc::Mode;
use carina_engine::counters::Value;

use crate::support::networks::{begin, counted, wait_for};
use crate::support::*;

/// Two nodes that are connected over IP.
fn over_ip(name: &str, kind: &str, keys: &str) -> (House, House) {
    let [a, b] = addresses();
    // The connecting side has the address that the kernel chooses.
    let caller = match kind {
        "tcp" => "127.0.0.1:7000".parse().unwrap(),
        _ => a,
    };
    let house = |side: &str, listen, peer: &str, address| {
        let toml = format!(
            "[[ipcp]]\nname = \"e\"\ntype = \"{kind}\"\ndif = \"inet\"\nlisten = \"{listen}\"\n\
             {keys}\n[[ipcp.peers]]\nname = \"{peer}\"\naddress = \"{address}\""
        );
        House::new(&format!("{name}-{side}"), &toml)
    };
    let houses = (house("a", a, "echo", b), house("b", b, "caller", caller));
    wait_for(&houses.0, LinkState::Up);
    wait_for(&houses.1, LinkState::Up);
    houses
}

#[test]
fn udp_carries_flows_by_name_and_tells_their_ends() {
    let (a, b) = over_ip("udp", "udp", "sdu_max = 1400");
    let server = b.register("echo");
    let ask = |name: &str| {
        let caller = a.conn();
        caller.ask_with(name, Some("inet"), FlowSpec::unreliable(), Mode::Ring);
        caller
    };
    let mut flows = Vec::new();
    for n in 0..3u8 {
        let caller = ask("echo");
        let request = server.flow_request();
        assert_eq!(request.remote.as_str(), "caller");
        server.accept(request.request, Mode::Ring);
        let (mut mine, mut theirs) = (caller.flow(), server.flow());
        mine.send(&[n]);
        assert_eq!(theirs.recv().unwrap(), [n]);
        flows.push((mine, theirs));
    }
    for (n, (mine, theirs)) in flows.iter_mut().enumerate() {
        for size in [0, 1, 1400] {
            theirs.send(&vec![n as u8; size]);
            assert_eq!(mine.recv().unwrap(), vec![n as u8; size]);
        }
        mine.send(&[9; 1401]);
    }
    eventually("long SDUs are counted", || {
        counted(&a, Value::DropTooLong) == 3
    });
    let (mine, theirs) = flows.pop().unwrap();
    mine.close();
    assert!(theirs.notice().unwrap().1, "a graceful end");
    let caller = ask("echo");
    server.deny(server.flow_request().request, "not today");
    assert!(caller.error().message.contains("not today"));
    let error = ask("no such host").error().message;
    assert!(error.contains("`peers`"), "{error}");
}

#[test]
fn a_link_over_ip_is_up_with_its_peers() {
    for kind in ["udp", "tcp"] {
        let (a, _b) = over_ip("peers", kind, "");
        let events = a.control().events(0, Duration::ZERO).unwrap().events;
        let mut up = events
            .iter()
            .filter(|event| event.kind == EventKind::LinkUp && event.subject == "e");
        let detail = &up.next().unwrap().detail;
        let ipcps = a.control().ipcps().unwrap();
        let shown = ipcps.iter().find(|ipcp| ipcp.name.as_str() == "e");
        let peer = shown.unwrap().peer.clone().unwrap();
        assert!(peer.starts_with("echo at 127."), "{peer}");
        assert!(
            detail.starts_with(&format!("peer {peer}; listens at 127.")),
            "{detail}"
        );
    }
}

#[test]
fn bare_datagrams_are_flows_by_address() {
    let (a, b) = over_ip("bare", "udp", "framing = \"rlite\"");
    let server = b.register("echo");
    let (mut mine, mut theirs) = begin(&a, &server, "echo");
    assert_eq!(
        theirs.flow.remote.as_str(),
        "caller",
        "the name of the address"
    );
    for size in [0, 1, 1452] {
        mine.send(&vec![5; size]);
        assert_eq!(theirs.recv().unwrap(), vec![5; size]);
        theirs.send(&vec![6; size]);
        assert_eq!(mine.recv().unwrap(), vec![6; size]);
    }
}

#[test]
fn tcp_carries_sdus_of_any_length_and_its_end_is_the_flows() {
    let (a, b) = over_ip("tcp", "tcp", "");
    let server = b.register("echo");
    let ask = || {
        let caller = a.conn();
        caller.ask_with("echo", Some("inet"), FlowSpec::reliable(), Mode::Ring);
        caller
    };
    let caller = ask();
    let request = server.flow_request();
    assert_eq!(request.remote.as_str(), "caller");
    server.accept(request.request, Mode::Ring);
    let (mut mine, mut theirs) = (caller.flow(), server.flow());
    for size in [0, 1, 10_000, 30_000] {
        let sdu: Vec<u8> = (0..size).map(|n| n as u8).collect();
        mine.send_patiently(&sdu);
        assert!(theirs.recv_whole().unwrap() == sdu, "{size} bytes there");
        theirs.send_patiently(&sdu);
        assert!(mine.recv_whole().unwrap() == sdu, "{size} bytes back");
    }
    // A reader that waits blocks the writer, and nothing is lost.
    let writer = std::thread::spawn(move || {
        for n in 0..2000u32 {
            mine.send_patiently(&[&n.to_be_bytes()[..], &[7; 5000]].concat());
        }
        mine.close();
    });
    std::thread::sleep(Duration::from_millis(50));
    for n in 0..2000u32 {
        let sdu = theirs.recv_whole().unwrap();
        assert!(sdu.len() == 5004 && sdu[..4] == n.to_be_bytes(), "SDU {n}");
    }
    assert_eq!(theirs.recv_whole(), None);
    assert!(theirs.notice().unwrap().1, "a graceful end");
    writer.join().unwrap();
    let caller = ask();
    server.deny(server.flow_request().request, "not today");
    assert!(caller.error().message.contains("not today"));
    drop(server);
    eventually("the name is gone", || {
        b.control().apps().unwrap().is_empty()
    });
    let refused = ask();
    let error = refused.error().message;
    assert!(
        error.contains("no application is registered as echo"),
        "{error}"
    );
    drop(b);
    assert!(ask().error().message.contains("refused"));
}

#[test]
fn tcp_of_rlite_has_short_lengths_and_table_names() {
    let (a, b) = over_ip("tcps", "tcp", "framing = \"rlite\"");
    let server = b.register("echo");
    let caller = a.conn();
    caller.ask_with("echo", Some("inet"), FlowSpec::reliable(), Mode::Ring);
    let mut mine = caller.flow();
    mine.send(b"first");
    let request = server.flow_request();
    assert_eq!(request.remote.as_str(), "caller");
    server.accept(request.request, Mode::Ring);
    let mut theirs = server.flow();
    assert_eq!(theirs.recv_whole().unwrap(), b"first");
    for size in [0, 1, 16_000] {
        theirs.send_patiently(&vec![3; size]);
        assert!(mine.recv_whole().unwrap() == vec![3; size]);
    }
    theirs.close();
    assert_eq!(mine.recv_whole(), None);
}
