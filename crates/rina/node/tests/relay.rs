//! A relay that is killed under traffic, and then comes back.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use carina_api::FlowSpec;
use carina_api::control::{Client, EventKind};
use carina_api::ipc::Mode;
use carina_node::{Config, Node};
use std::time::Duration;

use crate::support::members::{enrolled, ipcp, member, routed};
use crate::support::*;

/// Not a test itself: the node that is killed.
#[test]
#[ignore = "part of another test"]
fn child_node() {
    let text = std::env::var("CARINA_TEST_TOML").unwrap();
    let mut config = Config::parse(&text, None).unwrap();
    config.node.run_dir = Some(std::env::var_os("CARINA_TEST_RUN").unwrap().into());
    Node::run(config).unwrap();
}

/// A node in its own process.
struct Relay {
    scratch: Scratch,
    toml: String,
    child: Option<Child>,
}

impl Relay {
    fn start(&mut self) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "relay::child_node", "--ignored"])
            .env("CARINA_TEST_RUN", self.scratch.run_dir().path())
            .env("CARINA_TEST_TOML", &self.toml)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let control = Client::new(self.scratch.run_dir().control_sock());
        let pid = child.id();
        eventually("the child serves", || {
            control.node().is_ok_and(|node| node.pid == pid)
        });
        self.child = Some(child);
    }

    /// Kills the process, like `kill -9`.
    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// Configuration of a UDP shim, with the addresses of members of the DIF above.
fn shim(dif: &str, own: SocketAddr, peers: &[(&str, SocketAddr)]) -> String {
    let peer =
        |(name, at): &(&str, SocketAddr)| format!("{{ name = \"{name}\", address = \"{at}\" }}");
    let peers: Vec<String> = peers.iter().map(peer).collect();
    format!(
        "[[ipcp]]\nname = \"{dif}\"\ntype = \"udp\"\ndif = \"{dif}\"\nlisten = \"{own}\"\n\
         sdu_max = 1400\npeers = [{}]\n",
        peers.join(", ")
    )
}

fn membership(role: &str, over: &str, own: &str) -> String {
    // A member is lost after four intervals, well before a flow fails after 30 seconds.
    let config = match role {
        "create" => "[dif.config]\nkeepalive_ms = 3000\n",
        _ => "",
    };
    format!(
        "[[dif]]\nname = \"net\"\nrole = \"{role}\"\nover = [{over}]\nipcp = \"{own}\"\n{config}"
    )
}

/// ```text
///        left: killed
///   a <                > b
///        right
/// ```
struct Diamond {
    a: House,
    b: House,
    /// The relay that stays.
    _right: House,
    left: Relay,
}

impl Diamond {
    fn new() -> Diamond {
        let [left_a, left, left_b, right_a, right, right_b] = addresses();
        let right_node = House::new(
            "relay-right",
            &(shim("right", right, &[]) + &membership("create", "\"right\"", "net.right")),
        );
        enrolled(&right_node, "net.right");
        let end = |name: &str, on_left, on_right| {
            let toml = shim("right", on_right, &[("net", right), ("net.right", right)])
                + &shim("left", on_left, &[("net", left), ("net.left", left)])
                + &membership("join", "\"right\", \"left\"", name);
            let house = House::new(&format!("relay-{name}"), &toml);
            enrolled(&house, name);
            house
        };
        let a = end("net.a", left_a, right_a);
        let mut relay = Relay {
            scratch: Scratch::new("relay-left"),
            toml: shim(
                "left",
                left,
                &[("net", left_a), ("net.a", left_a), ("net.b", left_b)],
            ) + &membership("join", "\"left\"", "net.left"),
            child: None,
        };
        relay.start();
        let b = end("net.b", left_b, right_b);
        let diamond = Diamond {
            a,
            b,
            _right: right_node,
            left: relay,
        };
        diamond.has_neighbours(&["net.left", "net.right"]);
        diamond
    }

    /// Checks that both ends have these neighbours, and a route to each other.
    fn has_neighbours(&self, wanted: &[&str]) {
        for (house, own, other) in [(&self.a, "net.a", "net.b"), (&self.b, "net.b", "net.a")] {
            eventually_or(&format!("{own} has {wanted:?}"), || {
                let mut found = member(house, own).neighbours;
                found.sort_by(|x, y| x.as_str().cmp(y.as_str()));
                let is_right = found
                    .iter()
                    .map(|name| name.as_str())
                    .eq(wanted.iter().copied());
                is_right
                    .then_some(())
                    .ok_or(format!("{:?}", ipcp(house, own)))
            });
            routed(house, "net", other);
        }
    }
}

fn sdu(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[n as u8; 1_000]].concat()
}

/// Enough flows for some to cross the relay that dies.
const FLOWS: usize = 8;
const COUNT: u32 = 1_500;

#[test]
fn flows_survive_the_death_of_a_relay_that_then_comes_back() {
    let mut diamond = Diamond::new();
    let server = diamond.b.conn();
    server.register("sink", Some("net")).unwrap();
    eventually("the name is known", || {
        let difs = diamond.a.control().difs().unwrap();
        let net = difs.into_iter().find(|found| found.name == dif("net"));
        net.is_some_and(|net| net.names.contains(&app("sink")))
    });
    let mut flows = Vec::new();
    for _ in 0..FLOWS {
        let caller = diamond.a.conn();
        caller.ask_with("sink", Some("net"), FlowSpec::reliable(), Mode::Ring);
        server.accept(server.flow_request().request, Mode::Ring);
        flows.push((server.flow(), caller.flow()));
    }
    let relayed = |client: &Client| {
        let objects = client.rib(Some("net"), None, "/counters", 0).unwrap();
        objects[0].fields["pdus-relayed"].as_u64().unwrap()
    };
    for n in 0..COUNT {
        for (_, mine) in &mut flows {
            mine.send_patiently(&sdu(n));
        }
        if n == COUNT / 3 {
            let control = Client::new(diamond.left.scratch.run_dir().control_sock());
            assert!(relayed(&control) > 0, "some flows go over it");
            diamond.left.kill();
        }
        for (theirs, _) in &mut flows {
            assert_eq!(theirs.recv_whole().unwrap(), sdu(n), "SDU {n}");
        }
    }
    diamond.has_neighbours(&["net.right"]);
    let events = diamond
        .a
        .control()
        .events(0, Duration::ZERO)
        .unwrap()
        .events;
    let lost = events
        .iter()
        .filter(|event| event.kind == EventKind::NeighbourDown);
    let lost: Vec<&str> = lost.map(|event| event.detail.as_str()).collect();
    // One event for each N-1 flow to the relay, and none for another member.
    assert!(!lost.is_empty(), "its loss is told");
    assert!(
        lost.iter().all(|what| what.starts_with("net.left")),
        "{lost:?}"
    );
    diamond.left.start();
    diamond.has_neighbours(&["net.left", "net.right"]);
    for (theirs, mine) in &mut flows {
        theirs.send(b"back");
        assert_eq!(mine.recv().unwrap(), b"back");
    }
}
