//! Members that behave like those of rlite: a member that was enrolled once never enrolls again. It
//! sends `/mgmt/lowerflow` to each N-1 flow of a later neighbour, also after it has lost all its
//! neighbours.
//!
//! An IPCP of this implementation enrolls instead. This module translates its messages, between the
//! IPCP and its N-1 flows.

use std::collections::{BTreeSet, VecDeque};

use carina_cdap::{Message, Opcode, Rules, Value};
use carina_ipcp::{AllocateError, Command, Delivery, Event, FlowKey, N1Port};
use carina_sim::member::{Member, MemberFactory};
use carina_sim::member_factory;
use carina_wire::{Bytes, FlowSpec};

/// A factory of members of rlite DIFs, half of which behave like this.
pub(crate) fn once_enrolled_factory() -> MemberFactory {
    let mut make = member_factory();
    Box::new(move |config, seed| {
        let member = make(config, seed)?;
        Ok(if seed.is_multiple_of(2) {
            Box::new(OnceEnrolled::new(member)) as Box<dyn Member>
        } else {
            member
        })
    })
}

struct OnceEnrolled {
    member: Box<dyn Member>,
    is_member: bool,
    /// Requests whose answers are translated, by N-1 flow and invoke-id.
    asked: BTreeSet<(u32, i32)>,
    events: VecDeque<Event>,
}

/// Number of bytes of the PCI of a management PDU, and offset of its length field.
const PCI: usize = 28;
const LENGTH_AT: usize = 24;

const MANAGEMENT: u8 = 0x40;

impl OnceEnrolled {
    fn new(member: Box<dyn Member>) -> OnceEnrolled {
        OnceEnrolled {
            member,
            is_member: false,
            asked: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Records from events whether it is a member.
    fn note_events(&mut self) {
        while let Some(event) = self.member.poll_event() {
            match event {
                Event::Enrolled { .. } => self.is_member = true,
                Event::Left { .. } => self.is_member = false,
                _ => {}
            }
            self.events.push_back(event);
        }
    }
}

/// The CDAP message of a management PDU; `None` for other PDUs.
fn message_of(pdu: &[u8]) -> Option<Message> {
    let is_management = pdu.get(1) == Some(&MANAGEMENT) && pdu.len() >= PCI;
    is_management.then(|| Rules::RLITE.decode(&pdu[PCI..]).ok())?
}

/// The same PDU with another CDAP message.
fn with_message(pdu: &[u8], message: &Message) -> Bytes {
    let mut changed = pdu[..PCI].to_vec();
    changed.extend(Rules::RLITE.encode(message));
    let length = u16::try_from(changed.len()).expect("a short message");
    changed[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&length.to_le_bytes());
    Bytes::from(changed)
}

/// A message about another object, with the ids of message `of`.
fn instead_of(of: &Message, opcode: Opcode, class: &str, name: &str) -> Message {
    Message {
        invoke_id: of.invoke_id,
        version: of.version,
        result: of.result,
        reason: of.reason.clone(),
        ..Message::object(opcode, class, name)
    }
}

impl Member for OnceEnrolled {
    fn take_transmit(&mut self, now: u64, n1: N1Port) -> Option<Bytes> {
        self.note_events();
        let pdu = self.member.take_transmit(now, n1)?;
        let message = message_of(pdu.as_slice());
        let enrolls =
            |message: &Message| message.opcode == Opcode::Start && message.class == "enrollment";
        let Some(message) = message.filter(|message| self.is_member && enrolls(message)) else {
            return Some(pdu);
        };
        self.asked.insert((n1.0, message.invoke_id));
        let replaced = instead_of(&message, Opcode::Start, "lowerflow", "/mgmt/lowerflow");
        Some(with_message(pdu.as_slice(), &replaced))
    }

    fn on_pdu(&mut self, now: u64, n1: N1Port, pdu: Bytes) {
        let message = message_of(pdu.as_slice());
        let is_answer = |message: &Message| {
            message.opcode == Opcode::StartR
                && message.class == "lowerflow"
                && self.asked.contains(&(n1.0, message.invoke_id))
        };
        let Some(answer) = message.filter(is_answer) else {
            return self.member.on_pdu(now, n1, pdu);
        };
        self.asked.remove(&(n1.0, answer.invoke_id));
        let (class, name) = ("enrollment", "/mgmt/enrollment");
        // The answer assigns no address, so the member keeps its own.
        let started = instead_of(&answer, Opcode::StartR, class, name);
        let started = started.with_value(Value::Bytes(vec![0x18, 0]));
        self.member
            .on_pdu(now, n1, with_message(pdu.as_slice(), &started));
        if answer.result == 0 {
            let mut stop = instead_of(&answer, Opcode::Stop, class, name);
            stop.invoke_id = i32::MAX - 1;
            let stop = stop.with_value(Value::Bytes(vec![0x18, 1]));
            self.member
                .on_pdu(now, n1, with_message(pdu.as_slice(), &stop));
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.note_events();
        self.events.pop_front()
    }

    fn handle(&mut self, now: u64, command: Command) {
        self.member.handle(now, command);
    }

    fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, AllocateError> {
        self.member.allocate(now, local, remote, spec)
    }

    fn on_sdu(&mut self, now: u64, flow: FlowKey, sdu: Bytes, more: bool) {
        self.member.on_sdu(now, flow, sdu, more);
    }

    fn room(&mut self, flow: FlowKey) -> usize {
        self.member.room(flow)
    }

    fn poll_room(&mut self) -> Option<FlowKey> {
        self.member.poll_room()
    }

    fn set_delivery_room(&mut self, now: u64, flow: FlowKey, bytes: usize) {
        self.member.set_delivery_room(now, flow, bytes);
    }

    fn poll_deliver(&mut self) -> Option<Delivery<Bytes>> {
        self.member.poll_deliver()
    }

    fn poll_n1(&mut self) -> Option<N1Port> {
        self.member.poll_n1()
    }

    fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        self.member.peek_transmit(n1)
    }

    fn block_n1(&mut self, n1: N1Port) {
        self.member.block_n1(n1);
    }

    fn unblock_n1(&mut self, n1: N1Port) {
        self.member.unblock_n1(n1);
    }

    fn end_of_burst(&mut self, now: u64) {
        self.member.end_of_burst(now);
    }

    fn handle_timeout(&mut self, now: u64) {
        self.member.handle_timeout(now);
    }

    fn poll_timeout(&mut self) -> Option<u64> {
        self.member.poll_timeout()
    }
}
