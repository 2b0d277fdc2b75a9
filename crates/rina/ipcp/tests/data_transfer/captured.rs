//! Captured exchanges between two systems of rlite or IRATI; Carina takes the place of one of them.

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, Target, TransferEvent};
use carina_ipcp::{Catalogue, DataPath, DifConfig, QosCube};
use carina_time::Instant;
use carina_wire::dif::{Address, CepId, Dialect};
use carina_wire::{Bytes, Payload};

use crate::data_transfer::net::{MS, props};

const N1: N1Port = N1Port(0);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex"))
        .collect()
}

/// A member with a neighbour behind N-1 flow 0. The test passes PDUs by hand.
struct Member {
    transfer: DataPath<Bytes>,
    config: DifConfig,
    now: Instant,
}

impl Member {
    fn new(dialect: Dialect, own: u64, peer: u64) -> Member {
        let config = DifConfig::of_dialect(dialect);
        let mut transfer = DataPath::of_dialect(Catalogue::standard(), dialect, 5);
        transfer
            .configure(Instant::ZERO, &config)
            .expect("the defaults");
        transfer.set_address(Address(own));
        transfer.add_n1(N1, &props());
        transfer.set_neighbour(Instant::ZERO, Address(peer), &[N1]);
        Member {
            transfer,
            config,
            now: Instant::from_millis(1),
        }
    }

    fn cube(&self, id: u16) -> QosCube {
        let cubes = &self.config.cubes;
        cubes
            .iter()
            .find(|cube| cube.id == id)
            .cloned()
            .expect("a cube")
    }

    /// Opens a flow whose local CEP-id is `cep`.
    fn flow(&mut self, cube: u16, cep: u32, peer: (u64, u32)) {
        let cube = self.cube(cube);
        for key in 1..=cep {
            let open = Open {
                owner: Owner::Flow(FlowKey(key)),
                cube: cube.clone(),
                msg_boundaries: true,
                pinned: None,
            };
            let given = self.transfer.open(self.now, open).expect("a connection");
            assert_eq!(given, CepId(key));
        }
        let (address, remote) = (Address(peer.0), CepId(peer.1));
        self.transfer.connect(self.now, CepId(cep), address, remote);
    }

    /// Passes a PDU of the other side to the member, padded as Ethernet does.
    fn hear(&mut self, hex: &str) {
        let mut pdu = bytes(hex);
        pdu.resize(pdu.len().max(46), 0);
        self.transfer.on_pdu(self.now, N1, Bytes::from(pdu));
    }

    fn write(&mut self, key: u32, sdu: &[u8]) {
        let sdu = Bytes::from(sdu.to_vec());
        self.transfer.on_sdu(self.now, FlowKey(key), sdu, false);
    }

    /// The PDUs that the member sends.
    fn says(&mut self) -> Vec<Vec<u8>> {
        self.transfer.end_of_burst(self.now);
        let mut pdus = Vec::new();
        while let Some(n1) = self.transfer.poll_n1() {
            if let Some(pdu) = self.transfer.take_transmit(self.now, n1) {
                pdus.push(pdu.as_slice().to_vec());
            }
        }
        pdus
    }

    fn reads(&mut self) -> Vec<usize> {
        self.transfer.end_of_burst(self.now);
        let deliveries = std::iter::from_fn(|| self.transfer.poll_deliver());
        deliveries.map(|delivery| delivery.sdu.len()).collect()
    }
}

/// The flow with gap 0 of `rina-echo-async` over UDP; its CEP-id is 2 at both ends.
#[test]
fn a_reliable_flow_of_rlite_goes_as_it_went() {
    let mut member = Member::new(Dialect::Rlite, 1, 3);
    member.flow(2, 2, (3, 2));
    member.hear(
        "008080000000400000000000010000000300000002000200300000000300000000000000000000000000000002 \
         000000",
    );
    assert_eq!(member.reads(), [20]);
    let ack = "00cc0000000040000000000003000000010000000200020034000000 \
               000000000100000001020000010000000000000000020000";
    assert_eq!(member.says(), [bytes(ack)]);
    member.write(2, &[0, 0, 0, 0]);
    let data = "0080800000004000000000000300000001000000020002002000000000000000";
    assert_eq!(member.says(), [bytes(data)]);
    // The peer's acknowledgement, with more data: the data sent here is acknowledged now.
    member.hear(
        "00cc0000000040000000000001000000030000000200020034000000 \
         000000000100000001020000010000000000000000020000",
    );
    member.hear(
        "0080000000004000010000000100000003000000020002003000000000000000000000000400000000000000 \
         00000000",
    );
    assert_eq!(member.reads(), [20]);
    member.now += 20 * MS;
    member.transfer.handle_timeout(member.now);
    let sent = member.says();
    // rlite counted the window from what its reader had taken, which was one PDU less then.
    let ack = "00cc0000000040000100000003000000010000000200020034000000 \
               000000000200000002020000020000000100000001020000";
    assert_eq!(sent, [bytes(ack)]);
}

/// The best-effort flow of the capture; its CEP-id is 1 at both ends. rlite began with CEP-id 0,
/// which this end never assigns but accepts from the other end.
#[test]
fn a_best_effort_flow_of_rlite_goes_as_it_went() {
    let mut member = Member::new(Dialect::Rlite, 3, 1);
    member.flow(1, 1, (1, 0));
    member.write(1, &[7; 20]);
    member.write(1, &[0, 0]);
    let sent = member.says();
    let first = "008080000000400000000000010000000300000000000100300000 00";
    let second = "0080000000004000010000000100000003000000000001001e000000";
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0][..28], bytes(first));
    assert_eq!(sent[1][..28], bytes(second));
    member.hear("0080800000004000000000000300000001000000010000001e0000000000");
    member.hear("0080000000004000010000000300000001000000010000001e0000000100");
    assert_eq!(member.reads(), [2, 2]);
    assert!(member.says().is_empty(), "nothing is acknowledged");
    assert_eq!(member.transfer.counters().dropped_total(), 0);
}

/// Clears the author's own right edge, which depends on a random number.
fn without(mut pdu: Vec<u8>, at: usize) -> Vec<u8> {
    pdu[at..at + 4].fill(0);
    pdu
}

#[test]
fn a_flow_of_irati_with_flow_control_goes_as_it_went() {
    let mut member = Member::new(Dialect::Irati, 16, 17);
    member.flow(1, 2, (17, 2));
    let assert_answer = |member: &mut Member, seq: &str, answer: &str| {
        member.hear(&format!("011000110001000200020080801500 {seq} 0000"));
        let sent = member.says();
        assert_eq!(sent.len(), 1, "every PDU is answered");
        assert_eq!(without(sent[0].clone(), 27), without(bytes(answer), 27));
        assert_eq!(member.reads(), [2]);
    };
    let fc = "0111001000010002000200c4002700 01000000 b79c9a99 00000000 caa61c2a 00000000 00000000";
    assert_answer(&mut member, "859c9a99", fc);
    let fc = "0111001000010002000200c4002700 02000000 b89c9a99 00000000 caa61c2a 00000000 00000000";
    assert_answer(&mut member, "869c9a99", fc);
    // Sends a PDU, whose answer tells the window.
    member.write(2, &[0, 0]);
    let own = member.says();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0][..15], bytes("011100100001000200020080801500"));
    let first = u32::from_le_bytes([own[0][15], own[0][16], own[0][17], own[0][18]]);
    let [right, left] = [first.wrapping_add(50), first].map(u32::to_le_bytes);
    let mut fc = bytes("0110001100010002000200c4002700 01000000");
    fc.extend(right);
    fc.extend(bytes("869c9a99 b89c9a99 00000000 00000000"));
    let hex: String = fc.iter().map(|byte| format!("{byte:02x}")).collect();
    member.hear(&hex);
    let mut answer = bytes("0111001000010002000200c4002700 03000000 b99c9a99");
    answer.extend(left);
    answer.extend(right);
    answer.extend([0; 8]);
    member.hear("011000110001000200020080801500 879c9a99 0100");
    assert_eq!(member.says(), [answer]);
    assert_eq!(member.transfer.counters().dropped_total(), 0);
}

#[test]
fn a_reliable_flow_of_irati_goes_as_it_went() {
    let mut member = Member::new(Dialect::Irati, 16, 17);
    member.flow(2, 4, (17, 4));
    let exchange = [
        (
            "011000110002000400040080801500 243c0ee7 0000",
            "0111001000020004000400c5003300 01000000 243c0ee7 00000000 243c0ee7 563c0ee7 \
             00000000 ebad457c 00000000 00000000",
        ),
        (
            "011000110002000400040080801500 253c0ee7 0000",
            "0111001000020004000400c5003300 02000000 253c0ee7 00000000 253c0ee7 573c0ee7 \
             00000000 ebad457c 00000000 00000000",
        ),
    ];
    for (heard, expected) in exchange {
        member.hear(heard);
        let sent = member.says();
        assert_eq!(sent.len(), 1);
        assert_eq!(without(sent[0].clone(), 39), without(bytes(expected), 39));
    }
    assert_eq!(member.reads(), [2, 2]);
    member.write(4, &[0, 0]);
    let own = member.says();
    assert_eq!(own[0][..15], bytes("011100100002000400040080801500"));
    let seq = [own[0][15], own[0][16], own[0][17], own[0][18]];
    let first = u32::from_le_bytes(seq);
    let right = first.wrapping_add(50).to_le_bytes();
    let mut ack = bytes("0110001100020004000400c5003300 01000000");
    ack.extend([seq, 2_u32.to_le_bytes(), seq, right].concat());
    ack.extend(bytes("263c0ee7 573c0ee7 00000000 00000000"));
    let hex: String = ack.iter().map(|byte| format!("{byte:02x}")).collect();
    member.hear(&hex);
    member.hear("011000110002000400040080801500 263c0ee7 0100");
    let mut expected = bytes("0111001000020004000400c5003300 03000000 263c0ee7 01000000 263c0ee7");
    expected.extend(bytes("583c0ee7"));
    expected.extend(first.wrapping_add(1).to_le_bytes());
    expected.extend(right);
    expected.extend([0; 8]);
    assert_eq!(member.says(), [expected]);
    assert_eq!(member.transfer.counters().dropped_total(), 0);
}

#[test]
fn management_without_address_goes_to_the_other_end() {
    let cases = [
        (
            Dialect::Rlite,
            "00400000000040000000000000000000000000000000000059000000",
        ),
        (Dialect::Irati, "010000000001000000000040005000 00000000"),
    ];
    for (dialect, hex) in cases {
        // An IPCP that is not a member and not configured.
        let mut transfer: DataPath<Bytes> = DataPath::of_dialect(Catalogue::standard(), dialect, 5);
        transfer.add_n1(N1, &props());
        transfer.send_management(Instant::from_millis(1), Target::N1(N1), &[9; 61]);
        let n1 = transfer.poll_n1().expect("a PDU");
        let pdu = transfer
            .take_transmit(Instant::from_millis(1), n1)
            .expect("a PDU");
        assert_eq!(pdu.as_slice()[..pdu.len() - 61], bytes(hex));

        // A member accepts it from a stranger, and from a neighbour that restarted.
        let mut member = Member::new(dialect, 1, 3);
        for is_neighbour in [true, false] {
            if !is_neighbour {
                member
                    .transfer
                    .set_neighbour(Instant::from_millis(1), Address(3), &[]);
            }
            let mut padded = pdu.as_slice().to_vec();
            padded.extend([0; 30]);
            member
                .transfer
                .on_pdu(Instant::from_millis(1), N1, Bytes::from(padded));
            let event = TransferEvent::Management {
                n1: N1,
                src: Address(0),
                message: vec![9; 61],
            };
            assert_eq!(DataTransfer::poll(&mut member.transfer), Some(event));
        }
        assert_eq!(member.transfer.counters().dropped_total(), 0);
    }
}
