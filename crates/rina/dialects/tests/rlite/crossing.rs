//! M_CONNECTs that cross on one N-1 flow. The peer behaves like rlite: while it waits for the
//! answer to its own M_CONNECT, it discards what it receives.

use carina_cdap::{Message, Opcode, Party};
use carina_ipcp::{Command, N1Port};
use carina_wire::Bytes;

use crate::rlite::enrollment::{cdap, is_up};
use crate::rlite::net::{Kind, MS, Net, SECOND, line, pdu_of};

/// The other end of an N-1 flow, played by the test.
pub(super) struct Peer {
    name: &'static str,
    wire: usize,
    /// The peer's source address in the PCI.
    pub source: u64,
}

impl Peer {
    /// Adds a wire to a peer that the test plays: PDUs to it wait until the test reads them.
    pub(super) fn new(net: &mut Net, name: &'static str, of: &str) -> Peer {
        let wire = net.wire_with(of, name, 1452, Kind::BothAsk);
        let source = 1;
        Peer { name, wire, source }
    }

    /// Like [`Peer::new`], where the peer has requested the N-1 flow.
    pub(super) fn asking(net: &mut Net, name: &'static str, of: &str) -> Peer {
        let wire = net.wire(name, of);
        net.wires[wire].ends.reverse();
        let source = 1;
        Peer { name, wire, source }
    }

    pub(super) fn says(&self, net: &mut Net, message: &Message) {
        let (to, n1): (String, N1Port) = net.wires[self.wire].ends[0].clone();
        let now = net.now;
        let pdu = Bytes::from(pdu_of(message, self.source));
        net.member(&to).on_pdu(now, n1, pdu);
        net.pump(&to);
    }

    /// The peer's M_CONNECT to `to`.
    pub(super) fn connect(&self, to: &str) -> Message {
        Message {
            invoke_id: 2,
            abstract_syntax: 73,
            version: 1,
            ..Message::connect(Party::of(self.name), Party::of(to))
        }
    }

    /// Opcodes and results of the messages that the peer has received since the last call.
    fn heard(&self, net: &mut Net) -> Vec<(Opcode, i32)> {
        let messages = self.messages(net).into_iter();
        messages
            .map(|message| (message.opcode, message.result))
            .collect()
    }

    /// The messages that the peer has received since the last call.
    pub(super) fn messages(&self, net: &mut Net) -> Vec<Message> {
        let sent = net.take_sent(self.wire, 0);
        sent.iter().filter_map(|pdu| cdap(pdu)).collect()
    }
}

#[test]
fn joiner_that_discards_is_answered_within_a_second() {
    for name in ["a", "z"] {
        let mut net = Net::new(31);
        net.bootstrap("m");
        let peer = Peer::new(&mut net, name, "m");
        assert_eq!(peer.heard(&mut net), [(Opcode::Connect, 0)]);
        let connect = peer.connect("m");
        peer.says(&mut net, &connect);
        net.run(1_100 * MS);
        assert_eq!(peer.heard(&mut net), [(Opcode::ConnectR, 0)], "{name}");
        net.run(SECOND);
        assert!(peer.heard(&mut net).is_empty(), "{name}");
    }
}

#[test]
fn joiner_asks_again_soon_when_a_member_has_discarded() {
    for name in ["a", "z"] {
        let mut net = Net::new(32);
        net.add("m");
        let peer = Peer::new(&mut net, name, "m");
        assert_eq!(peer.heard(&mut net), [(Opcode::Connect, 0)]);
        let connect = peer.connect("m");
        peer.says(&mut net, &connect);
        // The refusal ends the peer's wait; it answers what arrives after that.
        assert_eq!(peer.heard(&mut net), [(Opcode::ConnectR, -1)], "{name}");
        net.run(600 * MS);
        assert_eq!(peer.heard(&mut net), [(Opcode::Connect, 0)], "{name}");
        let mut answer = peer.connect("m").answer();
        answer.src = Party::of(name);
        peer.says(&mut net, &answer);
        assert_eq!(peer.heard(&mut net), [(Opcode::Start, 0)], "{name}");
    }
}

#[test]
fn refusal_of_one_attempt_lets_the_other_in_at_once() {
    let mut net = Net::new(33);
    net.bootstrap("m");
    let peer = Peer::new(&mut net, "z", "m");
    let connect = peer.connect("m");
    peer.says(&mut net, &connect);
    peer.heard(&mut net);
    let mut refusal = peer.connect("m").answer().with_error(-1, "no member");
    refusal.src = Party::of("z");
    peer.says(&mut net, &refusal);
    assert_eq!(peer.heard(&mut net), [(Opcode::ConnectR, 0)]);
}

#[test]
fn members_and_joiners_that_cross_are_neighbours_at_once() {
    for (seed, name) in [(34, "a"), (35, "z")] {
        let mut net = Net::new(seed);
        net.bootstrap("m");
        net.add(name);
        net.wire_with("m", name, 1452, Kind::BothAsk);
        net.run(100 * MS);
        assert!(
            is_up(&net, "m", name) && is_up(&net, name, "m"),
            "{name}: {:?}",
            net.events
        );
        let mut net = line(seed, &["m", "n", name]);
        net.wire_with("m", name, 1452, Kind::BothAsk);
        net.run(100 * MS);
        assert!(is_up(&net, "m", name) && is_up(&net, name, "m"), "{name}");
        net.order("m", Command::Leave);
        net.run(SECOND);
        assert!(!is_up(&net, name, "m"), "{name}");
    }
}
