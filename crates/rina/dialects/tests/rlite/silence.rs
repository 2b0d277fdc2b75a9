//! A peer that discards M_CONNECT because it believes this IPCP to be connected, as rlite does on
//! an N-1 flow that it has requested itself.

use carina_cdap::{Message, Opcode};
use carina_ipcp::Command;

use crate::rlite::by_hand::{connected, says};
use crate::rlite::crossing::Peer;
use crate::rlite::enrollment::is_up;
use crate::rlite::net::{MS, Net, SECOND, line, props};

/// Opcodes of the messages that the peer has received since the last call.
fn heard(peer: &Peer, net: &mut Net) -> Vec<Opcode> {
    let messages = peer.messages(net).into_iter();
    messages.map(|message| message.opcode).collect()
}

fn keepalive(invoke_id: i32) -> Message {
    says(Opcode::Read, "keepalive", "/mgmt/keepalive", invoke_id)
}

#[test]
fn connect_without_an_answer_is_followed_by_release() {
    let mut net = Net::new(71);
    net.add("b");
    let peer = Peer::new(&mut net, "a", "b");
    assert_eq!(heard(&peer, &mut net), [Opcode::Connect]);
    net.run(2_400 * MS);
    assert_eq!(heard(&peer, &mut net), []);
    net.run(200 * MS);
    let release = peer.messages(&mut net);
    assert_eq!(release.len(), 1);
    assert_eq!(
        (release[0].opcode, release[0].version),
        (Opcode::Release, 1)
    );
    assert_ne!(release[0].invoke_id, 0, "rlite wants one");
    // The peer's kernel needs 4 s to forget the N-1 flow.
    net.run(4_300 * MS);
    assert_eq!(heard(&peer, &mut net), []);
    net.run(200 * MS);
    assert_eq!(heard(&peer, &mut net), [Opcode::Connect]);
    assert_eq!(net.failures("b"), Vec::<String>::new());
    peer.says(&mut net, &connected("a"));
    assert_eq!(heard(&peer, &mut net), [Opcode::Start]);
}

#[test]
fn request_of_an_earlier_connection_is_answered_with_release() {
    let mut net = Net::new(72);
    net.add("b");
    let peer = Peer::new(&mut net, "a", "b");
    net.run(500 * MS);
    assert_eq!(heard(&peer, &mut net), [Opcode::Connect]);
    // The request may have been sent before M_CONNECT arrived.
    peer.says(&mut net, &keepalive(40));
    assert_eq!(heard(&peer, &mut net), []);
    net.run(SECOND);
    peer.says(&mut net, &keepalive(41));
    assert_eq!(heard(&peer, &mut net), [Opcode::Release]);
    // One M_RELEASE answers all requests.
    peer.says(&mut net, &keepalive(42));
    assert_eq!(heard(&peer, &mut net), []);
    net.run(4_600 * MS);
    assert_eq!(heard(&peer, &mut net), [Opcode::Connect]);
    // PDUs of the peer arrived: it runs, and its PDUs are readable.
    net.run(3 * SECOND);
    let failures = net.failures("b").concat();
    assert!(failures.contains("the peer runs"), "{failures}");
    assert!(!failures.contains("widths"), "{failures}");
}

#[test]
fn member_that_lost_its_n1_flow_is_a_neighbour_again_soon() {
    // The peer has noticed nothing: it discards M_CONNECT until it is released.
    let mut net = line(73, &["m", "b"]);
    let peer = Peer::new(&mut net, "r", "b");
    let n1 = net.wires[1].ends[0].1;
    peer.says(&mut net, &connected("r"));
    peer.says(
        &mut net,
        &says(Opcode::StartR, "enrollment", "/mgmt/enrollment", 3),
    );
    let reason = "the interface is down".to_string();
    net.order("b", Command::N1Down { n1, reason });
    let props = props("r", true);
    net.order("b", Command::N1Up { n1, props });
    peer.messages(&mut net);
    net.run(SECOND);
    peer.says(&mut net, &keepalive(40));
    net.run(4_600 * MS);
    assert_eq!(heard(&peer, &mut net), [Opcode::Release, Opcode::Connect]);
    assert!(is_up(&net, "b", "m"));
}

#[test]
fn peer_that_asked_for_the_n1_flow_is_not_released() {
    // rlite does not return to a neighbour that has released it.
    let mut net = Net::new(74);
    net.bootstrap("b");
    let peer = Peer::asking(&mut net, "r", "b");
    peer.says(&mut net, &keepalive(40));
    assert_eq!(heard(&peer, &mut net), []);
    assert_eq!(net.count("b", "cdap-state"), 1);
}
