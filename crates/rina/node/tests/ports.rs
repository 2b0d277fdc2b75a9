//! UDP in rlite's framing: the source and destination ports of flows.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::UdpSocket;

use carina_api::FlowSpec;
use carina_api::control::LinkState;
use carina_api::ipc::Mode;

use crate::support::*;

fn wait_for(house: &House, state: LinkState) {
    eventually("the state of the link", || {
        let ipcps = house.control().ipcps().unwrap();
        let found = ipcps.iter().find(|ipcp| ipcp.name.as_str() == "e");
        found.is_some_and(|ipcp| ipcp.state == state)
    });
}

#[test]
fn bare_datagrams_are_answered_from_another_port() {
    let door = UdpSocket::bind("127.0.0.1:0").unwrap();
    let patience = Some(PATIENCE);
    door.set_read_timeout(patience).unwrap();
    let [listen] = addresses();
    let node = House::new(
        "bare-ports",
        &format!(
            "[[ipcp]]\nname = \"e\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{listen}\"\n\
             framing = \"rlite\"\n[[ipcp.peers]]\nname = \"far\"\naddress = \"{}\"",
            door.local_addr().unwrap()
        ),
    );
    wait_for(&node, LinkState::Up);
    let mut bytes = [0; 2000];
    // Flows requested here use a source port each, although they have the same destination.
    let mut froms = Vec::new();
    for n in 0..2u8 {
        let caller = node.conn();
        caller.ask_with("far", Some("inet"), FlowSpec::unreliable(), Mode::Ring);
        let mut flow = caller.flow();
        flow.send(&[n; 10]);
        let (count, from) = door.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..count], [n; 10]);
        assert_ne!(from.port(), listen.port());
        assert!(!froms.contains(&from), "{from} twice");
        // After the answer, the flow's peer is the address that answered.
        let answering = UdpSocket::bind("127.0.0.1:0").unwrap();
        answering.set_read_timeout(patience).unwrap();
        answering.send_to(&[n + 10; 20], from).unwrap();
        assert_eq!(flow.recv().unwrap(), [n + 10; 20]);
        flow.send(&[n + 20; 30]);
        let (count, again) = answering.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..count], again), (&[n + 20; 30][..], from));
        froms.push(from);
        // The flow must stay while the next one is made.
        std::mem::forget(flow);
        std::mem::forget(caller);
    }
    // A flow requested by the peer arrives at the known port, and is answered from it.
    let server = node.register("here");
    let asking = UdpSocket::bind("127.0.0.1:0").unwrap();
    asking.set_read_timeout(patience).unwrap();
    asking.send_to(b"first", listen).unwrap();
    let request = server.flow_request();
    assert_eq!(request.remote.as_str(), "far", "the name of its address");
    server.accept(request.request, Mode::Ring);
    let mut flow = server.flow();
    assert_eq!(flow.recv().unwrap(), b"first");
    flow.send(b"answer");
    let (count, from) = asking.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..count], from), (&b"answer"[..], listen));
}
