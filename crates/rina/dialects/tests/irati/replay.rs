//! Replays a capture of two IRATI systems. A member takes the place of either, receives what the
//! other one sent, and must send what the replaced one sent, byte for byte.
//!
//! These differences are allowed:
//!
//! - Frames 31, 35 and 36 repeat to a neighbour what it has just sent; frame 33 repeats an object
//!   because its age has grown. They have no effect, and Carina does not send them.
//! - Sequence numbers of data start at random. Of control PDUs, what they acknowledge is compared,
//!   but not the author's own edges.
//! - IRATI keeps connections for a while after M_DELETE. Carina frees them at once, so later ones
//!   have other CEP-ids. Therefore M_DELETEs are only sent and delivered after all flows exist.

use std::collections::{BTreeMap, VecDeque};

use carina_cdap::{Opcode, Rules};
use carina_ipcp::api::N1Properties;
use carina_ipcp::{Catalogue, Command, Config, DifConfig, Event, FlowKey, Ipcp, N1Port, Reason};
use carina_time::Instant;
use carina_wire::dif::Dialect;
use carina_wire::{Bytes, FlowSpec};

use crate::irati::net::{MS, Words, with_addresses};

const CAPTURED: &str = include_str!("captured.txt");
const N1: N1Port = N1Port(1);
const MANAGEMENT: u8 = 0x40;
const DATA: u8 = 0x80;
/// With this seed, a member's first token is the one that IRATI's unseeded generator gives.
const SEED: u64 = 0xb622_4354_2164_ce84;

struct Frame {
    number: u32,
    at: Instant,
    by: &'static str,
    pdu: Vec<u8>,
}

impl Frame {
    fn kind(&self) -> u8 {
        self.pdu[11]
    }

    fn payload(&self) -> &[u8] {
        &self.pdu[19..]
    }
}

fn frames() -> Vec<Frame> {
    let lines = CAPTURED.lines().filter(|line| !line.starts_with('#'));
    let frame = |line: &'static str| {
        let mut parts = line.split(' ');
        let mut next = || parts.next().expect("four parts");
        let (number, at, by, hex) = (next(), next(), next(), next());
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        Frame {
            number: number.parse().expect("a number"),
            at: Instant::from_micros(at.parse().expect("a time")),
            by,
            pdu: (0..hex.len()).step_by(2).map(byte).collect(),
        }
    };
    lines.map(frame).collect()
}

/// A member with one N-1 flow, at whose other end the capture is replayed.
struct Lone {
    member: Ipcp<Bytes>,
    now: Instant,
    sent: VecDeque<Vec<u8>>,
    control: Vec<Vec<u8>>,
    delivered: Vec<(FlowKey, Vec<u8>)>,
    incoming: Vec<FlowKey>,
    allocated: BTreeMap<FlowKey, Result<(), Reason>>,
    closed: Vec<FlowKey>,
    has_neighbour: bool,
}

impl Lone {
    fn new(name: &str) -> Lone {
        let config = Config {
            name: name.into(),
            dif: "normal.DIF".into(),
            dialect: Dialect::Irati,
            // The captured systems send no keep-alives.
            dif_config: Some(DifConfig {
                keepalive_ms: 0,
                ..with_addresses("test1.normal.DIF=16, test2.normal.DIF=17")
            }),
        };
        let toolbox = Box::new(Words::new("unused"));
        Lone {
            member: Ipcp::new(
                carina_dialects::DIALECTS,
                config,
                toolbox,
                Catalogue::empty(),
                SEED,
            )
            .expect("a config"),
            now: Instant::ZERO,
            sent: VecDeque::new(),
            control: Vec::new(),
            delivered: Vec::new(),
            incoming: Vec::new(),
            allocated: BTreeMap::new(),
            closed: Vec::new(),
            has_neighbour: false,
        }
    }

    fn order(&mut self, command: Command) {
        self.member.handle(self.now, command);
        self.pump();
    }

    fn n1_up(&mut self, remote: &str, is_initiator: bool) {
        let props = N1Properties {
            dif: "eth.DIF".into(),
            remote: remote.into(),
            sdu_max: 1500,
            is_reliable: false,
            is_exposed: false,
            is_initiator,
            cost: 1,
        };
        self.order(Command::N1Up { n1: N1, props });
    }

    fn hear(&mut self, pdu: &[u8]) {
        // Short frames are padded.
        let mut padded = pdu.to_vec();
        padded.resize(pdu.len().max(46), 0);
        self.member.on_pdu(self.now, N1, Bytes::from(padded));
        self.pump();
    }

    /// Lets time pass until `at`.
    fn wait(&mut self, at: Instant) {
        while let Some(due) = self.member.poll_timeout().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            self.member.handle_timeout(self.now);
            self.pump();
        }
        self.now = at;
    }

    fn pump(&mut self) {
        self.member.end_of_burst(self.now);
        while let Some(n1) = self.member.poll_n1() {
            let pdu = self.member.take_transmit(self.now, n1).expect("a PDU");
            let pdu = pdu.as_slice().to_vec();
            match pdu[11] {
                MANAGEMENT => self.sent.push_back(pdu),
                DATA => {}
                _ => self.control.push(pdu),
            }
        }
        while let Some(delivery) = self.member.poll_deliver() {
            let sdu = delivery.sdu.as_slice().to_vec();
            self.delivered.push((delivery.flow, sdu));
        }
        while self.member.poll_room().is_some() {}
        let mut answers = Vec::new();
        while let Some(event) = self.member.poll_event() {
            match event {
                Event::Incoming { flow, .. } => answers.push(flow),
                Event::Allocated { flow, result } => {
                    self.allocated.insert(flow, result);
                }
                Event::NeighbourUp { .. } => self.has_neighbour = true,
                Event::Closed {
                    flow,
                    is_graceful: true,
                    ..
                } => self.closed.push(flow),
                Event::Enrolled { .. }
                | Event::Reachable { .. }
                | Event::Registered { result: Ok(()), .. } => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        for flow in answers {
            self.incoming.push(flow);
            let answer = Ok(());
            self.order(Command::Respond { flow, answer });
        }
    }

    /// Checks that the next management PDU is this frame.
    fn says(&mut self, frame: &Frame) {
        let hex = |bytes: &[u8]| {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            digits.concat()
        };
        // It may be sent a little later than in the capture.
        for _ in 0..200 {
            if !self.sent.is_empty() {
                break;
            }
            self.wait(self.now + MS);
        }
        let sent = self.sent.pop_front().unwrap_or_default();
        assert_eq!(hex(&sent), hex(&frame.pdu), "frame {}", frame.number);
    }
}

#[test]
fn the_place_of_the_captured_enroller_is_taken() {
    let mut lone = Lone::new("test1.normal.DIF");
    lone.order(Command::Bootstrap);
    let name = "rpinst1".to_string();
    lone.order(Command::Register { name });
    lone.n1_up("", false);
    let mut expected_control = Vec::new();
    let mut sdus = Vec::new();
    let mut ends = Vec::new();
    for frame in frames() {
        let is_own = frame.by == "test1";
        if is_own && frame.kind() == MANAGEMENT {
            match frame.number {
                36 => {}
                59 | 60 | 87 | 88 => ends.push(frame),
                _ => lone.says(&frame),
            }
        } else if is_own && frame.kind() != DATA {
            expected_control.push(frame.pdu);
        } else if !is_own && matches!(frame.kind(), MANAGEMENT | DATA) {
            if frame.kind() == DATA {
                sdus.push(frame.payload().to_vec());
            }
            lone.wait(lone.now.max(frame.at));
            lone.hear(&frame.pdu);
        }
    }
    assert!(lone.has_neighbour);
    // The application ends the flows.
    for (flow, frame) in lone.incoming.clone().into_iter().zip(&ends) {
        let reason = String::new();
        lone.order(Command::Deallocate { flow, reason });
        lone.says(frame);
    }
    assert_eq!(lone.sent, VecDeque::<Vec<u8>>::new());
    let delivered: Vec<Vec<u8>> = lone.delivered.into_iter().map(|(_, sdu)| sdu).collect();
    assert_eq!(delivered, sdus);
    compare_control(&lone.control, &expected_control);
}

/// Compares types, CEP-ids, control sequence numbers, acknowledgements and right edges, in the
/// order of each connection.
fn compare_control(sent: &[Vec<u8>], expected: &[Vec<u8>]) {
    let essence = |pdu: &Vec<u8>| {
        // FC: sequence, right edge. ACK+FC: sequence, acknowledged, (last control), left, right.
        let field = |at: usize| pdu[15 + 4 * at..19 + 4 * at].to_vec();
        let fields: Vec<Vec<u8>> = match pdu[11] {
            0xc4 => vec![field(0), field(1)],
            _ => vec![field(0), field(1), field(3), field(4)],
        };
        (pdu[..15].to_vec(), fields)
    };
    let sent: Vec<_> = sent.iter().map(essence).collect();
    let expected: Vec<_> = expected.iter().map(essence).collect();
    assert_eq!(sent, expected);
}

#[test]
fn the_place_of_the_captured_enrollee_is_taken() {
    let mut lone = Lone::new("test2.normal.DIF");
    lone.n1_up("test1.normal.DIF", true);
    let reliable = FlowSpec {
        in_order: true,
        max_sdu_gap: 0,
        ..FlowSpec::unreliable()
    };
    let mut flows = Vec::new();
    let mut ends = Vec::new();
    for frame in frames() {
        let is_own = frame.by == "test2";
        if matches!(frame.number, 59 | 60 | 87 | 88) {
            ends.push(frame);
            continue;
        }
        if !is_own {
            if frame.kind() == MANAGEMENT {
                lone.wait(lone.now.max(frame.at));
                lone.hear(&frame.pdu);
            }
            continue;
        }
        if frame.kind() != MANAGEMENT || matches!(frame.number, 31 | 33 | 35) {
            continue;
        }
        let spec = match frame.number {
            37 | 43 => Some(FlowSpec::unreliable()),
            65 | 71 => Some(reliable),
            _ => None,
        };
        if let Some(spec) = spec {
            lone.wait(frame.at);
            let flow = lone.member.allocate(frame.at, "rpcli1", "rpinst1", spec);
            flows.push(flow.expect("a request"));
            lone.pump();
        }
        lone.says(&frame);
    }
    assert!(lone.has_neighbour);
    assert_eq!(lone.sent, VecDeque::<Vec<u8>>::new());
    for flow in &flows {
        assert_eq!(lone.allocated.get(flow), Some(&Ok(())));
    }
    for frame in ends {
        lone.hear(&frame.pdu);
    }
    lone.wait(lone.now + 1000 * MS);
    assert_eq!(lone.closed, flows);
    assert_eq!(lone.sent, VecDeque::<Vec<u8>>::new());
}

/// Frame 26 is lost: the enrollee requests the neighbours before it answers M_STOP, and continues
/// when the answer says that they cannot be read.
#[test]
fn what_is_missing_is_asked_for() {
    let mut lone = Lone::new("test2.normal.DIF");
    lone.n1_up("test1.normal.DIF", true);
    let all = frames();
    let frame = |number: u32| {
        let found = all.iter().find(|frame| frame.number == number);
        found.expect("a frame")
    };
    for number in [21, 22, 23, 24, 25, 27] {
        let frame = frame(number);
        match frame.by {
            "test2" => lone.says(frame),
            _ => lone.hear(&frame.pdu),
        }
    }
    let question = lone.sent.pop_front().expect("a question");
    let question = Rules::IRATI.decode(&question[19..]).expect("a message");
    assert_eq!(question.opcode, Opcode::Read);
    assert_eq!(question.name, "/difm/enr/neighs");
    let answer = question.answer().with_error(-2, "no such object");
    let message = Rules::IRATI.encode(&answer);
    let mut pdu = frame(22).pdu[..19].to_vec();
    let len = u16::try_from(19 + message.len()).expect("a short message");
    pdu[13..15].copy_from_slice(&len.to_le_bytes());
    pdu.extend(message);
    lone.hear(&pdu);
    for number in [28, 29, 30] {
        let frame = frame(number);
        match frame.by {
            "test2" => lone.says(frame),
            _ => lone.hear(&frame.pdu),
        }
    }
    // The member's address is known from the source address of its PDUs.
    assert!(lone.has_neighbour);
    lone.says(frame(32));
}
