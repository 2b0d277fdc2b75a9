//! Tests the UDP shim with a peer that the test itself implements, datagram by datagram.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::net::UdpSocket;

use carina_api::PortId;
use carina_dataplane::{Command, DataPlane, Event, FlowEnd};
use carina_engine::counters::Table;
use carina_shims::{UdpConfig, UdpFraming};

use crate::pair::{IPCP, PATIENCE, RING, name, ring, wait_for};

/// A data plane with a UDP shim where `one` and `two` are registered, and a peer.
fn plane_and_peer() -> (DataPlane, UdpSocket) {
    let plane = DataPlane::spawn(Table::private().unwrap()).unwrap();
    let peer = shim_and_peer(&plane, &["one", "two"]);
    (plane, peer)
}

/// Adds a UDP shim with these registered applications. Returns a peer.
pub(crate) fn shim_and_peer(plane: &DataPlane, apps: &[&str]) -> UdpSocket {
    let config = UdpConfig::new("127.0.0.1:0".parse().unwrap(), UdpFraming::Native);
    let (medium, _) = config.open().unwrap();
    plane.add_ipcp(IPCP, medium);
    let address = wait_for(plane, |event| match event {
        Event::LinkUp { peer, .. } => Some(peer.clone()),
        _ => None,
    });
    for app in apps {
        let name = name(app);
        plane.send(Command::Register {
            ipcp: IPCP,
            name,
            reader: None,
        });
        // A request that arrives before the registration is complete is refused.
        wait_for(plane, |event| match event {
            Event::Registered { name, .. } => (name.as_str() == *app).then_some(()),
            _ => None,
        });
    }
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.connect(address).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

/// Requests a flow to `called` with this number of the peer.
pub(crate) fn request(peer: &UdpSocket, number: u8, called: &str) {
    let mut datagram = vec![1, 1, 0, 0, 0, number];
    for text in ["caller", called] {
        datagram.push(text.len() as u8);
        datagram.extend(text.as_bytes());
    }
    peer.send(&datagram).unwrap();
}

/// Kind of the next datagram, and the peer's flow number in it.
fn answer(peer: &UdpSocket) -> (u8, u8) {
    let datagram = receive(peer);
    (datagram[0], datagram[3])
}

pub(crate) fn receive(peer: &UdpSocket) -> Vec<u8> {
    let mut datagram = vec![0; 512];
    let bytes = peer.recv(&mut datagram).unwrap();
    assert!(bytes >= 4);
    datagram.truncate(bytes);
    datagram
}

pub(crate) fn offered(plane: &DataPlane, called: &str) -> PortId {
    wait_for(plane, |event| match event {
        Event::IncomingFlow { port, local, .. } if local.as_str() == called => Some(*port),
        _ => None,
    })
}

pub(crate) fn accept(plane: &DataPlane, port: PortId, end: FlowEnd) {
    let answer = Ok(end);
    plane.send(Command::Respond { port, answer });
}

const ACCEPT: u8 = 2;
const REFUSE: u8 = 3;

#[test]
fn a_peer_that_has_started_anew_gets_the_flow_that_it_asks_for() {
    let (plane, peer) = plane_and_peer();
    request(&peer, 1, "one");
    let (port, (end, _app)) = (offered(&plane, "one"), ring(RING));
    accept(&plane, port, end);
    assert_eq!(answer(&peer), (ACCEPT, 1));
    // A repeated request gets the same answer.
    request(&peer, 1, "one");
    assert_eq!(answer(&peer), (ACCEPT, 1));
    // A request with the same number for another application shows that the peer has restarted.
    request(&peer, 1, "two");
    let closed = wait_for(&plane, |event| match event {
        Event::FlowClosed { port, reason } => Some((*port, reason.clone())),
        _ => None,
    });
    assert_eq!(closed, (port, "caller has restarted".to_owned()));
}

#[test]
fn a_refusal_is_for_the_application_that_was_asked_for() {
    let (plane, peer) = plane_and_peer();
    request(&peer, 1, "one");
    let refusal = Command::Respond {
        port: offered(&plane, "one"),
        answer: Err("not now".to_owned()),
    };
    plane.send(refusal);
    assert_eq!(answer(&peer), (REFUSE, 1));
    request(&peer, 1, "one");
    assert_eq!(answer(&peer), (REFUSE, 1));
    request(&peer, 1, "two");
    offered(&plane, "two");
}

#[test]
fn flows_of_another_life_have_other_numbers() {
    let number = || {
        let (plane, peer) = plane_and_peer();
        request(&peer, 1, "one");
        let (port, (end, _app)) = (offered(&plane, "one"), ring(RING));
        accept(&plane, port, end);
        let accepted = receive(&peer);
        [accepted[4], accepted[5]]
    };
    let numbers = [number(), number(), number()];
    assert!(
        numbers.iter().any(|number| *number != numbers[0]),
        "{numbers:?}"
    );
}
