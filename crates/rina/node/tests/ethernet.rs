//! Two nodes in namespaces, joined by an Ethernet.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use carina_api::control::LinkState;
use carina_api::ipc::Mode;
use carina_api::{ErrorCode, FlowSpec};
use carina_engine::counters::Value;
use carina_wire::arp::{Arp, Operation};
use carina_wire::ether::Mac;

use crate::room::Room;
use crate::support::networks::{Station, asked, begin, counted, wait_for};
use crate::support::*;

/// Two nodes in namespaces that are joined by an Ethernet.
struct Wire {
    a: House,
    b: House,
    rooms: [Room; 2],
}

impl Wire {
    /// In `keys`, `ROLE` stands for the member's role: the first node creates a DIF, the second
    /// joins it.
    fn new(name: &'static str, keys: &'static str, mtu: usize) -> Option<Wire> {
        let rooms = [Room::new()?, Room::new()?];
        rooms[0].join("va", &rooms[1], "vb", mtu);
        let house = |room: &Room, side: &'static str| {
            room.run(move || {
                let role = if side == "a" { "create" } else { "join" };
                let keys = keys.replace("ROLE", role);
                let toml = format!(
                    "node.name = \"{side}\"\n[[ipcp]]\nname = \"e\"\ntype = \"eth\"\n\
                     interface = \"v{side}\"\n{keys}"
                );
                House::new(&format!("{name}-{side}"), &toml)
            })
        };
        let wire = Wire {
            a: house(&rooms[0], "a"),
            b: house(&rooms[1], "b"),
            rooms,
        };
        for house in [&wire.a, &wire.b] {
            wait_for(house, LinkState::Up);
        }
        Some(wire)
    }

    /// A flow from the first node to the second, where its first SDU has arrived.
    fn flow(&self, server: &Conn) -> (Taken, Taken) {
        begin(&self.a, server, "echo")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The threads of the nodes live in the namespaces, so the nodes stop first.
        self.a.node.take();
        self.b.node.take();
    }
}

#[test]
fn ethernet_carries_sdus_both_ways_tagged_and_untagged() {
    for (name, keys, mtu) in [
        ("eth-u", "dif = \"lan\"", 1500),
        ("eth-t", "dif = \"10\"", 1500),
        ("eth-v", "dif = \"lab\"\nvlan = 4094", 1500),
        ("eth-j", "dif = \"20\"", 9000),
        ("eth-i", "dif = \"30\"\narp = \"irati\"", 1500),
    ] {
        let Some(wire) = Wire::new(name, keys, mtu) else {
            return;
        };
        let server = wire.b.register("echo");
        let (mut mine, mut theirs) = wire.flow(&server);
        assert_eq!(theirs.flow.remote.as_str(), "caller");
        for size in [6, 45, 46, 1400, mtu] {
            let sdu: Vec<u8> = (0..size).map(|n| n as u8).collect();
            mine.send(&sdu);
            assert_eq!(theirs.recv().unwrap(), sdu, "{size} bytes there");
            theirs.send(&sdu);
            assert_eq!(mine.recv().unwrap(), sdu, "{size} bytes back");
        }
        // What a frame cannot carry is counted, and the flow continues. With a tag, a frame of one
        // byte is too short for kernels, and is padded as a network card would do.
        mine.send(&[7]);
        let padded = theirs.recv().unwrap();
        assert!(padded == [7] || padded == [7, 0], "{padded:?}");
        mine.send(&vec![1; mtu + 1]);
        mine.send(b"");
        mine.send(b"on");
        assert_eq!(theirs.recv().unwrap(), b"on");
        assert!(counted(&wire.a, Value::DropTooLong) >= 1);
        assert_eq!(counted(&wire.a, Value::DropEmpty), 1);
    }
}

#[test]
fn a_station_has_one_flow_and_may_begin_it_anew() {
    let Some(wire) = Wire::new("eth-1", "dif = \"lan\"\ntimeout_ms = 400", 1500) else {
        return;
    };
    let server = wire.b.register("echo");
    let (mine, mut theirs) = wire.flow(&server);
    let error = asked(&wire.a, "echo").err().unwrap();
    assert!(error.contains("one flow per pair of stations"), "{error}");
    let nobody = wire.a.conn();
    nobody.ask_with("nobody", None, FlowSpec::unreliable(), Mode::Ring);
    let error = nobody.error().message;
    assert!(
        error.contains("no station on va answered for nobody"),
        "{error}"
    );
    let reliable = wire.a.conn();
    reliable.ask_with("echo", Some("lan"), FlowSpec::reliable(), Mode::Ring);
    assert!(reliable.error().message.contains("max_loss"));
    // A request without a DIF fails with an unknown name first, because the name may be misspelt.
    let slip = wire.a.conn();
    slip.ask_with("ehco", None, FlowSpec::reliable(), Mode::Ring);
    let error = slip.error();
    assert_eq!(error.code, ErrorCode::UnknownName, "{error}");
    for word in ["ehco", "any DIF", "lan cannot meet", "max_loss"] {
        assert!(error.message.contains(word), "{word}: {error}");
    }
    // The other side learns of the end when the station requests a flow again, after a second at
    // least.
    mine.close();
    let mut attempts = 0..1000;
    let mut again = loop {
        attempts.next().expect("the other side hears of the end");
        std::thread::sleep(Duration::from_millis(20));
        let mut again = match asked(&wire.a, "echo") {
            Ok(again) => again,
            // The node has not yet detected the end of the first flow.
            Err(what) => {
                assert!(what.contains("one flow per pair"), "{what}");
                continue;
            }
        };
        again.send(b"second");
        let mut old = None;
        eventually("the SDU is in the new flow or in the old one", || {
            old = theirs.recv_now();
            old.is_some() || readable(&server.0, 0)
        });
        match old {
            None => break again,
            // The request came too early.
            Some(old) => assert_eq!(old, b"second"),
        }
        again.close();
    };
    server.accept(server.flow_request().request, Mode::Ring);
    let mut fresh = server.flow();
    assert_eq!(fresh.recv().unwrap(), b"second");
    fresh.send(b"answer");
    assert_eq!(again.recv().unwrap(), b"answer");
    let (reason, graceful) = theirs.notice().unwrap();
    assert!(graceful && reason.contains("restarted"), "{reason}");
}

#[test]
fn flows_fail_with_the_interface_and_can_be_made_again() {
    let Some(wire) = Wire::new("eth-d", "dif = \"lan\"", 1500) else {
        return;
    };
    let server = wire.b.register("echo");
    let (mine, theirs) = wire.flow(&server);
    wire.rooms[0].ip("link set va down");
    wait_for(&wire.a, LinkState::Down);
    wait_for(&wire.b, LinkState::Down);
    for end in [&mine, &theirs] {
        let (reason, graceful) = end.notice().unwrap();
        assert!(!graceful && reason.contains("is down"), "{reason}");
    }
    let caller = wire.a.conn();
    caller.ask_with("echo", Some("lan"), FlowSpec::unreliable(), Mode::Ring);
    assert!(caller.error().message.contains("va is down"));
    wire.rooms[0].ip("link set va up");
    wait_for(&wire.a, LinkState::Up);
    wait_for(&wire.b, LinkState::Up);
    let (mut mine, mut theirs) = wire.flow(&server);
    theirs.send(b"back");
    assert_eq!(mine.recv().unwrap(), b"back");
}

#[test]
fn flows_fail_when_the_mtu_shrinks_and_can_be_made_again() {
    let Some(wire) = Wire::new("eth-m", "dif = \"lan\"", 9000) else {
        return;
    };
    let server = wire.b.register("echo");
    let (mine, theirs) = wire.flow(&server);
    wire.rooms[0].ip("link set va mtu 1500");
    wire.rooms[1].ip("link set vb mtu 1500");
    for end in [&mine, &theirs] {
        let (reason, graceful) = end.notice().unwrap();
        let is_told = reason.contains("carries SDUs of at most 1500 bytes, before 9000");
        assert!(!graceful && is_told, "{reason}");
    }
    let (mut mine, mut theirs) = wire.flow(&server);
    for size in [1501, 1500] {
        theirs.send(&vec![7; size]);
    }
    assert_eq!(mine.recv().unwrap().len(), 1500);
}

#[test]
fn a_dif_parted_by_an_mtu_heals_when_it_grows() {
    let keys = "dif = \"lan\"\n[[dif]]\nname = \"net\"\nrole = \"ROLE\"\nover = [\"lan\"]";
    let Some(wire) = Wire::new("eth-g", keys, 9000) else {
        return;
    };
    let neighbours = |house: &House| -> usize {
        let ipcps = house.control().ipcps().unwrap();
        let members = ipcps.iter().filter_map(|ipcp| ipcp.member.as_ref());
        members.map(|member| member.neighbours.len()).sum()
    };
    let wait = |wanted: usize| {
        let patience = Instant::now() + Duration::from_secs(120);
        while [&wire.a, &wire.b].map(neighbours) != [wanted; 2] {
            assert!(Instant::now() < patience, "not {wanted} in time");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(1);
    for (mtu, wanted) in [(1500, 0), (9000, 1)] {
        wire.rooms[0].ip(&format!("link set va mtu {mtu}"));
        wire.rooms[1].ip(&format!("link set vb mtu {mtu}"));
        wait(wanted);
    }
}

#[test]
fn hostile_frames_are_counted_and_padding_is_passed_on() {
    let rooms = match (Room::new(), Room::new()) {
        (Some(a), Some(b)) => [a, b],
        _ => return,
    };
    rooms[0].join("va", &rooms[1], "vb", 1500);
    let mut house = rooms[0].run(|| {
        let toml = "[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"lan\"\ninterface = \"va\"";
        House::new("eth-h", toml)
    });
    wait_for(&house, LinkState::Up);
    let server = house.register("echo");
    let mut station = Station::new(&rooms[1], "vb");
    let request = Arp {
        operation: Operation::Request,
        sender_mac: station.mac,
        sender: "them",
        target_mac: Mac::ZERO,
        target: "echo",
    };
    let good = request.encode().unwrap();
    for cut in 8..good.len() {
        station.send(Mac::BROADCAST, 0x0806, &good[..cut]);
    }
    let forged = Arp {
        sender_mac: Mac([2, 9, 9, 9, 9, 9]),
        ..request
    };
    station.send(Mac::BROADCAST, 0x0806, &forged.encode().unwrap());
    let mut bad_name = good.clone();
    bad_name[14] = 7;
    station.send(Mac::BROADCAST, 0x0806, &bad_name);
    let unasked = Arp {
        operation: Operation::Reply,
        ..request
    };
    station.send(Mac::BROADCAST, 0x0806, &unasked.encode().unwrap());
    let bad = (good.len() - 8 + 2) as u64;
    eventually("the malformed are counted", || {
        counted(&house, Value::DropMalformed) == bad
    });
    // A request for a name that is not registered here is not answered; one for a registered name
    // is.
    let absent = Arp {
        target: "absent",
        ..request
    };
    station.send(Mac::BROADCAST, 0x0806, &absent.encode().unwrap());
    station.send(Mac::BROADCAST, 0x0806, &good);
    let reply = station.receive(0x0806);
    let reply = Arp::decode(&reply).unwrap();
    assert_eq!(
        (reply.operation, reply.sender, reply.target),
        (Operation::Reply, "echo", "them")
    );
    // Three bytes arrive padded to 46, as by a network card; the layer above truncates them.
    let mut padded = b"sdu".to_vec();
    padded.resize(46, 0);
    station.send(reply.sender_mac, 0xd1f0, &padded);
    let asked = server.flow_request();
    assert_eq!(asked.remote.as_str(), "them");
    server.accept(asked.request, Mode::Ring);
    let mut flow = server.flow();
    assert_eq!(flow.recv().unwrap(), padded);
    flow.send(b"x");
    assert_eq!(station.receive(0xd1f0), b"x");
    house.node.take();
}

#[test]
fn the_fault_layer_loses_and_duplicates_as_configured() {
    let keys = "dif = \"lan\"\nfault = { duplicate = 1.0, delay_ms = 1.0 }";
    let Some(wire) = Wire::new("eth-f", keys, 1500) else {
        return;
    };
    let server = wire.b.register("echo");
    let (mut mine, mut theirs) = wire.flow(&server);
    assert_eq!(theirs.recv().unwrap(), b"first");
    for n in 0..20u8 {
        mine.send(&[n]);
        assert_eq!(
            (theirs.recv().unwrap(), theirs.recv().unwrap()),
            (vec![n], vec![n])
        );
    }
    drop(wire);
    let keys = "dif = \"lan\"\nfault = { loss = 1.0 }\ntimeout_ms = 300";
    let Some(wire) = Wire::new("eth-l", keys, 1500) else {
        return;
    };
    let _server = wire.b.register("echo");
    let caller = wire.a.conn();
    caller.ask_with("echo", None, FlowSpec::unreliable(), Mode::Ring);
    assert!(caller.error().message.contains("no station on va answered"));
    assert!(counted(&wire.a, Value::DropImpaired) >= 1);
}

#[test]
fn a_missing_interface_is_refused_with_those_that_exist() {
    let house = House::new("eth-n", "");
    let create: carina_api::control::IpcpCreate =
        serde_json::from_str(r#"{"name":"e","type":"eth","dif":"10","interface":"carina-nope"}"#)
            .unwrap();
    let error = house
        .control()
        .create_ipcp(&create)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no network interface \"carina-nope\""),
        "{error}"
    );
    assert!(error.contains("lo"), "{error}");
}
