//! A node whose IPCPs are spread over several data-plane threads.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;

use carina_api::FlowSpec;
use carina_api::ipc::Mode;
use carina_engine::counters::{self, Kind, Value};

use crate::support::members::{enrolled, ipcp, routed};
use crate::support::*;

/// Configuration of a UDP shim; the shim and its DIF have this name.
fn shim(name: &str, own: SocketAddr, other: SocketAddr, peers: &[&str]) -> String {
    let peer = |name: &&str| format!("{{ name = \"{name}\", address = \"{other}\" }}");
    let peers: Vec<String> = peers.iter().map(peer).collect();
    format!(
        "[[ipcp]]\nname = \"{name}\"\ntype = \"udp\"\ndif = \"{name}\"\nlisten = \"{own}\"\n\
         sdu_max = 1400\npeers = [{}]\n",
        peers.join(", ")
    )
}

/// The configurations of two nodes that two UDP shims join, `w0` and `w1`.
fn joined_twice() -> [String; 2] {
    let [a0, b0, a1, b1] = addresses();
    let members = ["net", "net.a", "net.b"];
    let peers = |echo| [&members[..], &[echo]].concat();
    let node = |w0: [SocketAddr; 2], w1: [SocketAddr; 2]| {
        let first = shim("w0", w0[0], w0[1], &peers("echo0"));
        let second = shim("w1", w1[0], w1[1], &peers("echo1"));
        format!("{first}{second}")
    };
    [node([a0, b0], [a1, b1]), node([b0, a0], [b1, a1])]
}

fn member_of_net(role: &str, side: &str, over: &str) -> String {
    format!("[[dif]]\nname = \"net\"\nrole = \"{role}\"\nover = [{over}]\nipcp = \"net.{side}\"\n")
}

fn breaths(house: &House) -> Vec<u64> {
    let rows = counters::read(&house.dir().path().join("counters")).unwrap();
    let mut engines: Vec<_> = rows.iter().filter(|row| row.kind == Kind::Engine).collect();
    engines.sort_by_key(|row| row.id);
    engines.iter().map(|row| row.get(Value::Breaths)).collect()
}

/// Checks that a reliable flow through `net` between two houses carries SDUs in both directions.
fn carries(from: &House, to: &House, member: &str, name: &str) {
    let server = to.conn();
    server.register(name, Some("net")).unwrap();
    eventually("the name is known", || {
        let difs = from.control().difs().unwrap();
        let net = difs.into_iter().find(|found| found.name == dif("net"));
        net.is_some_and(|net| net.names.contains(&app(name)))
    });
    routed(from, "net", member);
    let caller = from.conn();
    caller.ask_with(name, Some("net"), FlowSpec::reliable(), Mode::Ring);
    let asked = server.flow_request_of(&caller);
    server.accept(asked.request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    for seed in 0..200 {
        let sdu = content(5_000, seed);
        mine.send_patiently(&sdu);
        assert!(theirs.recv_whole().unwrap() == sdu, "SDU {seed} there");
        theirs.send_patiently(&sdu);
        assert!(mine.recv_whole().unwrap() == sdu, "SDU {seed} back");
    }
}

#[test]
fn shims_on_two_workers_both_carry_flows() {
    let [a, b] = joined_twice();
    let [a, b] = [("workers-a", a), ("workers-b", b)]
        .map(|(name, toml)| House::new(name, &format!("node.workers = 2\n{toml}")));
    for house in [&a, &b] {
        let workers = ["w0", "w1"].map(|name| ipcp(house, name).worker);
        assert_eq!(
            workers,
            [Some(0), Some(1)],
            "spread where the file says nothing"
        );
        assert_eq!(ipcp(house, "loopback").worker, None);
    }
    let before = breaths(&a);
    assert_eq!(before.len(), 2);
    for (name, in_dif) in [("echo0", "w0"), ("echo1", "w1")] {
        let server = b.conn();
        server.register(name, Some(in_dif)).unwrap();
        let caller = a.conn();
        caller.ask_with(name, Some(in_dif), FlowSpec::unreliable(), Mode::Ring);
        let asked = server.flow_request_of(&caller);
        server.accept(asked.request, Mode::Ring);
        let (mut theirs, mut mine) = (server.flow(), caller.flow());
        // One SDU at a time, because a UDP shim may lose SDUs when more are under way than sockets
        // hold.
        for seed in 0..100 {
            let sdu = content(1_000, seed);
            mine.send(&sdu);
            assert_eq!(theirs.recv().unwrap(), sdu);
            theirs.send(&sdu);
            assert_eq!(mine.recv().unwrap(), sdu);
        }
    }
    for (number, (before, after)) in before.iter().zip(breaths(&a)).enumerate() {
        assert!(after > *before, "worker {number} has moved nothing");
    }
}

#[test]
fn a_dif_over_shims_of_two_workers_survives_restarts() {
    let [a, b] = joined_twice();
    let node = |name: &str, toml: String, role: &str, side: &str, over: &str, worker: u8| {
        let head = format!(
            "node.workers = 2\nnode.placement = {{ \"net.{side}\" = {worker} }}\n{toml}{}",
            member_of_net(role, side, over)
        );
        (House::new(name, &head), head)
    };
    let (a, _) = node("crossed-a", a, "create", "a", "\"w0\", \"w1\"", 0);
    let (mut b, again) = node("crossed-b", b, "join", "b", "\"w1\"", 0);
    for round in 0..3 {
        enrolled(&b, "net.b");
        for house in [&a, &b] {
            assert_eq!(ipcp(house, "w1").worker, Some(1));
        }
        assert_eq!(ipcp(&a, "net.a").worker, Some(0));
        carries(&a, &b, "net.b", &format!("from-a-{round}"));
        carries(&b, &a, "net.a", &format!("from-b-{round}"));
        drop(b.node.take());
        b.node = Some(start(&b.scratch, &again));
    }
    enrolled(&b, "net.b");
    b.control().leave_dif("net", None).unwrap();
    let is_alone = || {
        let info = ipcp(&a, "net.a").member.unwrap();
        info.n1.iter().all(|n1| n1.neighbour.is_none())
    };
    eventually("a member that leaves is no neighbour", is_alone);
}

#[test]
fn a_member_is_placed_where_most_of_its_n1_difs_are() {
    let [a, _] = joined_twice();
    let toml = format!(
        "node.workers = 3\n{a}{}",
        member_of_net("create", "a", "\"w1\"")
    );
    let house = House::new("below", &toml);
    enrolled(&house, "net.a");
    let workers = ["w0", "w1", "net.a"].map(|name| ipcp(&house, name).worker.unwrap());
    assert_eq!(workers, [0, 1, 1]);
}

#[test]
fn another_placement_makes_an_ipcp_anew_and_nothing_else() {
    let [a, _] = joined_twice();
    let text = |placement: &str| format!("[node]\nworkers = 2\n{placement}\n{a}");
    let house = House::new("moved", &text(""));
    let first = ipcp(&house, "w1").id;
    let applied = house
        .control()
        .apply(&text("placement = { w0 = 1 }"))
        .unwrap();
    assert_eq!(applied.created.len(), 1, "{applied:?}");
    let workers = ["w0", "w1"].map(|name| ipcp(&house, name).worker);
    assert_eq!(workers, [Some(1), Some(1)]);
    assert_eq!(ipcp(&house, "w1").id, first);
    let more = house.control().apply("[node]\nworkers = 3\n").unwrap_err();
    assert!(
        more.to_string().contains("a running node keeps its 2"),
        "{more}"
    );
}
