//! Entry point for fuzzing a member of an rlite DIF: scripts of what comes from the other side of
//! an N-1 flow.
//!
//! The first byte of a script is the side that the member has: 0 for an enrollee, 1 for an
//! enroller with an application. Steps follow: operation (1 byte), length (2 bytes, network byte
//! order), bytes.
//!
//! | operation | does |
//! |---|---|
//! | 0 | a PDU, whole |
//! | 1 | a CDAP message of the connection on the N-1 flow |
//! | 2 | a CDAP message in A-DATA |
//! | 3 | time passes: as many 100 ms as there are bytes |
//! | 4 | orders, one for each byte |

use alloc::boxed::Box;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_wire::dif::Dialect;
use carina_wire::{Bytes, FlowSpec};

use super::objects::{class, name};
use super::values::{AData, value};
use super::{ADDRESS_OF_NEW, RULES};
use crate::api::{Command, Event, FlowKey, N1Port, N1Properties, RibOp};
use crate::config::{Config, DifConfig};
use crate::foreign::MS;
use crate::{Catalogue, Ipcp};

const STEPS_MAX: usize = 200;

/// Deadlines that are kept after the script.
const TIMEOUTS: usize = 64;

/// Events that one step may bring.
const EVENTS_MAX: usize = 10_000;

/// Address that the other side has where the script does not say it.
const OTHER: u64 = 3;

/// Bytes of the PCI.
const PCI_BYTES: usize = 28;

const TYPE_MANAGEMENT: u8 = 0x40;
const TTL: u8 = 64;

/// Whatever comes, the member must not panic and must come to rest.
pub fn rlite(script: &[u8]) {
    let _ = reads_rlite(script);
}

/// True when the other side has become a neighbour.
pub fn reads_rlite(script: &[u8]) -> bool {
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
    script.was_neighbour
}

struct Script {
    member: Ipcp<Bytes>,
    now: u64,
    was_neighbour: bool,
    offered: Vec<FlowKey>,
    opened: Vec<FlowKey>,
}

impl Script {
    fn new(is_enroller: bool) -> Option<Script> {
        let (own, remote) = match is_enroller {
            true => ("ynorm.IPCP", "xnorm.IPCP"),
            false => ("xnorm.IPCP", "ynorm.IPCP"),
        };
        let config = Config {
            name: own.into(),
            dif: "n.DIF".into(),
            dialect: Dialect::Rlite,
            dif_config: Some(DifConfig::of_dialect(Dialect::Rlite)),
        };
        let toolbox = Box::new(crate::fuzz::Open);
        let member = Ipcp::new(config, toolbox, Catalogue::empty(), 1).ok()?;
        let mut script = Script {
            member,
            now: 1_000 * MS,
            was_neighbour: false,
            offered: Vec::new(),
            opened: Vec::new(),
        };
        if is_enroller {
            script.order(Command::Bootstrap);
        }
        let name = "rpinst1".into();
        script.order(Command::Register { name });
        let props = N1Properties {
            dif: "udp.DIF".into(),
            remote: remote.into(),
            sdu_max: 1_452,
            is_reliable: false,
            is_exposed: false,
            is_initiator: !is_enroller,
            cost: 1,
        };
        let n1 = N1Port(1);
        script.order(Command::N1Up { n1, props });
        Some(script)
    }

    fn order(&mut self, command: Command) {
        self.member.handle(self.now, command);
        self.drain();
    }

    fn step(&mut self, op: u8, bytes: &[u8]) {
        match op % 5 {
            0 => self.receive(bytes.to_vec()),
            1 => self.receive(management(0, bytes)),
            2 => {
                let own = self.member.address().map_or(ADDRESS_OF_NEW, |it| it.0);
                let data = AData {
                    source: i32::try_from(OTHER).ok(),
                    destination: i32::try_from(own).ok(),
                    message: Some(bytes.to_vec()),
                };
                let outer = Message::object(Opcode::Write, class::A_DATA, name::A_DATA);
                let outer = outer.with_value(value(&data));
                self.receive(management(own, &RULES.encode(&outer)));
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
        let (offered, opened) = (self.offered.pop(), self.opened.pop());
        match which % 8 {
            0 | 1 => {
                let spec = match which % 8 {
                    0 => FlowSpec::unreliable(),
                    _ => FlowSpec::reliable(),
                };
                let key = self.member.allocate(now, "rpcli1", "rpinst1", spec);
                self.opened.extend(key);
            }
            2 | 3 => {
                if let Some(flow) = offered {
                    let answer = match which % 8 {
                        2 => Ok(()),
                        _ => Err("no".into()),
                    };
                    self.order(Command::Respond { flow, answer });
                }
            }
            4 => {
                if let Some(flow) = opened {
                    let reason = "".into();
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
            6 => {
                let name = "other".into();
                self.order(Command::Register { name });
            }
            _ => self.order(Command::Leave),
        }
        self.drain();
    }

    fn receive(&mut self, pdu: Vec<u8>) {
        self.member.on_pdu(self.now, N1Port(1), Bytes::from(pdu));
    }

    fn drain(&mut self) {
        self.member.end_of_burst(self.now);
        while let Some(n1) = self.member.poll_n1() {
            let _ = self.member.take_transmit(self.now, n1);
        }
        while self.member.poll_deliver().is_some() {}
        let mut events = 0;
        while let Some(event) = self.member.poll_event() {
            events += 1;
            assert!(events < EVENTS_MAX, "one step brings events without end");
            match event {
                Event::NeighbourUp { .. } => self.was_neighbour = true,
                Event::Incoming { flow, .. } => self.offered.push(flow),
                Event::Enrolled { address, .. } => assert_ne!(address.0, 0),
                _ => {}
            }
        }
        self.member.settle();
    }
}

/// A management PDU from [`OTHER`].
fn management(destination: u64, message: &[u8]) -> Vec<u8> {
    let mut pdu = Vec::with_capacity(PCI_BYTES + message.len());
    pdu.extend([0, TYPE_MANAGEMENT, 0, 0, 0, 0, TTL, 0, 0, 0, 0, 0]);
    pdu.extend((destination as u32).to_le_bytes());
    pdu.extend((OTHER as u32).to_le_bytes());
    pdu.extend([0; 4]);
    let length = u16::try_from(PCI_BYTES + message.len()).unwrap_or(u16::MAX);
    pdu.extend(length.to_le_bytes());
    pdu.extend([0; 2]);
    pdu.extend(message);
    pdu
}
