//! The initiator's side of the exchange by which two IPCPs become neighbours.

mod authentication;
mod channel;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::{DataTransfer, Owner};
use carina_ipcp::policy::component;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::dif::CepId;

use super::super::Management;
use super::super::schema::{self, Greeting, Object, Piece, result};
use super::error::AttemptError;
use super::{AuthState, REPEAT_FIRST, REPEAT_MAX, is_none};

/// Longest configuration of a DIF in bytes.
const CONFIG_MAX: u32 = 65_536;

/// An attempt of this side to become a neighbour over one N-1 flow.
pub(in super::super) struct Initiator {
    nonce: u64,
    responder_nonce: u64,
    connect: Message,
    invoke_id: i32,
    state: State,
    /// The encoded message that is repeated until its answer arrives.
    last: Vec<u8>,
    repeat_at: Instant,
    repeat_after: Duration,
    give_up_at: Instant,
    /// Number of the last authentication message that this side sent.
    step: u32,
    auth_state: AuthState,
    peer: Greeting,
    /// The bytes of the DIF's configuration received so far; decoded when complete.
    pieces: Vec<u8>,
    config: Option<DifConfig>,
}

enum State {
    Connecting,
    Authenticating,
    Reading,
    Opening { channel: u32, cep: CepId },
}

impl Initiator {
    pub(super) fn due(&self) -> Instant {
        self.repeat_at.min(self.give_up_at)
    }

    /// The nonce that this side chose for the attempt.
    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    fn step_name(&self) -> &'static str {
        match self.state {
            State::Connecting => "M_CONNECT",
            State::Authenticating => "authentication",
            State::Reading => "the request for the DIF's configuration",
            State::Opening { .. } => "the request for a management channel",
        }
    }

    fn is_answer(&self, greeting: &Greeting) -> bool {
        let answers = greeting.nonce == self.nonce;
        answers && (self.responder_nonce == 0 || greeting.responder_nonce == self.responder_nonce)
    }
}

impl Management {
    /// Starts an attempt over `n1`.
    pub(in super::super) fn initiate(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        if self.leaving.is_some() || self.has_other_attempt(n1) {
            // Only one enrollment runs at a time; its end starts the others.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.retry_at = None;
                flow.is_deferred = true;
            }
            return;
        }
        self.cancel_initiator(now, n1, dt);
        let nonce = self.random.nonce();
        let invoke_id = self.invoke_id();
        let mechanism = self
            .authentication()
            .map_or_else(String::new, |spec| spec.name);
        let greeting = Greeting {
            nonce,
            mechanism,
            ..self.greeting(n1)
        };
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: true,
        });
        let connect = schema::connect(&greeting, invoke_id);
        let last = self.send_to_peer(now, n1, &connect, dt);
        let initiator = Initiator {
            nonce,
            responder_nonce: 0,
            connect,
            invoke_id,
            state: State::Connecting,
            last,
            repeat_at: now + REPEAT_FIRST,
            repeat_after: REPEAT_FIRST,
            give_up_at: now + self.policies.enrollment.step_timeout,
            step: 0,
            auth_state: AuthState::none(),
            peer: Greeting::default(),
            pieces: Vec::new(),
            config: None,
        };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.retry_at = None;
        (flow.last_attempt_at, flow.is_deferred) = (now, false);
        flow.initiator = Some(initiator);
    }

    /// True when an IPCP that is not a member is already joining through another N-1 flow.
    fn has_other_attempt(&self, n1: N1Port) -> bool {
        self.member.is_none()
            && self.n1s.iter().any(|(other, flow)| {
                *other != n1 && (flow.initiator.is_some() || flow.up.is_some())
            })
    }

    /// Ends this side's attempt without sending a message.
    pub(in super::super) fn cancel_initiator(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if let Some(Initiator {
            state: State::Opening { channel, .. },
            ..
        }) = flow.initiator.take()
        {
            dt.close(now, Owner::Channel(channel));
        }
    }

    /// Ends a failed attempt over `n1`, or the enrollment that followed it. `is_passing`: the cause
    /// may pass, so another attempt may succeed.
    pub(in super::super) fn attempt_failed(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        is_passing: bool,
        dt: &mut dyn DataTransfer,
    ) {
        self.cancel_initiator(now, n1, dt);
        self.up_ended(now, n1, reason, dt);
        self.log.count("connect-failed");
        let is_member = self.member.is_some();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.is_refused = !is_passing;
        let is_news = !core::mem::replace(&mut flow.failure_reported, true);
        if is_member {
            let remote = flow.props.remote.clone();
            self.log
                .notice(&remote, &format!("no neighbour at {remote:?}: {reason}"));
        } else if !is_passing {
            let reason = reason.to_string();
            self.log.push(Event::EnrollRefused { n1, reason });
        } else if is_news {
            let reason = reason.to_string();
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        if is_passing {
            self.retry_later(now, n1);
        } else if is_member {
            self.retry_after_longest_pause(now, n1);
        }
        if !is_member {
            // Starts the attempts that were deferred because of this one.
            for (other, flow) in &mut self.n1s {
                let is_idle = flow.retry_at.is_none() && !flow.failure_reported;
                if *other != n1 && (is_idle || flow.is_deferred) {
                    flow.retry_at = Some(now);
                }
            }
        }
    }

    pub(super) fn initiator_timeout(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let Some(initiator) = &mut flow.initiator else {
            return;
        };
        if initiator.give_up_at <= now {
            let reason = format!("no answer to {}", initiator.step_name());
            flow.unanswered_attempts += 1;
            self.attempt_failed(now, n1, &reason, true, dt);
        } else if initiator.repeat_at <= now {
            initiator.repeat_after = (initiator.repeat_after * 2).min(REPEAT_MAX);
            initiator.repeat_at = now + initiator.repeat_after;
            let last = initiator.last.clone();
            self.log.count("repeated");
            dt.send_management(now, carina_ipcp::data_transfer::api::Target::N1(n1), &last);
        }
    }

    /// Sends the next message of the attempt, which is repeated until it is answered.
    fn send_step(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let last = self.send_to_peer(now, n1, message, dt);
        let step_timeout = self.policies.enrollment.step_timeout;
        let Some(initiator) = self
            .n1s
            .get_mut(&n1)
            .and_then(|flow| flow.initiator.as_mut())
        else {
            return;
        };
        initiator.last = last;
        initiator.repeat_after = REPEAT_FIRST;
        initiator.repeat_at = now + REPEAT_FIRST;
        initiator.give_up_at = now + step_timeout;
    }

    fn initiator(&mut self, n1: N1Port) -> Option<&mut Initiator> {
        self.n1s.get_mut(&n1)?.initiator.as_mut()
    }

    /// Handles M_CONNECT_R.
    pub(super) fn on_connect_response(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(greeting) = schema::greeting(message) else {
            return self.log.discard(&peer, "malformed-greeting");
        };
        let Some(initiator) = self.initiator(n1) else {
            self.log.count("stale");
            return;
        };
        let is_first = matches!(initiator.state, State::Connecting | State::Authenticating);
        if !initiator.is_answer(&greeting) || !is_first || message.invoke_id != initiator.invoke_id
        {
            self.log.count("stale");
            return;
        }
        if message.result != 0 {
            return self.on_connect_refused(now, n1, message, &greeting, dt);
        }
        if let Err(error) = self.finish_authentication(now, n1, &greeting) {
            return self.attempt_failed(now, n1, &error.to_string(), false, dt);
        }
        let is_member = self.member.is_some();
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        initiator.responder_nonce = greeting.responder_nonce;
        initiator.peer = greeting;
        if is_member {
            self.open_channel(now, n1, dt);
        } else {
            initiator.state = State::Reading;
            self.read_configuration(now, n1, 0, dt);
        }
    }

    fn on_connect_refused(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        if message.result == result::OTHER_DIF && self.joins_other_dif(greeting) {
            return self.join_other_dif(now, n1, dt);
        }
        let reason = format!("{} refused: {}", greeting.name, message.reason);
        let is_passing = message.result == result::LATER;
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.peer_is_member = greeting.dif_id != 0;
        }
        self.attempt_failed(now, n1, &reason, is_passing, dt);
    }

    fn read_configuration(
        &mut self,
        now: Instant,
        n1: N1Port,
        offset: u32,
        dt: &mut dyn DataTransfer,
    ) {
        let invoke_id = self.invoke_id();
        let mut message = schema::request(Opcode::Read, &Object::Enrollment, None);
        message.invoke_id = invoke_id;
        message.instance = i64::from(offset);
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        message.filter = initiator.responder_nonce.to_be_bytes().to_vec();
        initiator.invoke_id = invoke_id;
        self.send_step(now, n1, &message, dt);
    }

    /// Handles a piece of the DIF's configuration.
    pub(super) fn on_configuration_piece(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(piece) = schema::decode::<Piece>(schema::bytes(message)) else {
            return self.log.discard(&peer, "malformed-value");
        };
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        let is_wanted =
            matches!(initiator.state, State::Reading) && message.invoke_id == initiator.invoke_id;
        if !is_wanted || piece.offset as usize != initiator.pieces.len() {
            self.log.count("stale");
            return;
        }
        if piece.total > CONFIG_MAX || piece.bytes.is_empty() {
            return self.attempt_failed(now, n1, "the DIF's configuration is malformed", true, dt);
        }
        initiator.pieces.extend_from_slice(&piece.bytes);
        let have = initiator.pieces.len() as u64;
        if have < u64::from(piece.total) {
            let offset = initiator.pieces.len() as u32;
            return self.read_configuration(now, n1, offset, dt);
        }
        let pieces = core::mem::take(&mut initiator.pieces);
        match self.apply_configuration(now, &pieces, dt) {
            Ok(config) => {
                if let Some(initiator) = self.initiator(n1) {
                    initiator.config = Some(config);
                }
                self.open_channel(now, n1, dt);
            }
            Err(error) => {
                let reason = format!("the DIF's configuration cannot be used here: {error}");
                self.attempt_failed(now, n1, &reason, false, dt);
            }
        }
    }

    fn apply_configuration(
        &mut self,
        now: Instant,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) -> Result<DifConfig, AttemptError> {
        let mut config = schema::decode_dif(bytes).ok_or(AttemptError::Malformed)?;
        // Each member has its own credentials.
        if let Some(spec) = self
            .given
            .as_ref()
            .and_then(|given| given.policies.get(component::AUTHENTICATION))
            .filter(|spec| !is_none(spec))
        {
            config
                .policies
                .insert(component::AUTHENTICATION.to_string(), spec.clone());
        }
        self.catalogue.check(&config)?;
        dt.configure(now, &config)?;
        Ok(config)
    }
}
