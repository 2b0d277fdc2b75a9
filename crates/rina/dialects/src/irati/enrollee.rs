//! The joining side: how an IPCP joins a DIF or becomes the neighbour of another member.
//!
//! ```text
//!   initiator                                            responder (a member)
//!
//!   CONNECTING    M_CONNECT {policy, versions}  ------->
//!                 <-------  M_WRITE challenge request {text}      CHALLENGING (password only)
//!                 M_WRITE challenge reply {text}  ----->
//!                 <-------  M_CONNECT_R                           ADMITTING
//!   STARTING      M_START enrollment {own address}  --->
//!                 <-------  M_START_R {address, if assigned}      STOPPING
//!   LEARNING      <-------  M_CREATE constants, cubes             (if one was assigned)
//!                 <-------  M_CREATE directory, neighbours
//!                 <-------  M_STOP enrollment {token}
//!   (READING)     M_READ neighbours, if they did not arrive -->
//!   STOPPED       M_STOP_R  ---------------------------->
//!                 <-------  M_START operational status            CONFIRMING
//!   UP            M_START_R {own name, token}  --------->         UP
//!
//!   any stage but UP: no message for 10 s, a refusal, M_RELEASE  -->  IDLE, perhaps a new attempt
//!   UP: M_RELEASE, the N-1 flow ends, keep-alives unanswered     -->  IDLE
//! ```
//!
//! Every request that is answered has invoke id 1, the smallest free one. Nothing is repeated; a
//! failed attempt starts again with M_CONNECT.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Auth, Message, Opcode};
use carina_ipcp::api::{N1Port, N1Properties};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::Instant;
use carina_wire::check_name;

use super::Irati;
use super::n1::{Failure, Peer, STEP_TIMEOUT, Stage};
use super::objects::{self, class, result};
use super::values::{self, EnrollmentInformation, Naming, Neighbour, Neighbours};

/// Largest number of objects that a joining IPCP stores until it is a member.
const LEARNED_MAX: usize = 256;

impl Irati {
    /// Sends M_CONNECT.
    pub(super) fn connect(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let remote = self.called_name(&flow.props);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: true,
        });
        flow.stage = Stage::Connecting { auth: None };
        flow.until = now + STEP_TIMEOUT;
        let message = Message {
            auth: Some(Auth {
                name: self.authentication.wire_name().into(),
                texts: alloc::vec!["1".to_string()],
                ..Auth::default()
            }),
            ..objects::connect(&self.own, &remote)
        };
        self.send(now, n1, &message, dt);
    }

    /// The name that M_CONNECT over an N-1 flow calls. If the flow was requested by the DIF's name,
    /// the member accepts that name.
    pub(super) fn called_name(&self, props: &N1Properties) -> String {
        match props.remote.as_str() {
            "" => self.dif.clone(),
            name => Naming::of(name).ap,
        }
    }

    /// Handles M_CONNECT_R, at the joining IPCP.
    pub(super) fn on_connected(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        src: u64,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let Stage::Connecting { auth } = &flow.stage else {
            return self.discard(n1, "response-unsolicited");
        };
        if message.result != result::SUCCESS {
            // A member that has sent a challenge can only refuse the reply to it.
            let failure = match auth {
                Some(_) => Failure::ForGood,
                None => Failure::of_result(message.result),
            };
            let reason = refusal("the connection", message);
            return self.attempt_failed(now, n1, &reason, failure, dt);
        }
        let name = &message.src.ap;
        if *name == self.own || check_name(name).is_err() {
            let reason = format!("the other end calls itself {name:?}");
            return self.attempt_failed(now, n1, &reason, Failure::ForGood, dt);
        }
        flow.peer = Peer {
            name: name.clone(),
            instance: message.src.api.clone(),
            address: src,
        };
        // The other side has given up its own attempt for this one.
        flow.pending_connect = None;
        flow.stage = Stage::Starting;
        flow.until = now + STEP_TIMEOUT;
        let value = self.information(n1, String::new());
        let start = objects::request(
            Opcode::Start,
            class::ENROLLMENT,
            objects::ENROLLMENT,
            &value,
        );
        self.send(now, n1, &objects::with_invoke_id(start), dt);
    }

    /// What this IPCP says about itself in an enrollment.
    fn information(&self, n1: N1Port, token: String) -> EnrollmentInformation {
        let dif = self.n1s.get(&n1).map(|flow| flow.props.dif.clone());
        EnrollmentInformation {
            address: self.address,
            supporting_difs: dif.into_iter().collect(),
            starts_early: false,
            token,
        }
    }

    /// Handles M_START_R, at the joining IPCP.
    pub(super) fn on_started(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.result != result::SUCCESS {
            let reason = refusal("the enrollment", message);
            let failure = Failure::of_result(message.result);
            return self.attempt_failed(now, n1, &reason, failure, dt);
        }
        if message.value.is_some() {
            let Ok(given) = values::read::<EnrollmentInformation>(message) else {
                let reason = "the answer to M_START of the enrollment cannot be read";
                return self.attempt_failed(now, n1, reason, Failure::Broken, dt);
            };
            if let Err(refused) = self.take_address(given.address, dt) {
                let reason = refused.to_string();
                return self.attempt_failed(now, n1, &reason, Failure::ForGood, dt);
            }
        } else if self.address == 0 {
            let reason = "the member gave no address, and this IPCP has none: \
                          policy address-assignment, parameter `addresses`";
            return self.attempt_failed(now, n1, reason, Failure::ForGood, dt);
        }
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.stage = Stage::Learning {
                learned: Vec::new(),
            };
            flow.until = now + STEP_TIMEOUT;
        }
    }

    /// Stores an object that a member sends during an enrollment. Returns false if none is under
    /// way.
    pub(super) fn learn(&mut self, n1: N1Port, message: &Message) -> bool {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        match &mut flow.stage {
            Stage::Learning { learned }
            | Stage::Reading { learned, .. }
            | Stage::Stopped { learned, .. } => {
                if learned.len() < LEARNED_MAX {
                    learned.push(message.clone());
                } else {
                    self.discard(n1, "objects-too-many");
                }
                true
            }
            _ => false,
        }
    }

    /// Handles M_STOP, at the joining IPCP.
    pub(super) fn on_stop(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let stage = self.n1s.get_mut(&n1).map(|flow| &mut flow.stage);
        let Some(Stage::Learning { learned }) = stage else {
            let reason = "no enrollment is under way";
            return self.refuse(now, n1, message, result::UNSUPPORTED, reason, dt);
        };
        let learned = core::mem::take(learned);
        let token = match values::read::<EnrollmentInformation>(message) {
            Ok(stop) => stop.token,
            Err(_) => {
                let reason = "M_STOP of the enrollment cannot be read";
                self.refuse(now, n1, message, result::UNREADABLE, reason, dt);
                return self.attempt_failed(now, n1, reason, Failure::Broken, dt);
            }
        };
        let is_introduced = learned.iter().any(|one| one.name == objects::NEIGHBOURS);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.until = now + STEP_TIMEOUT;
        if is_introduced {
            flow.stage = Stage::Stopped { learned, token };
            return self.answer_stop(now, n1, dt);
        }
        flow.stage = Stage::Reading { learned, token };
        let read = Message::object(Opcode::Read, class::NEIGHBOURS, objects::NEIGHBOURS);
        self.send(now, n1, &objects::with_invoke_id(read), dt);
    }

    /// Handles M_READ_R of the neighbours, at the joining IPCP. If the member does not answer with
    /// them, its address is taken from the source address of its PDUs.
    pub(super) fn on_neighbours_read(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        match core::mem::replace(&mut flow.stage, Stage::Idle) {
            Stage::Reading { mut learned, token } => {
                if message.result == result::SUCCESS && learned.len() < LEARNED_MAX {
                    learned.push(Message {
                        name: objects::NEIGHBOURS.into(),
                        ..message.clone()
                    });
                }
                flow.until = now + STEP_TIMEOUT;
                flow.stage = Stage::Stopped { learned, token };
                self.answer_stop(now, n1, dt);
            }
            other => {
                flow.stage = other;
                self.discard(n1, "response-unsolicited");
            }
        }
    }

    fn answer_stop(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let answer = Message {
            invoke_id: objects::FIRST_ID,
            ..Message::new(Opcode::StopR)
        };
        self.send(now, n1, &answer, dt);
    }

    /// Handles M_START of the operational status: the joining IPCP is a member now.
    pub(super) fn on_start_operation(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let stage = self.n1s.get_mut(&n1).map(|flow| &mut flow.stage);
        let Some(Stage::Stopped { learned, token }) = stage else {
            let reason = "no enrollment is under way";
            return self.refuse(now, n1, message, result::UNSUPPORTED, reason, dt);
        };
        let (learned, token) = (core::mem::take(learned), core::mem::take(token));
        self.learn_peer(n1, &learned);
        let peer = self.n1s.get(&n1).map(|flow| flow.peer.address);
        if peer.is_none_or(|address| address == 0 || address == self.address) {
            let reason = "the member has not said which address it has";
            self.refuse(now, n1, message, result::ERROR, reason, dt);
            return self.attempt_failed(now, n1, reason, Failure::Broken, dt);
        }
        let confirmation = Neighbour {
            ap: self.own.clone(),
            api: objects::INSTANCE.to_string(),
            ae: objects::party("").ae,
            aei: token,
            address: 0,
            supporting_difs: Vec::new(),
        };
        let answer = Message {
            value: Some(values::value(&confirmation)),
            ..message.answer()
        };
        self.send(now, n1, &answer, dt);
        self.become_member(now, dt);
        self.neighbour_up(now, n1, dt);
        for message in learned {
            self.on_object(now, n1, &message, dt);
        }
    }

    /// Takes the address of the member at the other end from the objects that it has sent.
    fn learn_peer(&mut self, n1: N1Port, learned: &[Message]) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let told = learned
            .iter()
            .filter(|one| one.name == objects::NEIGHBOURS)
            .filter_map(|one| values::read::<Neighbours>(one).ok());
        let itself = told
            .flat_map(|told| told.all)
            .find(|one| one.ap == flow.peer.name && one.address != 0);
        if let Some(itself) = itself {
            flow.peer.address = itself.address;
        }
    }

    /// Answers a request with an error, if the request expects an answer.
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        code: i32,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.discard(n1, "refused");
        if message.invoke_id != 0 {
            let answer = message.answer().with_error(code, reason);
            self.send(now, n1, &answer, dt);
        }
    }
}

/// The context that binds an authentication to the DIF and both names.
pub(super) fn context(dif: &str, joining: &str, admitting: &str) -> Vec<u8> {
    [dif, joining, admitting].join("\n").into_bytes()
}

/// The text for an answer that refuses `what`.
pub(super) fn refusal(what: &str, message: &Message) -> String {
    match message.reason.as_str() {
        "" => format!("the other side refused {what}: result {}", message.result),
        reason => format!("the other side refused {what}: {reason}"),
    }
}
