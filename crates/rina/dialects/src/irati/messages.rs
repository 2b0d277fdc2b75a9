//! Handles a message by its opcode and its object.

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::Irati;
use super::n1::Failure;
use super::objects::{self, class, result};
use super::values::{self, AData, Constants, DirectoryEntries, DirectoryEntry, FlowStates};
use super::values::{Naming, Number};

/// Largest number of entries in the answer to M_READ of the link-state database or the directory.
const SHOWN_MAX: usize = 15;

impl Irati {
    /// Handles a management PDU from an N-1 flow. The PDU is untrusted.
    pub(super) fn on_management(
        &mut self,
        now: Instant,
        n1: N1Port,
        src: u64,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) {
        if !self.n1s.contains_key(&n1) {
            return self.log.count("no-n1-flow");
        }
        if self.n1s[&n1].detaching.is_some() {
            return self.log.count("n1-detaching");
        }
        let message = match objects::RULES.decode(bytes) {
            Ok(message) => message,
            Err(error) => return self.discard(n1, error.name()),
        };
        let is_watchdog = message.opcode == Opcode::ReadR
            && message.name == objects::WATCHDOG
            && message.result == result::SUCCESS;
        self.heard(now, n1, is_watchdog);
        match message.opcode {
            Opcode::Connect => self.on_connect(now, n1, &message, dt),
            Opcode::ConnectR => self.on_connected(now, n1, &message, src, dt),
            Opcode::Release => self.on_release(now, n1, &message, dt),
            _ if message.opcode.is_response() => self.on_answer(now, n1, &message, dt),
            _ => self.on_request(now, n1, &message, dt),
        }
    }

    /// Handles M_RELEASE: the other side ends the connection or the attempt.
    fn on_release(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.invoke_id != 0 {
            self.send(now, n1, &message.answer(), dt);
        }
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        if flow.stage.is_joining() {
            let reason = "the other side ended the attempt";
            return self.attempt_failed(now, n1, reason, Failure::Broken, dt);
        }
        if flow.is_up() {
            let reason = match flow.suspect_until {
                Some(_) => "the neighbour has restarted",
                None => "the neighbour has released the connection",
            };
            self.disconnect(now, n1, reason, false, dt);
            // The other side may have lost only its own attempt; if it has left the DIF, it will
            // refuse.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.retry_in(now);
            }
        } else {
            self.disconnect(now, n1, "", false, dt);
        }
    }

    /// Handles an answer other than M_CONNECT_R. Its class and name may be empty.
    fn on_answer(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let is_starting = matches!(flow.stage, super::n1::Stage::Starting);
        match message.opcode {
            Opcode::StartR if is_starting => self.on_started(now, n1, message, dt),
            Opcode::StartR => self.on_confirmed(now, n1, message, dt),
            Opcode::StopR => self.on_stopped(now, n1, message, dt),
            Opcode::ReadR if message.name == objects::WATCHDOG => {}
            Opcode::ReadR => self.on_neighbours_read(now, n1, message, dt),
            Opcode::ReleaseR => {}
            _ => self.discard(n1, "response-unsolicited"),
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
            (Opcode::Start, objects::ENROLLMENT) => self.on_start(now, n1, message, dt),
            (Opcode::Start, objects::STATUS) => self.on_start_operation(now, n1, message, dt),
            (Opcode::Stop, objects::ENROLLMENT) => self.on_stop(now, n1, message, dt),
            (Opcode::Write, objects::CHALLENGE) => self.on_challenge(now, n1, message, dt),
            (Opcode::Write, objects::CHALLENGE_REPLY) => {
                self.on_challenge_reply(now, n1, message, dt);
            }
            (Opcode::Read, name) if name != objects::WATCHDOG || !self.is_idle(n1) => {
                self.on_read(now, n1, name, message, dt);
            }
            _ if self.learn(n1, message) => {}
            _ if self.n1s.get(&n1).is_some_and(super::n1::N1::is_up) => {
                self.on_object(now, n1, message, dt);
            }
            _ if self.is_idle(n1) => {
                // The other side takes this IPCP for a neighbour: it still has a connection that
                // this side has ended, because the last M_RELEASE was lost.
                self.discard(n1, "no-connection");
                self.send(now, n1, &Message::new(Opcode::Release), dt);
            }
            _ => {
                let reason = "there is no connection yet";
                self.refuse(now, n1, message, result::UNSUPPORTED, reason, dt);
            }
        }
    }

    fn is_idle(&self, n1: N1Port) -> bool {
        let flow = self.n1s.get(&n1);
        flow.is_some_and(|flow| matches!(flow.stage, super::n1::Stage::Idle))
    }

    /// Handles an operation of a neighbour on an object, or one deferred while this IPCP joined.
    pub(super) fn on_object(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let name = message.name.as_str();
        match (message.opcode, name) {
            (Opcode::Write, objects::A_DATA) => match values::read::<AData>(message) {
                Ok(data) => self.on_a_data(now, Some(n1), data, message, dt),
                Err(_) => self.discard(n1, "a-data-unreadable"),
            },
            (Opcode::Write | Opcode::Create, objects::LINKS) => self.on_links(now, n1, message),
            (Opcode::Create | Opcode::Write, objects::DIRECTORY) => {
                self.on_entries(now, n1, message, dt);
            }
            (Opcode::Delete, _) if objects::directory_key(name).is_some() => {
                let key = objects::directory_key(name).unwrap_or_default();
                self.on_entry_ended(now, n1, key, dt);
            }
            (Opcode::Create | Opcode::Write, objects::CONSTANTS) => self.on_constants(n1, message),
            // Ignored: whatevercast names are not used; cubes are configured at each member;
            // neighbours are known from their enrollment; answers are of no use.
            (Opcode::Create | Opcode::Write, objects::WHATEVERCAST | objects::CUBES)
            | (Opcode::Create | Opcode::Write | Opcode::ReadR, objects::NEIGHBOURS) => {
                self.log.count("objects-ignored");
            }
            _ => {
                let reason = "this member has no such object, or not this operation on it";
                self.refuse(now, n1, message, result::INVALID_OBJECT, reason, dt);
            }
        }
    }

    /// Compares another member's constants of the DIF with this member's: they should be equal.
    fn on_constants(&mut self, n1: N1Port, message: &Message) {
        let Ok(theirs) = values::read::<Constants>(message) else {
            return self.discard(n1, "constants-unreadable");
        };
        self.log.count("objects-ignored");
        let own = self.constants();
        let widths = |of: &Constants| {
            [
                of.address,
                of.cep,
                of.qos,
                of.seq,
                of.length,
                of.rate,
                of.frame,
                of.ctrl_seq,
            ]
        };
        if widths(&own) != widths(&theirs) {
            let text = "a neighbour has other field widths than this member's configuration: \
                        address, CEP-id, QoS-id, sequence number, length, rate, frame, control \
                        sequence number";
            self.log.notice("constants", text);
        }
    }

    /// The constants in this member's configuration, as they are encoded.
    pub(super) fn constants(&self) -> Constants {
        let widths = self.config.widths;
        Constants {
            max_pdu: self.config.max_pdu,
            address: widths.address.into(),
            port: widths.cep.into(),
            cep: widths.cep.into(),
            qos: widths.qos.into(),
            seq: widths.seq.into(),
            length: widths.length.into(),
            rollover: 0,
            max_pdu_lifetime_ms: self.config.max_pdu_lifetime_ms,
            concatenates: self.config.concatenation,
            fragments: false,
            checks_integrity: false,
            retransmit_ms: 0,
            acknowledge_ms: 0,
            rate: widths.rate.into(),
            frame: widths.frame.into(),
            ctrl_seq: widths.ctrl_seq.into(),
        }
    }

    /// Handles M_READ of an object.
    fn on_read(
        &mut self,
        now: Instant,
        n1: N1Port,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.invoke_id == 0 {
            return self.discard(n1, "read-without-id");
        }
        let is_known = self.n1s.get(&n1).is_some_and(|flow| {
            flow.is_up() || matches!(flow.stage, super::n1::Stage::Stopping { .. })
        });
        let value = match name {
            _ if !self.is_member || !is_known => None,
            objects::WATCHDOG => Some(values::value(&Number {
                number: self.address,
            })),
            objects::NEIGHBOURS => Some(values::value(&self.own_neighbour(n1))),
            objects::CONSTANTS => Some(values::value(&self.constants())),
            objects::DIRECTORY => {
                let own = self.directory.registered().take(SHOWN_MAX);
                let all = own.map(|(name, _)| DirectoryEntry {
                    name: Some(Naming::of(name)),
                    address: self.address,
                    seq: 0,
                });
                Some(values::value(&DirectoryEntries { all: all.collect() }))
            }
            objects::LINKS => {
                let own = self.topology.links.own(now);
                let own = own.filter(|(_, report)| report.is_up).take(SHOWN_MAX);
                let all = own.filter_map(|(key, _)| self.flow_state(now, key));
                Some(values::value(&FlowStates { all: all.collect() }))
            }
            _ => None,
        };
        match value {
            Some(value) => {
                let answer = Message {
                    value: Some(value),
                    ..message.answer()
                };
                self.send(now, n1, &answer, dt);
            }
            None => {
                let reason = "this member has no such object for you";
                self.refuse(now, n1, message, result::INVALID_OBJECT, reason, dt);
            }
        }
    }

    /// Sends constants and cubes, to an IPCP to which an address was assigned.
    pub(super) fn send_constants(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let value = self.constants();
        let message =
            objects::request(Opcode::Create, class::CONSTANTS, objects::CONSTANTS, &value);
        self.send(now, n1, &message, dt);
        let value = super::cubes::of(&self.config.cubes);
        let message = objects::request(Opcode::Create, class::CUBES, objects::CUBES, &value);
        self.send(now, n1, &message, dt);
    }
}
