//! The responder's side of the exchange by which two IPCPs become neighbours.

mod authentication;
mod channel;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_ipcp::policy::component;
use carina_ipcp::trace::TraceEvent;
use carina_time::Instant;

use super::super::Management;
use super::super::access_control::Operation;
use super::super::entries::Kind;
use super::super::leaving::EXPULSION_TIME;
use super::super::schema::{self, Greeting, Object, Piece, result};
use super::error::{Refusal, TooSmall};
use super::{AuthState, Initiator, MAX_PDU_MAX, PROTECTION_RESERVE};

/// An attempt that the other side started as initiator.
pub(in super::super) struct Responder {
    peer: Greeting,
    nonce: u64,
    responder_nonce: u64,
    connect: Message,
    /// Number of the last authentication message that this side sent.
    step: u32,
    last: Vec<u8>,
    auth_state: AuthState,
    is_accepted: bool,
    pub(super) until: Instant,
}

/// Longest piece of the DIF's configuration in bytes, so that a piece fits in one PDU of any usable
/// N-1 flow.
const PIECE_MAX: usize = 400;

impl Management {
    /// Handles M_CONNECT.
    pub(super) fn on_connect(
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
        let flow = &self.n1s[&n1];
        if let Some(responder) = flow
            .responder
            .as_ref()
            .filter(|responder| responder.nonce == greeting.nonce)
        {
            // M_CONNECT is repeated: the answer was lost or is still on its way.
            let last = responder.last.clone();
            if responder.step == 1 || responder.is_accepted {
                dt.send_management(now, Target::N1(n1), &last);
            }
            return;
        }
        if flow
            .up
            .as_ref()
            .is_some_and(|up| up.nonces.0 == greeting.nonce)
        {
            self.log.count("stale");
            return;
        }
        if self.is_own(&greeting) {
            return self.return_n1_to_itself(now, n1, greeting.nonce, dt);
        }
        if self.wins_collision(now, n1, &greeting, dt) {
            return;
        }
        if let Err(refusal) = self.admit(now, n1, &greeting, dt) {
            let is_other = matches!(refusal, Refusal::OtherDif(_));
            if is_other && self.joins_other_dif(&greeting) {
                return self.join_other_dif(now, n1, dt);
            }
            let (code, reason) = (refusal.code(), refusal.to_string());
            return self.refuse(now, n1, message, &greeting, code, &reason, dt);
        }
        self.begin_response(now, n1, message, greeting, dt);
    }

    /// Resolves two simultaneous attempts. Returns true when this side's attempt continues instead
    /// of the other's.
    fn wins_collision(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let initiator = self.n1s[&n1].initiator.as_ref().map(Initiator::nonce);
        let is_asking = initiator.is_some();
        let is_other_member = greeting.dif_id != 0;
        if self.member.is_none() {
            // Only a member can admit. A member that connects shows that it is reachable now.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.peer_is_member = is_other_member;
            }
            if is_other_member && !is_asking && self.leaving.is_none() {
                self.initiate(now, n1, dt);
            }
            return is_other_member;
        }
        if !is_asking {
            return false;
        }
        let is_first = (&self.own, initiator) < (&greeting.name, Some(greeting.nonce));
        if is_other_member && is_first {
            return true;
        }
        self.cancel_initiator(now, n1, dt);
        false
    }

    /// Checks whether the IPCP at the other end may become a neighbour or join.
    ///
    /// # Errors
    /// Why the IPCP is refused.
    fn admit(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), Refusal> {
        if greeting.syntax != schema::SYNTAX {
            return Err(Refusal::Version {
                theirs: greeting.syntax,
                ours: schema::SYNTAX,
            });
        }
        if greeting.dif != self.dif {
            return Err(Refusal::Dif {
                ours: self.dif.clone(),
                theirs: greeting.dif.clone(),
            });
        }
        // A name conflict between two members is resolved by their replicated entries.
        let dif_id = self.member.as_ref().map_or(0, |member| member.dif_id);
        if greeting.name == self.own && (dif_id == 0 || greeting.dif_id != dif_id) {
            return Err(Refusal::OwnName(self.own.clone()));
        }
        if self.leaving.is_some() {
            return Err(Refusal::Leaving);
        }
        let Some(member) = &self.member else {
            return Err(Refusal::NotMember(self.dif.clone()));
        };
        if greeting.dif_id != 0 && greeting.dif_id != member.dif_id {
            return Err(Refusal::OtherDif(self.dif.clone()));
        }
        if self.is_expelled(&greeting.name) {
            return Err(Refusal::Expelled {
                name: greeting.name.clone(),
                minutes: EXPULSION_TIME.as_secs() / 60,
            });
        }
        if !self.policies.access.allows(&greeting.name, Operation::Join) {
            self.log.count("access-denied");
            return Err(Refusal::Denied(greeting.name.clone()));
        }
        self.derive_max_pdu(now, n1, greeting, dt);
        let needs = self
            .member
            .as_ref()
            .map_or(0, |member| member.config.max_pdu as usize);
        let has = self.n1s[&n1].props.sdu_max.min(greeting.sdu_max as usize);
        if has < needs {
            return Err(Refusal::TooSmall(TooSmall { has, needs }));
        }
        Ok(())
    }

    /// Derives the longest PDU from the first N-1 flow, if the configuration does not set it.
    fn derive_max_pdu(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let props = &self.n1s[&n1].props;
        let is_exposed = props.is_exposed || greeting.is_exposed;
        let mut has = props.sdu_max.min(greeting.sdu_max as usize);
        if dt.max_pdu() != 0 {
            has = has.min(dt.max_pdu() + PROTECTION_RESERVE);
        }
        let Some(member) = &mut self.member else {
            return;
        };
        if member.config.max_pdu != 0 {
            return;
        }
        let is_protected = is_exposed
            && member
                .config
                .policies
                .contains_key(component::SDU_PROTECTION);
        let reserve = if is_protected { PROTECTION_RESERVE } else { 0 };
        member.config.max_pdu = has.saturating_sub(reserve).min(MAX_PDU_MAX) as u32;
        if let Err(error) = dt.configure(now, &member.config) {
            self.log.notice("max_pdu", &error.to_string());
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is refused, to whom and why"
    )]
    fn refuse(
        &mut self,
        now: Instant,
        n1: N1Port,
        connect: &Message,
        greeting: &Greeting,
        code: i32,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.log.count("connect-refused");
        if code != result::LATER {
            self.log.notice(
                &greeting.name,
                &format!("{:?} was refused: {reason}", greeting.name),
            );
        }
        let own = Greeting {
            nonce: greeting.nonce,
            step: 1,
            ..self.greeting(n1)
        };
        let own = Greeting {
            responder_nonce: greeting.responder_nonce,
            ..own
        };
        let answer = schema::connect_answer(connect, &own).with_error(code, reason);
        self.send_to_peer(now, n1, &answer, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.responder = None;
        }
    }

    fn begin_response(
        &mut self,
        now: Instant,
        n1: N1Port,
        connect: &Message,
        greeting: Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let responder_nonce = self.random.nonce();
        let spec = self.authentication();
        if let Some(spec) = &spec
            && !greeting.mechanism.is_empty()
            && greeting.mechanism != spec.name
        {
            let reason = format!(
                "the DIF authenticates with {:?}, not with {:?}",
                spec.name, greeting.mechanism
            );
            return self.refuse(now, n1, connect, &greeting, result::REJECTED, &reason, dt);
        }
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: false,
        });
        let mut responder = Responder {
            nonce: greeting.nonce,
            responder_nonce,
            connect: connect.clone(),
            step: 1,
            last: Vec::new(),
            auth_state: AuthState::none(),
            is_accepted: false,
            until: now + 2 * self.policies.enrollment.step_timeout,
            peer: greeting,
        };
        if let Some(spec) = spec {
            let (peer, own) = (responder.peer.name.clone(), self.own.clone());
            let nonces = (responder.nonce, responder_nonce);
            match self.authenticator(&spec, false, (&peer, &own), nonces) {
                Ok(auth) => responder.auth_state.auth = Some(auth),
                Err(reason) => {
                    self.log
                        .notice("authentication", &format!("authentication: {reason}"));
                    let peer = responder.peer;
                    let reason = "authentication is not possible at this member now";
                    return self.refuse(now, n1, connect, &peer, result::LATER, reason, dt);
                }
            }
            let own = Greeting {
                nonce: nonces.0,
                responder_nonce,
                step: 1,
                mechanism: spec.name,
                ..self.greeting(n1)
            };
            let value = Some(schema::encode(&own));
            let message = schema::request(Opcode::Write, &Object::Authentication, value);
            responder.last = self.send_to_peer(now, n1, &message, dt);
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.responder = Some(responder);
            }
        } else {
            self.accept(now, n1, responder, None, dt);
        }
    }

    /// Accepts an authenticated initiator: sends M_CONNECT_R.
    fn accept(
        &mut self,
        now: Instant,
        n1: N1Port,
        mut responder: Responder,
        token: Option<Vec<u8>>,
        dt: &mut dyn DataTransfer,
    ) {
        let own = Greeting {
            nonce: responder.nonce,
            responder_nonce: responder.responder_nonce,
            step: responder.step,
            token,
            ..self.greeting(n1)
        };
        let message = schema::connect_answer(&responder.connect, &own);
        responder.last = self.send_to_peer(now, n1, &message, dt);
        responder.is_accepted = true;
        responder.until = now + 4 * self.policies.enrollment.step_timeout;
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.responder = Some(responder);
        }
    }

    /// Handles M_READ of a piece of the DIF's configuration.
    pub(super) fn on_configuration_read(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let responder = self.n1s[&n1].responder.as_ref();
        let is_known = responder.is_some_and(|responder| {
            responder.is_accepted && message.filter == responder.responder_nonce.to_be_bytes()
        });
        let Some(member) = self.member.as_ref().filter(|_| is_known) else {
            self.log.count("not-connected");
            return;
        };
        let mut config = member.config.clone();
        if let Some(spec) = config.policies.get_mut(component::AUTHENTICATION) {
            // Parameters of an authentication policy may be secrets.
            spec.params.clear();
        }
        let whole = schema::encode_dif(&config);
        let offset = usize::try_from(message.instance).unwrap_or(usize::MAX);
        if message.invoke_id == 0 || offset >= whole.len() {
            return self
                .log
                .discard(&format!("N-1 flow {}", n1.0), "malformed-value");
        }
        let end = (offset + PIECE_MAX).min(whole.len());
        let piece = Piece {
            offset: offset as u32,
            total: whole.len() as u32,
            bytes: whole[offset..end].to_vec(),
        };
        let answer = schema::answer(message, Some(schema::encode(&piece)));
        self.send_to_peer(now, n1, &answer, dt);
    }

    /// True while a member is expelled by a member that may do so.
    pub(in super::super) fn is_expelled(&self, name: &str) -> bool {
        self.store.all(Kind::Expelled).any(|(origin, member, _)| {
            member == name && self.policies.access.allows(origin, Operation::Expel)
        })
    }

    /// Decides between two DIFs of the same name: true when this member is the only one of its DIF
    /// and gives it up for the other DIF.
    pub(in super::super) fn joins_other_dif(&self, other: &Greeting) -> bool {
        let is_alone = self.members_known() == 1 && other.dif_id != 0;
        is_alone && (other.members > 1 || self.own > other.name)
    }

    /// Ends the membership in a DIF without other members, and enrolls in the DIF at the other end
    /// of `n1`.
    pub(in super::super) fn join_other_dif(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        self.end_membership(
            now,
            "a DIF of this name exists already; this IPCP joins it",
            dt,
        );
        self.enroll_through(now, n1, dt);
    }
}
