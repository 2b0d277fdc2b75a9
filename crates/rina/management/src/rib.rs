//! The RIB daemon, after the Pouzin Society's *RIB Daemon Specification*: passes each operation on
//! an object to the component that handles it, and rejects invalid operations.
//!
//! Operations arrive in two ways: from a neighbour on a management channel, over a CDAP connection;
//! and from any member in plain management PDUs without a connection. Each way gives access to its
//! own objects.

use alloc::format;
use alloc::string::String;

use carina_cdap::{Message, Opcode, Receipt};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;
use carina_wire::dif::Address;

use super::Management;
use super::neighbours::Stage;
use super::requester::Requester;
use super::schema::{self, Object, result};

impl Management {
    /// Sends a request on the management channel over `n1`.
    pub(super) fn tell(
        &mut self,
        now: Instant,
        n1: N1Port,
        mut message: Message,
        wants_answer: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
            return;
        };
        match up
            .cdap
            .send_request(now.as_nanos(), &mut message, wants_answer)
        {
            Ok(()) => dt.write_channel(now, up.channel, message.encode()),
            Err(_) => self.log.count("requests-withheld"),
        }
    }

    /// Answers a request that came on the channel over `n1`, if the request expects an answer.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        n1: N1Port,
        answer: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if answer.invoke_id == 0 {
            return;
        }
        let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
            return;
        };
        match up.cdap.send_answer(now.as_nanos(), answer) {
            Ok(()) => dt.write_channel(now, up.channel, answer.encode()),
            Err(_) => self.log.count("responses-withheld"),
        }
    }

    /// Rejects a request that came on the channel over `n1`.
    pub(super) fn reject(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        code: i32,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = self.peer_name(n1);
        self.log.discard(&peer, name_of(code));
        let answer = message.answer().with_error(code, reason);
        self.reply(now, n1, &answer, dt);
    }

    /// Handles a message on a management channel.
    pub(super) fn on_channel(
        &mut self,
        now: Instant,
        channel: u32,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) {
        let Some(n1) = self.channels.get(&channel).copied() else {
            self.log.count("stale");
            return;
        };
        let peer = self.peer_name(n1);
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => return self.log.discard(&peer, error.name()),
        };
        let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
            return;
        };
        up.heard = now;
        up.missed = 0;
        match up.cdap.receive(now.as_nanos(), &message) {
            Ok(Receipt::Request) => self.on_request(now, n1, &message, dt),
            Ok(Receipt::Answer { .. }) => self.on_answer(now, n1, &message, dt),
            Ok(_) => self.log.count("stale"),
            Err(_) => self.log.discard(&peer, "cdap-state"),
        }
    }

    /// Handles a request of a neighbour on its channel.
    fn on_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.opcode == Opcode::Release {
            return self.on_release(now, n1, message, dt);
        }
        let object = match check_object(message) {
            Ok(object) => object,
            Err((code, reason)) => return self.reject(now, n1, message, code, &reason, dt),
        };
        let value = schema::bytes(message);
        let is_good = match (message.opcode, &object) {
            (Opcode::Read, Object::KeepAlive) => true,
            (Opcode::Write, Object::Entries) => self.on_entries(now, n1, value, dt),
            (Opcode::Write, Object::Digests) => self.on_digests(now, n1, value, dt),
            (Opcode::Write, Object::Routing) => self.on_routing(now, n1, value),
            (Opcode::Start, Object::Enrollment) => {
                return self.on_enrollment_start(now, n1, message, dt);
            }
            (Opcode::Stop, Object::Enrollment) => {
                return self.on_enrollment_stop(now, n1, message, dt);
            }
            _ => {
                let reason = unsupported_operation(message, &object);
                return self.reject(now, n1, message, result::OPERATION, &reason, dt);
            }
        };
        if is_good {
            self.reply(now, n1, &message.answer(), dt);
        } else {
            let reason = format!("the value of {} is malformed", message.name);
            self.reject(now, n1, message, result::VALUE, &reason, dt);
        }
    }

    /// Handles an answer of a neighbour on its channel.
    fn on_answer(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        match (message.opcode, Object::parse(&message.name)) {
            (Opcode::StartR, Some(Object::Enrollment)) => {
                self.on_enrollment_started(now, n1, message, dt);
            }
            (Opcode::StopR, Some(Object::Enrollment)) => {
                self.on_enrollment_stopped(now, n1, message, dt);
            }
            (Opcode::ReleaseR | Opcode::Release, _) => self.release_answered(now, n1),
            _ if message.result != 0 => self.log.count("responses-negative"),
            _ => {}
        }
    }

    /// Handles M_RELEASE: the neighbour ends the connection in order, because it leaves the DIF.
    fn on_release(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let is_neighbour = self.neighbour(n1).is_some();
        if !is_neighbour {
            self.reply(now, n1, &message.answer(), dt);
        }
        // The neighbour does not return by itself, so no reconnection is scheduled.
        if let Some(flow) = self.n1s.get_mut(&n1) {
            let key = (flow.props.dif.clone(), flow.props.remote.clone());
            self.lost.remove(&key);
        }
        self.neighbour_left(now, n1, dt);
        // Data that waits for the neighbour is rerouted first; the answer still goes to the
        // neighbour.
        if is_neighbour {
            self.reply(now, n1, &message.answer(), dt);
        }
    }

    /// Handles a plain management PDU of a member, received over `n1`.
    pub(super) fn on_member_pdu(
        &mut self,
        now: Instant,
        n1: N1Port,
        src: Address,
        message: Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("address {src}");
        if self.member.is_none() || self.neighbour(n1).is_none() {
            return self
                .log
                .discard(&format!("N-1 flow {}", n1.0), "not-connected");
        }
        let Some(name) = self.members_by_address().get(&src.0).cloned() else {
            return self.log.discard(&peer, "unknown-member");
        };
        let requester = Requester {
            name,
            address: src.0,
        };
        self.on_member(now, &requester, message, dt);
    }

    /// Handles a message that this member sent to itself.
    pub(super) fn on_own_message(&mut self, now: Instant, bytes: &[u8], dt: &mut dyn DataTransfer) {
        let Some(member) = &self.member else { return };
        let requester = Requester {
            name: self.own.clone(),
            address: member.address,
        };
        match Message::decode(bytes) {
            Ok(message) => self.on_member(now, &requester, message, dt),
            Err(error) => self.log.discard("this member", error.name()),
        }
    }

    /// Handles a message of any member.
    fn on_member(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.opcode.is_response() {
            return self.on_member_answer(now, requester, &message, dt);
        }
        if message.opcode == Opcode::CancelRead {
            return self.on_cancel(now, requester, &message, dt);
        }
        let object = match check_object(&message) {
            Ok(object) => object,
            Err((code, reason)) => {
                return self.reject_to(now, requester, &message, code, &reason, dt);
            }
        };
        match (message.opcode, object) {
            (Opcode::Create, Object::Flow(Some(name))) => {
                self.on_flow_request(now, requester, &name, &message, dt);
            }
            (Opcode::Delete, Object::Flow(Some(name))) => {
                self.on_flow_delete(now, requester, &name, &message, dt);
            }
            (Opcode::Write, Object::Flow(Some(name))) => {
                self.on_renewal_request(now, requester, &name, &message, dt);
            }
            (Opcode::Create | Opcode::Delete, Object::Application(Some(name))) => {
                self.on_registration(now, requester, &name, &message, dt);
            }
            (Opcode::Start, Object::Application(Some(name))) => {
                self.on_lookup(now, requester, &name, &message, dt);
            }
            (Opcode::Start, Object::Member(Some(name))) => {
                self.on_name_query(now, requester, &name, &message, dt);
            }
            (Opcode::Stop, Object::Member(Some(name))) => {
                self.on_expel(now, requester, &name, &message, dt);
            }
            (Opcode::Read, _) => self.on_read(now, requester, &message, dt),
            (Opcode::Write, Object::Policy(Some(name))) => {
                self.on_policy_write(now, requester, &name, &message, dt);
            }
            (_, object) => {
                let reason = unsupported_operation(&message, &object);
                self.reject_to(now, requester, &message, result::OPERATION, &reason, dt);
            }
        }
    }

    fn on_member_answer(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let is_flow = matches!(Object::parse(&message.name), Some(Object::Flow(_)));
        if is_flow && message.opcode != Opcode::ReadR {
            self.on_flow_answer(now, requester, message, dt);
        } else {
            self.on_query_answer(now, requester, message, dt);
        }
    }

    /// Sends an answer to a member, if its request expects one.
    pub(super) fn respond_to(
        &mut self,
        now: Instant,
        requester: &Requester,
        answer: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if answer.invoke_id != 0 {
            self.send_to(now, requester.address, answer.encode(), dt);
        }
    }

    /// Rejects a member's request.
    pub(super) fn reject_to(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        code: i32,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.log.discard(&requester.name, name_of(code));
        let answer = message.answer().with_error(code, reason);
        self.respond_to(now, requester, &answer, dt);
    }

    fn peer_name(&self, n1: N1Port) -> String {
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        up.map_or_else(|| format!("N-1 flow {}", n1.0), |up| up.name.clone())
    }

    /// Handles the departure of the neighbour over `n1`; this side makes no further attempt.
    fn neighbour_left(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let was_joining = self
            .n1s
            .get(&n1)
            .and_then(|flow| flow.up.as_ref())
            .is_some_and(|up| matches!(up.stage, Stage::Joining(_)));
        if was_joining {
            return self.attempt_failed(now, n1, "the member is leaving the DIF", true, dt);
        }
        self.neighbour_released(now, n1, dt);
    }
}

/// Returns the object that a request names. Fails if the object is unknown or of another class.
fn check_object(message: &Message) -> Result<Object, (i32, String)> {
    let Some(object) = Object::parse(&message.name) else {
        return Err((
            result::OBJECT,
            format!("there is no object {:?}", message.name),
        ));
    };
    if !message.class.is_empty() && message.class != object.class() {
        let reason = format!(
            "{} is of class {:?}, not {:?}",
            message.name,
            object.class(),
            message.class
        );
        return Err((result::CLASS, reason));
    }
    Ok(object)
}

fn unsupported_operation(message: &Message, object: &Object) -> String {
    format!(
        "{} is not possible on {}",
        message.opcode.name(),
        object.path()
    )
}

/// The counter in which a result code is counted.
fn name_of(code: i32) -> &'static str {
    match code {
        result::OBJECT => "unknown-object",
        result::CLASS => "wrong-class",
        result::OPERATION => "wrong-operation",
        result::VALUE => "malformed-value",
        result::ACCESS => "access-denied",
        _ => "refused",
    }
}
