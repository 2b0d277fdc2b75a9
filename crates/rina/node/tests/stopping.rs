//! A node that is stopped informs its neighbours and the users of its flows; they need not detect
//! it by silence.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use carina_api::FlowSpec;
use carina_api::control::{DifCreate, EventKind, LinkState};
use carina_api::ipc::Mode;
use serde_json::json;

use crate::room::Room;
use crate::support::members::{enrolled, member};
use crate::support::networks::wait_for;
use crate::support::*;

/// Two nodes on one Ethernet, whose shim has no message that ends a flow.
struct Wire {
    a: House,
    b: House,
    _rooms: [Room; 2],
}

impl Wire {
    fn new(name: &'static str) -> Option<Wire> {
        let rooms = [Room::new()?, Room::new()?];
        rooms[0].join("va", &rooms[1], "vb", 1500);
        let house = |room: &Room, side: &'static str| {
            let house = room.run(move || {
                let toml = format!(
                    "node.name = \"{side}\"\n[[ipcp]]\nname = \"e\"\ntype = \"eth\"\n\
                     dif = \"lan\"\ninterface = \"v{side}\"\ntimeout_ms = 500\n"
                );
                House::new(&format!("{name}-{side}"), &toml)
            });
            wait_for(&house, LinkState::Up);
            house
        };
        Some(Wire {
            a: house(&rooms[0], "a"),
            b: house(&rooms[1], "b"),
            _rooms: rooms,
        })
    }

    /// Creates a DIF of both nodes, over another one of both.
    fn make(&self, name: &str, over: &str, dialect: &str) {
        for (house, role, side) in [(&self.a, "create", "a"), (&self.b, "join", "b")] {
            let ipcp = format!("{name}.{side}");
            let create = json!({"name": name, "role": role, "over": [over], "ipcp": ipcp,
                                "dialect": dialect});
            let create: DifCreate = serde_json::from_value(create).unwrap();
            house.control().create_dif(&create).unwrap();
            enrolled(house, &ipcp);
        }
        eventually("they are neighbours", || {
            !member(&self.a, &format!("{name}.a")).neighbours.is_empty()
        });
    }

    /// A flow from `b` to an application of `a`; the first end returned is that of `a`.
    fn flow(&self, in_dif: &str) -> (Conn, Taken, Taken) {
        let server = self.a.conn();
        server.register("server", Some(in_dif)).unwrap();
        eventually("the name is known", || {
            let difs = self.b.control().difs().unwrap();
            let found = difs.into_iter().find(|found| found.name == dif(in_dif));
            found.is_some_and(|found| found.names.contains(&app("server")))
        });
        let caller = self.b.conn();
        caller.ask_with("server", Some(in_dif), FlowSpec::reliable(), Mode::Ring);
        server.accept(server.flow_request().request, Mode::Ring);
        let theirs = server.flow();
        (server, theirs, caller.flow())
    }

    /// Stops `a`. Returns why each member of `b` lost its neighbour.
    fn stop(&mut self, count: usize) -> Vec<(String, String)> {
        self.a.node.take().unwrap().stop();
        let mut lost = Vec::new();
        eventually_or("the neighbours are down", || {
            let events = self.b.control().events(0, Duration::ZERO).unwrap().events;
            let downs = events.into_iter();
            let downs = downs.filter(|event| event.kind == EventKind::NeighbourDown);
            lost = downs.map(|down| (down.subject, down.detail)).collect();
            if lost.len() == count {
                Ok(())
            } else {
                Err(format!("{lost:?}"))
            }
        });
        lost
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The threads of the nodes live in the namespaces, so the nodes stop first.
        drop(self.a.node.take());
        drop(self.b.node.take());
    }
}

#[test]
fn neighbours_hear_that_a_node_stops_in_each_dialect() {
    for (dialect, words) in [
        ("native", "the neighbour left"),
        ("rlite", "the neighbour released this member"),
        ("irati", "the neighbour has released the connection"),
    ] {
        let Some(mut wire) = Wire::new(match dialect {
            "native" => "stop-native",
            "rlite" => "stop-rlite",
            _ => "stop-irati",
        }) else {
            return;
        };
        wire.make("net", "lan", dialect);
        let (_server, mut theirs, mut mine) = wire.flow("net");
        mine.send(b"ping");
        assert_eq!(theirs.recv().unwrap(), b"ping");
        let lost = wire.stop(1);
        assert!(lost[0].1.contains(words), "{dialect}: {lost:?}");
        let (reason, _) = mine.notice().unwrap();
        assert!(!reason.contains("heard"), "{dialect}: {reason}");
    }
}

#[test]
fn neighbours_hear_it_in_each_of_the_difs_upon_each_other() {
    let Some(mut wire) = Wire::new("stop-stack") else {
        return;
    };
    wire.make("low", "lan", "native");
    wire.make("mid", "low", "native");
    wire.make("top", "mid", "native");
    let (_server, mut theirs, mut mine) = wire.flow("top");
    mine.send(b"ping");
    assert_eq!(theirs.recv().unwrap(), b"ping");
    let lost = wire.stop(3);
    for (subject, detail) in &lost {
        assert!(
            detail.ends_with("the neighbour left"),
            "{subject}: {detail}"
        );
    }
    let order: Vec<&str> = lost.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(order, ["top.b", "mid.b", "low.b"]);
    assert!(mine.notice().is_some());
}
