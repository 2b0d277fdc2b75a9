//! The member's side of an enrollment. [`enrollee`](super::enrollee) has a diagram of both sides.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_management::Operation;
use carina_time::Instant;
use carina_wire::check_name;

use super::enrollee::{context, refusal};
use super::error::Refusal;
use super::n1::{Peer, STEP_TIMEOUT, Stage};
use super::objects::{self, class, result};
use super::values::{self, EnrollmentInformation, Neighbour, Neighbours};
use super::{Irati, authentication};

impl Irati {
    /// Handles M_CONNECT, whether this IPCP is a member or not.
    pub(super) fn on_connect(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let name = message.src.ap.clone();
        if name == self.own && self.return_n1_to_itself(now, n1, message, dt) {
            return;
        }
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if self.is_member && flow.stage.is_joining() {
            // Two simultaneous attempts: of two members, the attempt of the one with the lower name
            // continues. An IPCP that is not a member refuses, and its own attempt continues.
            if self.own < name {
                flow.pending_connect = Some(message.clone());
                return;
            }
            self.disconnect(now, n1, "the other side asks", false, dt);
        }
        if let Err(refusal) = self.check_initiator(now, n1, message, dt) {
            self.log.count("admissions-refused");
            let reason = refusal.to_string();
            let answer = message.answer().with_error(refusal.code(), &reason);
            return self.send(now, n1, &answer, dt);
        }
        let challenge = match self.authentication.challenge(
            &mut *self.toolbox,
            now,
            &context(&self.dif, &name, &self.own),
        ) {
            Ok(challenge) => challenge,
            Err(error) => {
                self.log.notice("authentication", &error.to_string());
                let reason = "this member cannot authenticate its neighbours";
                let answer = message.answer().with_error(result::REJECTED, reason);
                return self.send(now, n1, &answer, dt);
            }
        };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: false,
        });
        flow.cancel_retry();
        flow.until = now + STEP_TIMEOUT;
        flow.peer = Peer {
            name,
            instance: message.src.api.clone(),
            address: 0,
        };
        match challenge {
            None => self.admit(now, n1, message, dt),
            Some((auth, text)) => {
                flow.stage = Stage::Challenging {
                    auth,
                    connect: Box::new(message.clone()),
                };
                self.send(now, n1, &authentication::request(text), dt);
            }
        }
    }

    /// Accepts the connection: sends M_CONNECT_R.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        n1: N1Port,
        connect: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.stage = Stage::Admitting;
            flow.until = now + STEP_TIMEOUT;
        }
        let mut answer = connect.answer();
        // An IPCP that was called by the DIF's name answers with its own name.
        answer.src.ap.clone_from(&self.own);
        self.send(now, n1, &answer, dt);
    }

    /// Checks whether an initiator may connect.
    ///
    /// # Errors
    /// Why it may not connect.
    fn check_initiator(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), Refusal> {
        let name = &message.src.ap;
        if !self.is_member {
            return Err(Refusal::NotMember(self.own.clone()));
        }
        if *name == self.own || check_name(name).is_err() {
            return Err(Refusal::Name(name.clone()));
        }
        if self.expelled.contains(name) {
            return Err(Refusal::Expelled(name.clone()));
        }
        if !self.access.allows(name, Operation::Join) {
            return Err(Refusal::Denied(name.clone()));
        }
        let offered = message.auth.as_ref().map_or("", |auth| auth.name.as_str());
        let wanted = self.authentication.wire_name();
        if offered != wanted {
            return Err(Refusal::Authentication {
                wanted,
                offered: offered.to_string(),
            });
        }
        dt.carries(n1)?;
        // An N-1 flow over Ethernet, for example, does not end when the neighbour does.
        let old = self.n1_of(name);
        let suspect = match self.n1s.get(&n1) {
            Some(flow) if flow.is_up() => Some(n1),
            _ => old,
        };
        let Some(suspect) = suspect else {
            return Ok(());
        };
        if let Some(flow) = self.n1s.get_mut(&suspect) {
            flow.suspect_until.get_or_insert(now + STEP_TIMEOUT / 2);
        }
        self.send_keepalive(now, suspect, dt);
        Err(Refusal::Neighbour(name.clone()))
    }

    /// Handles M_START, at the member.
    pub(super) fn on_start(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        if !matches!(flow.stage, Stage::Admitting) {
            let reason = "no enrollment is under way";
            return self.refuse(now, n1, message, result::UNSUPPORTED, reason, dt);
        }
        let Ok(wanted) = values::read::<EnrollmentInformation>(message) else {
            let reason = "the value of the enrollment cannot be read";
            return self.refuse(now, n1, message, result::UNREADABLE, reason, dt);
        };
        let peer = flow.peer.clone();
        let address = match self.assign(&peer, wanted.address) {
            Ok(address) => address,
            Err(error) => {
                let reason = error.to_string();
                let text = format!("{:?} was not admitted: {reason}", peer.name);
                self.log.notice("admission", &text);
                // Waiting may free an address, but does not add a missing entry.
                let code = if self.addresses.knows(&peer.name, &peer.instance) {
                    result::ERROR
                } else {
                    result::ACCESS
                };
                self.refuse(now, n1, message, code, &reason, dt);
                return self.disconnect(now, n1, &reason, false, dt);
            }
        };
        let token = (self.random() >> 33).to_string();
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.peer.address = address;
            flow.until = now + STEP_TIMEOUT;
            flow.stage = Stage::Stopping {
                token: token.clone(),
            };
        }
        let value = EnrollmentInformation {
            address,
            token,
            ..wanted
        };
        let is_new = wanted.address != address;
        let answer = Message {
            value: is_new.then(|| {
                values::value(&EnrollmentInformation {
                    token: String::new(),
                    ..value.clone()
                })
            }),
            ..message.answer()
        };
        self.send(now, n1, &answer, dt);
        if is_new {
            self.send_constants(now, n1, dt);
        }
        self.send_directory(now, n1, dt);
        let own = self.own_neighbour(n1);
        let own = objects::request(Opcode::Create, class::NEIGHBOURS, objects::NEIGHBOURS, &own);
        self.send(now, n1, &own, dt);
        let stop = objects::request(Opcode::Stop, class::ENROLLMENT, objects::ENROLLMENT, &value);
        self.send(now, n1, &objects::with_invoke_id(stop), dt);
    }

    /// This member, as encoded neighbour of the IPCP behind an N-1 flow.
    pub(super) fn own_neighbour(&self, n1: N1Port) -> Neighbours {
        let dif = self.n1s.get(&n1).map(|flow| flow.props.dif.clone());
        Neighbours {
            all: alloc::vec![Neighbour {
                ap: self.own.clone(),
                api: objects::INSTANCE.to_string(),
                ae: String::new(),
                aei: String::new(),
                address: self.address,
                supporting_difs: dif.into_iter().collect(),
            }],
        }
    }

    /// Handles M_STOP_R, at the member.
    pub(super) fn on_stopped(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let Stage::Stopping { token } = &flow.stage else {
            return self.discard(n1, "response-unsolicited");
        };
        if message.result != result::SUCCESS {
            let reason = refusal("the end of the enrollment", message);
            return self.disconnect(now, n1, &reason, true, dt);
        }
        flow.stage = Stage::Confirming {
            token: token.clone(),
        };
        flow.until = now + STEP_TIMEOUT;
        let start = Message::object(Opcode::Start, class::STATUS, objects::STATUS);
        self.send(now, n1, &objects::with_invoke_id(start), dt);
    }

    /// Handles M_START_R of the operational status, at the member.
    pub(super) fn on_confirmed(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let Stage::Confirming { token } = &flow.stage else {
            return self.discard(n1, "response-unsolicited");
        };
        let neighbour = values::read::<Neighbour>(message);
        let is_right = message.result == result::SUCCESS
            && neighbour
                .is_ok_and(|neighbour| neighbour.ap == flow.peer.name && neighbour.aei == *token);
        if is_right {
            self.log.count("enrolled-others");
            return self.neighbour_up(now, n1, dt);
        }
        let reason = "its name or token at the end of the enrollment is wrong";
        let text = format!("{:?} was not admitted: {reason}", flow.peer.name);
        self.log.notice("admission", &text);
        self.disconnect(now, n1, reason, true, dt);
    }
}
