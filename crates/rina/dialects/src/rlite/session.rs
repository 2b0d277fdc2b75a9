//! The CDAP connection on an N-1 flow: sends messages, and passes received ones to their component.

use alloc::format;
use alloc::string::String;

use carina_cdap::{Message, Opcode, Receipt, State as Cdap};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_time::Instant;

use super::n1::Stage;
use super::objects::{class, name};
use super::{RULES, Rlite};

impl Rlite {
    /// Sends a request to the IPCP at the other end of an N-1 flow. Every request has an invoke id,
    /// even if it expects no answer.
    pub(super) fn send_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        mut message: Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        message.version = RULES.version;
        match flow.cdap.send_request(now.as_nanos(), &mut message, true) {
            Ok(()) => dt.send_management(now, Target::N1(n1), &RULES.encode(&message)),
            Err(_) => self.log.count("requests-withheld"),
        }
    }

    /// Answers a request that was received over an N-1 flow.
    pub(super) fn send_response(
        &mut self,
        now: Instant,
        n1: N1Port,
        mut answer: Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        answer.version = RULES.version;
        match flow.cdap.send_answer(now.as_nanos(), &answer) {
            Ok(()) => dt.send_management(now, Target::N1(n1), &RULES.encode(&answer)),
            Err(_) => self.log.count("responses-withheld"),
        }
    }

    /// A name of the IPCP behind an N-1 flow, for messages to people.
    pub(super) fn peer_name(&self, n1: N1Port) -> String {
        let Some(flow) = self.n1s.get(&n1) else {
            return String::new();
        };
        let names = [&flow.peer, &flow.props.remote];
        let known = names.into_iter().find(|name| !name.is_empty());
        known.map_or_else(|| format!("n1-{}", n1.0), Clone::clone)
    }

    /// Handles a management PDU.
    pub(super) fn on_management(
        &mut self,
        now: Instant,
        n1: N1Port,
        src: u64,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) {
        let message = match RULES.decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                let peer = self.peer_name(n1);
                return self.log.discard(&peer, error.name());
            }
        };
        if message.class == class::A_DATA && message.name == name::A_DATA {
            let flow = self.n1s.get(&n1);
            if flow.is_none_or(|flow| flow.neighbour().is_none()) {
                let peer = self.peer_name(n1);
                return self.log.discard(&peer, "a-data-of-no-neighbour");
            }
            self.on_a_data(now, Some(src), &message, dt);
        } else {
            self.on_session(now, n1, src, &message, dt);
        }
    }

    /// Handles a message of the CDAP connection on an N-1 flow.
    fn on_session(
        &mut self,
        now: Instant,
        n1: N1Port,
        src: u64,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return self.log.count("n1-unknown");
        };
        if matches!(flow.stage, Stage::Leaving) {
            return self.log.count("after-release");
        }
        flow.heard = now;
        flow.missed = 0;
        flow.unanswered = 0;
        flow.src = src;
        if message.opcode == Opcode::Connect {
            return self.on_connect(now, n1, message, dt);
        }
        if message.name == name::LOWER_FLOW && flow.cdap.state() == Cdap::None {
            self.accept_without_connect(now, n1);
        }
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        match flow.cdap.receive(now.as_nanos(), message) {
            Ok(Receipt::Request) if message.opcode == Opcode::Release => {
                self.on_release(now, n1, dt);
            }
            Ok(Receipt::Request) => self.on_request(now, n1, message, dt),
            Ok(Receipt::Answer { .. }) => self.on_answer(now, n1, message, dt),
            Ok(_) => self.log.count("stale"),
            Err(_) if self.release_mistaken(now, n1, message, dt) => {}
            Err(_) => {
                let peer = self.peer_name(n1);
                self.log.discard(&peer, "cdap-state");
            }
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        match (message.opcode, message.name.as_str()) {
            (Opcode::Start, name::ENROLLMENT) => self.on_start(now, n1, message, dt),
            (Opcode::Stop, name::ENROLLMENT) => self.on_stop(now, n1, message, dt),
            (Opcode::Start, name::LOWER_FLOW) => self.on_lower_flow(now, n1, message, dt),
            (Opcode::Start, name::STATUS) => {}
            (Opcode::Read, name::KEEPALIVE) => self.send_response(now, n1, message.answer(), dt),
            (Opcode::Write, _) => self.on_policy_write(n1, message),
            (Opcode::Create | Opcode::Delete, _) => self.on_entries(now, n1, message, dt),
            _ => {
                let peer = self.peer_name(n1);
                self.log.discard(&peer, "object");
                let reason = format!("{} has no such object", self.own);
                let answer = message.answer().with_error(-1, &reason);
                self.send_response(now, n1, answer, dt);
            }
        }
    }

    fn on_answer(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        match (message.opcode, message.name.as_str()) {
            (Opcode::ConnectR, _) => self.on_connected(now, n1, message, dt),
            (Opcode::StartR, name::ENROLLMENT) => self.on_started(now, n1, message, dt),
            (Opcode::StartR, name::LOWER_FLOW) => self.on_added(now, n1, message, dt),
            (Opcode::StopR, name::ENROLLMENT) => self.on_stopped(now, n1, message, dt),
            (Opcode::ReadR, name::KEEPALIVE) => {}
            _ => self.log.count("responses-unused"),
        }
    }
}
