//! Entry point for fuzzing a member of an irati DIF: scripts of what comes from the other end of
//! its N-1 flow.
//!
//! The first byte of a script is the side that the member has: even for one that joins, odd for
//! one that admits. Steps follow: operation (1 byte), length (2 bytes, network byte order), bytes.
//!
//! | operation | does |
//! |---|---|
//! | 0 | a PDU, whole |
//! | 1 | a CDAP message between neighbours |
//! | 2 | a CDAP message in a_data |
//! | 3 | time passes: as many 100 ms as there are bytes |
//! | 4 | orders, one for each byte |

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_wire::dif::Dialect;
use carina_wire::{Bytes, FlowSpec};

use super::objects;
use super::values::AData;
use super::{KNOWN_ADDRESSES, MS};
use crate::api::{Command, Event, FlowKey, N1Port, N1Properties, RibOp};
use crate::config::{Config, DifConfig, PolicySpec};
use crate::policy::component;
use crate::{Catalogue, Ipcp};

const STEPS_MAX: usize = 200;
/// Deadlines that are kept after the script.
const TIMEOUTS: usize = 64;
/// Events that one step may bring, and PDUs that it may send.
const TURN_MAX: usize = 100_000;
/// Addresses of the side that admits and of the one that joins.
const ADDRESSES: [u64; 2] = [16, 17];
/// Bytes of the PCI of a management PDU.
const PCI_BYTES: usize = 19;
/// Makes the member's first token the one of the captures that the corpus is made of.
const SEED: u64 = 0xb622_4354_2164_ce84;
const N1: N1Port = N1Port(1);

/// Whatever comes, the member must not panic, must come to rest, and its own applications must
/// still reach each other.
pub fn irati(script: &[u8]) {
    let _ = reads_irati(script);
}

/// True when the other side has become a neighbour.
pub fn reads_irati(script: &[u8]) -> bool {
    let Some((side, mut rest)) = script.split_first() else {
        return false;
    };
    let Some(mut script) = Script::new(side % 2 == 1) else {
        return false;
    };
    let mut steps = 0;
    while let Some((&[op, high, low], after)) = rest.split_first_chunk() {
        let count = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (bytes, after) = after.split_at(count);
        rest = after;
        steps += 1;
        if steps > STEPS_MAX {
            break;
        }
        script.step(op, bytes);
        script.drain();
    }
    for _ in 0..TIMEOUTS {
        let Some(due) = script.member.poll_timeout() else {
            break;
        };
        script.now = script.now.max(due);
        script.member.handle_timeout(script.now);
        script.drain();
    }
    script.works_still();
    script.was_neighbour
}

struct Script {
    member: Ipcp<Bytes>,
    is_admitting: bool,
    now: u64,
    was_neighbour: bool,
    offered: Vec<FlowKey>,
    opened: Vec<FlowKey>,
    allocated: Option<FlowKey>,
}

impl Script {
    fn new(is_admitting: bool) -> Option<Script> {
        let names = ["test1.normal.DIF", "test2.normal.DIF"];
        let (own, remote) = match is_admitting {
            true => (names[0], names[1]),
            false => (names[1], names[0]),
        };
        let mut config = DifConfig::of_dialect(Dialect::Irati);
        let table = "test1.normal.DIF=16, test2.normal.DIF=17";
        let addresses = PolicySpec {
            name: KNOWN_ADDRESSES.into(),
            params: [(String::from("addresses"), String::from(table))].into(),
        };
        let place = component::ADDRESS_ASSIGNMENT.into();
        config.policies.insert(place, addresses);
        let config = Config {
            name: own.into(),
            dif: "normal.DIF".into(),
            dialect: Dialect::Irati,
            dif_config: Some(config),
        };
        let toolbox = Box::new(crate::fuzz::Open);
        let member = Ipcp::new(config, toolbox, Catalogue::empty(), SEED).ok()?;
        let mut script = Script {
            member,
            is_admitting,
            now: 1_000 * MS,
            was_neighbour: false,
            offered: Vec::new(),
            opened: Vec::new(),
            allocated: None,
        };
        if is_admitting {
            script.order(Command::Bootstrap);
            let name = "rpinst1".into();
            script.order(Command::Register { name });
        }
        let props = N1Properties {
            dif: "eth.DIF".into(),
            remote: remote.into(),
            sdu_max: 1_500,
            is_reliable: false,
            is_exposed: false,
            is_initiator: !is_admitting,
            cost: 1,
        };
        script.order(Command::N1Up { n1: N1, props });
        Some(script)
    }

    fn order(&mut self, command: Command) {
        self.member.handle(self.now, command);
        self.drain();
    }

    fn step(&mut self, op: u8, bytes: &[u8]) {
        let [own, other] = match self.is_admitting {
            true => ADDRESSES,
            false => [ADDRESSES[1], ADDRESSES[0]],
        };
        match op % 5 {
            0 => self.receive(bytes.to_vec()),
            1 => self.receive(management(other, bytes)),
            2 => {
                let data = AData {
                    src: other,
                    dst: own,
                    message: bytes.to_vec(),
                };
                let name = objects::A_DATA;
                let outer = objects::request(Opcode::Write, name, name, &data);
                self.receive(management(other, &objects::RULES.encode(&outer)));
            }
            3 => {
                self.now += 100 * MS * bytes.len() as u64;
                if self.member.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.member.handle_timeout(self.now);
                }
            }
            _ => {
                for byte in bytes.iter().take(8) {
                    self.command(*byte);
                }
            }
        }
    }

    fn command(&mut self, which: u8) {
        let now = self.now;
        let name = || String::from("other");
        match which % 9 {
            0 | 1 => {
                let spec = match which % 9 {
                    0 => FlowSpec::unreliable(),
                    _ => FlowSpec::reliable(),
                };
                let key = self.member.allocate(now, "rpcli1", "rpinst1", spec);
                self.opened.extend(key);
            }
            2 | 3 => {
                if let Some(flow) = self.offered.pop() {
                    let answer = match which % 9 {
                        2 => Ok(()),
                        _ => Err("no".into()),
                    };
                    self.order(Command::Respond { flow, answer });
                }
            }
            4 => {
                if let Some(flow) = self.opened.pop() {
                    let reason = String::new();
                    self.order(Command::Deallocate { flow, reason });
                }
            }
            5 => self.order(Command::Rib {
                id: 1,
                member: None,
                op: RibOp::Read {
                    path: "/".into(),
                    scope: 9,
                },
            }),
            6 => self.order(Command::Register { name: name() }),
            7 => self.order(Command::Unregister { name: name() }),
            _ => self.order(Command::Leave),
        }
        self.drain();
    }

    fn receive(&mut self, pdu: Vec<u8>) {
        self.member.on_pdu(self.now, N1, Bytes::from(pdu));
    }

    fn drain(&mut self) {
        self.member.end_of_burst(self.now);
        let mut count = 0;
        let mut turn = || {
            count += 1;
            assert!(count < TURN_MAX, "it never comes to rest");
        };
        while let Some(n1) = self.member.poll_n1() {
            turn();
            let _ = self.member.take_transmit(self.now, n1);
        }
        while self.member.poll_deliver().is_some() {
            turn();
        }
        while self.member.poll_room().is_some() {
            turn();
        }
        while let Some(event) = self.member.poll_event() {
            turn();
            match event {
                Event::NeighbourUp { .. } => self.was_neighbour = true,
                Event::Incoming { flow, .. } => self.offered.push(flow),
                Event::Enrolled { address, .. } => assert_ne!(address.0, 0),
                Event::Allocated {
                    flow,
                    result: Ok(()),
                } => self.allocated = Some(flow),
                _ => {}
            }
        }
        self.member.settle();
    }

    /// Two applications of the member talk to each other, unless it is none any more.
    fn works_still(&mut self) {
        if self.member.address().is_none() {
            return;
        }
        let name = "last".into();
        self.order(Command::Register { name });
        self.offered.clear();
        let spec = FlowSpec::reliable();
        let key = match self.member.allocate(self.now, "first", "last", spec) {
            Ok(key) => key,
            Err(error) => panic!("a flow within the member cannot be had: {error}"),
        };
        self.drain();
        while let Some(flow) = self.offered.pop() {
            let answer = Ok(());
            self.order(Command::Respond { flow, answer });
        }
        assert_eq!(self.allocated, Some(key), "no flow within the member");
    }
}

/// A management PDU between neighbours.
fn management(src: u64, message: &[u8]) -> Vec<u8> {
    let mut pdu = Vec::with_capacity(PCI_BYTES + message.len());
    pdu.extend([1, 0, 0]);
    pdu.extend((src as u16).to_le_bytes());
    pdu.extend([1, 0, 0, 0, 0, 0, 0x40, 0]);
    let length = u16::try_from(PCI_BYTES + message.len()).unwrap_or(u16::MAX);
    pdu.extend(length.to_le_bytes());
    pdu.extend([0; 4]);
    pdu.extend(message);
    pdu
}
