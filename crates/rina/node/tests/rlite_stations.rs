//! A station that behaves like rlite's Ethernet shim: it resolves a name once and never again. So
//! the first frame that it sends to a node that has restarted is an M_CONNECT.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::Duration;

use carina_api::control::{DifCreate, EventKind, LinkState};
use carina_api::ipc::Mode;
use carina_cdap::{Message, Opcode, Party, Rules};
use carina_engine::counters::Value;
use carina_netdev::Interface;
use carina_wire::arp::{Arp, Operation};
use carina_wire::dif::{Address, CepId, Dialect, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax};
use carina_wire::ether::Mac;
use serde_json::json;

use crate::room::Room;
use crate::support::networks::{Station, counted, wait_for};
use crate::support::*;

const ARP: u16 = 0x0806;
const RINA: u16 = 0xd1f0;

/// A node with the shim DIF `lan`, and an rlite station on the same Ethernet.
struct Wire {
    house: House,
    station: Station,
    /// MAC address of the node.
    node: Mac,
    invoke_id: i32,
    rooms: [Room; 2],
}

impl Wire {
    fn new(name: &'static str) -> Option<Wire> {
        let rooms = [Room::new()?, Room::new()?];
        rooms[0].join("va", &rooms[1], "vb", 1500);
        let mac = rooms[0].run(|| Interface::named("va").unwrap().mac);
        Some(Wire {
            house: node(&rooms[0], name),
            station: Station::new(&rooms[1], "vb"),
            node: Mac(mac),
            invoke_id: 1,
            rooms,
        })
    }

    /// Stops the node and starts another one.
    fn restart(&mut self, name: &'static str) {
        self.house.node.take();
        self.house = node(&self.rooms[0], name);
    }

    /// Makes the first member of an rlite DIF, and waits until the shim answers for its name.
    fn create(&mut self, ipcp: &str) {
        create(&self.house, "lan", ipcp);
        self.serves(ipcp);
    }

    fn leave(&self, ipcp: &str) {
        self.house.control().destroy_ipcp(ipcp).unwrap();
    }

    /// Waits until the node answers for a name. The query comes from another station than the one
    /// that is tested.
    fn serves(&mut self, name: &str) {
        let own = std::mem::replace(&mut self.station.mac, Mac([2, 0, 0, 0, 0, 77]));
        eventually("the node answers for the name", || {
            self.ask("probe", name);
            let short = Duration::from_millis(100);
            self.station.receive_within(ARP, short).is_some()
        });
        self.station.mac = own;
        while self.station.receive_within(ARP, Duration::ZERO).is_some() {}
    }

    /// Sends an ARP request.
    fn ask(&mut self, caller: &str, called: &str) {
        let arp = Arp {
            operation: Operation::Request,
            sender_mac: self.station.mac,
            sender: caller,
            target_mac: Mac::ZERO,
            target: called,
        };
        self.station
            .send(Mac::BROADCAST, ARP, &arp.encode().unwrap());
    }

    /// Resolves a name, as a station does before the first flow.
    fn resolve(&mut self, caller: &str, called: &str) {
        self.ask(caller, called);
        let reply = self.station.receive(ARP);
        assert_eq!(Arp::decode(&reply).unwrap().sender, called);
    }

    /// Sends the keep-alive that a peer sends every 20 s if it believes to be a neighbour.
    fn keep_alive(&mut self) {
        self.station.send(self.node, RINA, &pdu_of(&keep_alive()));
    }

    /// Sends M_CONNECT once. Returns the result and the reason of the answer; `None` when no answer
    /// arrives within the time that rlite waits.
    fn connect(&mut self, calling: &str, called: &str) -> Option<(i32, String)> {
        self.invoke_id += 1;
        let message = connect(self.invoke_id, calling, called);
        self.station.send(self.node, RINA, &pdu_of(&message));
        while let Some(pdu) = self.station.receive_within(RINA, RLITE_WAITS) {
            let answer = message_in(&pdu);
            if answer.opcode == Opcode::ConnectR && answer.invoke_id == self.invoke_id {
                return Some((answer.result, answer.reason));
            }
        }
        None
    }

    /// The peers of the N-1 flows at the node, sorted.
    fn flows(&self) -> Vec<String> {
        let flows = self.house.control().flows().unwrap();
        flows
            .into_iter()
            .map(|flow| flow.remote.to_string())
            .collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The threads of the node live in the namespace, so the node stops first.
        self.house.node.take();
    }
}

fn create(house: &House, over: &str, ipcp: &str) {
    let create = json!({"name": "n.DIF", "role": "create", "over": [over], "ipcp": ipcp,
                        "dialect": "rlite"});
    let create: DifCreate = serde_json::from_value(create).unwrap();
    house.control().create_dif(&create).unwrap();
}

fn node(room: &Room, name: &'static str) -> House {
    let house = room.run(move || {
        let toml = "[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"lan\"\ninterface = \"va\"\n\
                    arp = \"rlite\"";
        House::new(name, toml)
    });
    wait_for(&house, LinkState::Up);
    house
}

/// A management PDU to the neighbour.
fn pdu_of(message: &Message) -> Vec<u8> {
    let payload = Rules::RLITE.encode(message);
    let pci = Pci {
        kind: PduType::Management,
        dst: Address::NONE,
        src: Address(1),
        qos: QosId(0),
        dst_cep: CepId(0),
        src_cep: CepId(0),
        drf: false,
        ecn: false,
        seq: 0,
    };
    let mut pdu = [0; PCI_BYTES_MAX];
    let syntax = Syntax::of_dialect(Dialect::Rlite);
    let count = syntax.encode(&pci, None, payload.len(), 64, &mut pdu);
    [&pdu[..count.unwrap()], &payload].concat()
}

/// The message in a management PDU.
fn message_in(pdu: &[u8]) -> Message {
    let syntax = Syntax::of_dialect(Dialect::Rlite);
    let header = syntax.decode(pdu, pdu.len()).unwrap();
    let message = &pdu[header.header_bytes..header.pdu_bytes];
    Rules::RLITE.decode(message).unwrap()
}

fn keep_alive() -> Message {
    let mut message = Message::object(Opcode::Read, "keepalive", "/mgmt/keepalive");
    (message.invoke_id, message.version) = (13, 1);
    message
}

fn connect(invoke_id: i32, calling: &str, called: &str) -> Message {
    let party = |name: &str| Party {
        ap: name.to_owned(),
        ..Party::default()
    };
    let mut message = Message::connect(party(calling), party(called));
    message.invoke_id = invoke_id;
    message.abstract_syntax = Rules::RLITE.abstract_syntax;
    message.version = Rules::RLITE.version;
    message
}

/// Sends M_CONNECT over UDP once. Returns true when it is accepted in time.
fn connects(peer: &UdpSocket, invoke_id: i32, within: Duration) -> bool {
    peer.set_read_timeout(Some(within)).unwrap();
    let message = connect(invoke_id, "b.IPCP", "m.IPCP");
    peer.send(&pdu_of(&message)).unwrap();
    let mut datagram = [0; 2048];
    while let Ok(bytes) = peer.recv(&mut datagram) {
        let answer = message_in(&datagram[..bytes]);
        if answer.opcode == Opcode::ConnectR && answer.invoke_id == invoke_id {
            assert_eq!((answer.result, answer.reason.as_str()), (0, ""));
            return true;
        }
    }
    false
}

/// How long rlite waits for M_CONNECT_R.
const RLITE_WAITS: Duration = Duration::from_secs(7);

const ACCEPTED: Option<(i32, String)> = Some((0, String::new()));

#[test]
fn a_station_that_asks_no_more_connects_after_a_restart() {
    let Some(mut wire) = Wire::new("rst-1") else {
        return;
    };
    wire.create("m.IPCP");
    wire.resolve("b.IPCP", "m.IPCP");
    assert_eq!(wire.connect("b.IPCP", "m.IPCP"), ACCEPTED);
    wire.restart("rst-1b");
    // This name sorts before that of the IPCP, and is registered in all DIFs.
    let app = wire.house.register("an.app");
    wire.create("m.IPCP");
    // The peer has not detected the restart.
    wire.keep_alive();
    eventually("what belongs to the former life is counted", || {
        counted(&wire.house, Value::DropUnknownChannel) >= 1
    });
    assert_eq!(wire.connect("b.IPCP", "m.IPCP"), ACCEPTED);
    assert_eq!(wire.flows(), ["b.IPCP"]);
    assert!(!readable(&app.0, 0), "the application has a flow request");
}

#[test]
fn connect_ends_the_wait_for_late_frames() {
    let Some(mut wire) = Wire::new("rst-2") else {
        return;
    };
    wire.create("a.IPCP");
    wire.resolve("b.IPCP", "a.IPCP");
    assert_eq!(wire.connect("b.IPCP", "a.IPCP"), ACCEPTED);
    wire.leave("a.IPCP");
    wire.create("a.IPCP");
    wire.keep_alive();
    eventually("a late frame is counted", || {
        counted(&wire.house, Value::DropFlowEnded) >= 1
    });
    assert_eq!(wire.connect("b.IPCP", "a.IPCP"), ACCEPTED);
    assert_eq!(wire.flows(), ["b.IPCP"]);
}

#[test]
fn a_refused_connect_frees_the_flow_of_its_station() {
    let Some(mut wire) = Wire::new("rst-3") else {
        return;
    };
    wire.create("a.IPCP");
    wire.resolve("b.IPCP", "a.IPCP");
    assert_eq!(wire.connect("b.IPCP", "a.IPCP"), ACCEPTED);
    // The peer's IPCP was created again with another name, but the flow still has the old one.
    let (result, reason) = wire.connect("c.IPCP", "a.IPCP").unwrap();
    assert_eq!(result, -1);
    assert!(
        reason.contains("b.IPCP") && reason.contains("c.IPCP"),
        "{reason}"
    );
    eventually("the flow is free", || wire.flows().is_empty());
    // The manager knows of the end a moment before the shim, which drops frames in between.
    eventually("the station connects again", || {
        let answer = wire.connect("c.IPCP", "a.IPCP");
        assert!(answer.is_none() || answer == ACCEPTED, "{answer:?}");
        answer.is_some()
    });
    assert_eq!(wire.flows(), ["c.IPCP"]);
}

#[test]
fn an_arp_request_replaces_the_flow_of_an_unnamed_station() {
    let Some(mut wire) = Wire::new("rst-4") else {
        return;
    };
    let server = wire.house.register("echo");
    wire.serves("echo");
    let node = wire.node;
    wire.station.send(node, RINA, b"who am I?");
    let request = server.flow_request();
    assert!(request.remote.as_str().starts_with("station "));
    server.accept(request.request, Mode::Ring);
    let mut guessed = server.flow();
    assert_eq!(guessed.recv().unwrap()[..9], *b"who am I?");
    wire.resolve("caller", "echo");
    let (reason, graceful) = guessed.notice().unwrap();
    assert!(graceful && reason.contains("restarted"), "{reason}");
    wire.station.send(node, RINA, b"first");
    let request = server.flow_request();
    assert_eq!(request.remote.as_str(), "caller");
}

#[test]
fn a_guessed_flow_is_replaced_by_the_flow_of_an_ipcp() {
    let Some(mut wire) = Wire::new("rst-5") else {
        return;
    };
    let server = wire.house.register("echo");
    wire.serves("echo");
    // Between the restart of the node and the creation of its IPCP.
    wire.keep_alive();
    let request = server.flow_request();
    server.accept(request.request, Mode::Ring);
    let guessed = server.flow();
    wire.create("a.IPCP");
    let (reason, graceful) = guessed.notice().unwrap();
    assert!(graceful && reason.contains("IPCP"), "{reason}");
    assert_eq!(wire.connect("b.IPCP", "a.IPCP"), ACCEPTED);
    let events = wire.house.control().events(0, Duration::ZERO).unwrap();
    let allocated = events
        .events
        .iter()
        .filter(|event| event.kind == EventKind::FlowAllocated);
    assert_eq!(allocated.count(), 2);
}

#[test]
fn connect_over_udp_finds_its_ipcp_and_ends_the_wait() {
    let [node, ours] = addresses();
    let toml = format!(
        "[[ipcp]]\nname = \"e\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{node}\"\n\
         framing = \"rlite\"\npeers = [{{ name = \"b.IPCP\", address = \"{ours}\" }}]"
    );
    let house = House::new("rst-udp", &toml);
    wait_for(&house, LinkState::Up);
    let app = house.register("an.app");
    let [peer, probe] = [(); 2].map(|()| {
        let socket = UdpSocket::bind((ours.ip(), 0)).unwrap();
        socket.connect(node).unwrap();
        socket
    });
    let serves = |from: i32| {
        let mut ids = from..;
        eventually("the member is served", || {
            connects(&probe, ids.next().unwrap(), Duration::from_millis(100))
        });
    };
    // Before the member exists.
    peer.send(&pdu_of(&keep_alive())).unwrap();
    assert_eq!(app.flow_request().remote.as_str(), "b.IPCP");
    create(&house, "inet", "m.IPCP");
    serves(100);
    while readable(&app.0, 0) {
        app.flow_request();
    }
    assert!(connects(&peer, 2, RLITE_WAITS));
    house.control().destroy_ipcp("m.IPCP").unwrap();
    create(&house, "inet", "m.IPCP");
    peer.send(&pdu_of(&keep_alive())).unwrap();
    eventually("a late datagram is counted", || {
        counted(&house, Value::DropFlowEnded) >= 1
    });
    serves(10_000);
    assert!(connects(&peer, 3, RLITE_WAITS));
    let remotes = house.control().flows().unwrap();
    assert!(remotes.iter().all(|flow| flow.local.as_str() == "m.IPCP"));
}
