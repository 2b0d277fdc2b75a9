//! The answering side of the exchange that makes neighbours.

mod proof;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_wire::dif::{Address, CepId};

use super::super::access::Deed;
use super::super::dialect::{self, ChannelEnd, Greeting, Object, Piece, result};
use super::super::leaving::BAN_NS;
use super::super::replicated::Kind;
use super::super::{MS, Management, qos};
use super::{Asking, MAX_PDU_MAX, PROTECTION_RESERVE, Proof, Stage, Up, too_small};
use crate::api::N1Port;
use crate::data_transfer::api::{DataTransfer, Open, Owner, Target};
use crate::policy::component;

/// An attempt of the other side.
pub(in super::super) struct Answering {
    peer: Greeting,
    nonce: u64,
    answer_nonce: u64,
    connect: Message,
    /// Number of the last message of this side.
    step: u32,
    last: Vec<u8>,
    proof: Proof,
    is_accepted: bool,
    pub(super) until: u64,
}

/// Why an M_CONNECT is refused: result and words.
type Refusal = (i32, String);

/// Longest piece of the DIF's configuration, so that it fits in one PDU of any N-1 flow that is of
/// use.
const PIECE_MAX: usize = 400;

impl Management {
    /// M_CONNECT.
    pub(super) fn on_connect(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(greeting) = dialect::greeting(message) else {
            return self.discard(&peer, "malformed-greeting");
        };
        let flow = &self.n1s[&n1];
        if let Some(answering) = flow
            .answering
            .as_ref()
            .filter(|it| it.nonce == greeting.nonce)
        {
            // M_CONNECT again: the answer was lost, or is on its way.
            let last = answering.last.clone();
            if answering.step == 1 || answering.is_accepted {
                dt.send_management(now, Target::N1(n1), &last);
            }
            return;
        }
        if flow
            .up
            .as_ref()
            .is_some_and(|up| up.nonces.0 == greeting.nonce)
        {
            self.journal.count("stale");
            return;
        }
        if self.goes_first(now, n1, &greeting, dt) {
            return;
        }
        if let Err((code, reason)) = self.admit(now, n1, &greeting, dt) {
            if code == result::OTHER_DIF && self.yields_to(&greeting) {
                return self.join_other(now, n1, dt);
            }
            return self.refuse(now, n1, message, &greeting, code, &reason, dt);
        }
        self.begin_answer(now, n1, message, greeting, dt);
    }

    /// Both sides ask at once: true when this side's attempt goes on instead of the other's.
    fn goes_first(
        &mut self,
        now: u64,
        n1: N1Port,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let asking = self.n1s[&n1].asking.as_ref().map(Asking::nonce);
        let is_asking = asking.is_some();
        let is_other_member = greeting.dif_id != 0;
        if self.member.is_none() {
            // Only a member can answer. One that asks shows that it is there now.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.is_promising = is_other_member;
            }
            if is_other_member && !is_asking && self.leaving.is_none() {
                self.ask(now, n1, dt);
            }
            return is_other_member;
        }
        if !is_asking {
            return false;
        }
        let is_first = (&self.own, asking) < (&greeting.name, Some(greeting.nonce));
        if is_other_member && is_first {
            return true;
        }
        self.stop_asking(now, n1, dt);
        false
    }

    /// Checks whether the IPCP at the other end may become a neighbour or a member.
    fn admit(
        &mut self,
        now: u64,
        n1: N1Port,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), Refusal> {
        let rejected = |reason: String| Err((result::REJECTED, reason));
        if greeting.syntax != dialect::SYNTAX {
            return rejected(format!(
                "version {} of management is spoken there, version {} here",
                greeting.syntax,
                dialect::SYNTAX
            ));
        }
        if greeting.dif != self.dif {
            return rejected(format!(
                "this is DIF {:?}, not {:?}",
                self.dif, greeting.dif
            ));
        }
        // Two members of one name that meet are told apart by what the DIF knows of them.
        let dif_id = self.member.as_ref().map_or(0, |member| member.dif_id);
        if greeting.name == self.own && (dif_id == 0 || greeting.dif_id != dif_id) {
            return rejected(format!(
                "{:?} is the name of this IPCP; choose another",
                self.own
            ));
        }
        if self.leaving.is_some() {
            return Err((result::LATER, "this IPCP is leaving the DIF".into()));
        }
        let Some(member) = &self.member else {
            let reason = format!("this IPCP is no member of DIF {:?} yet", self.dif);
            return Err((result::LATER, reason));
        };
        if greeting.dif_id != 0 && greeting.dif_id != member.dif_id {
            return Err((
                result::OTHER_DIF,
                format!(
                    "this is another DIF with the name {:?}, made by another bootstrap; \
                     let one of them leave and join",
                    self.dif
                ),
            ));
        }
        if self.is_expelled(&greeting.name) {
            let minutes = BAN_NS / (60_000 * MS);
            let reason = format!(
                "{:?} was expelled; the name is admitted again {minutes} minutes after that",
                greeting.name
            );
            return Err((result::ACCESS, reason));
        }
        if !self.policies.access.allows(&greeting.name, Deed::Join) {
            self.journal.count("access-denied");
            let reason = format!(
                "{:?} may not join; see policy access-control",
                greeting.name
            );
            return Err((result::ACCESS, reason));
        }
        self.settle_max_pdu(now, n1, greeting, dt);
        let max_pdu = self
            .member
            .as_ref()
            .map_or(0, |member| member.config.max_pdu as usize);
        let has = self.n1s[&n1].props.sdu_max.min(greeting.sdu_max as usize);
        if has < max_pdu {
            return rejected(too_small(has, max_pdu));
        }
        Ok(())
    }

    /// A DIF whose longest PDU was left open takes what the first N-1 flow carries.
    fn settle_max_pdu(
        &mut self,
        now: u64,
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
        if let Err(reason) = dt.configure(now, &member.config) {
            self.notice("max_pdu", &reason);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is refused, to whom and why"
    )]
    fn refuse(
        &mut self,
        now: u64,
        n1: N1Port,
        connect: &Message,
        greeting: &Greeting,
        code: i32,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.journal.count("connect-refused");
        if code != result::LATER {
            self.notice(
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
            answer_nonce: greeting.answer_nonce,
            ..own
        };
        let answer = dialect::connect_answer(connect, &own).with_error(code, reason);
        self.send_plain(now, n1, &answer, dt);
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.answering = None;
        }
    }

    fn begin_answer(
        &mut self,
        now: u64,
        n1: N1Port,
        connect: &Message,
        greeting: Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let answer_nonce = self.random.nonce();
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
        let mut answering = Answering {
            nonce: greeting.nonce,
            answer_nonce,
            connect: connect.clone(),
            step: 1,
            last: Vec::new(),
            proof: Proof::none(),
            is_accepted: false,
            until: now + 2 * self.policies.enrollment.step_ns,
            peer: greeting,
        };
        if let Some(spec) = spec {
            let (peer, own) = (answering.peer.name.clone(), self.own.clone());
            let nonces = (answering.nonce, answer_nonce);
            match self.authenticator(&spec, false, (&peer, &own), nonces) {
                Ok(auth) => answering.proof.auth = Some(auth),
                Err(reason) => {
                    self.notice("authentication", &format!("authentication: {reason}"));
                    let peer = answering.peer;
                    let reason = "authentication is not possible at this member now";
                    return self.refuse(now, n1, connect, &peer, result::LATER, reason, dt);
                }
            }
            let own = Greeting {
                nonce: nonces.0,
                answer_nonce,
                step: 1,
                mechanism: spec.name,
                ..self.greeting(n1)
            };
            let value = Some(dialect::encode(&own));
            let message = dialect::request(Opcode::Write, &Object::Authentication, value);
            answering.last = self.send_plain(now, n1, &message, dt);
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.answering = Some(answering);
            }
        } else {
            self.accept(now, n1, answering, None, dt);
        }
    }

    /// M_CONNECT_R: the other side is who it should be.
    fn accept(
        &mut self,
        now: u64,
        n1: N1Port,
        mut answering: Answering,
        token: Option<Vec<u8>>,
        dt: &mut dyn DataTransfer,
    ) {
        let own = Greeting {
            nonce: answering.nonce,
            answer_nonce: answering.answer_nonce,
            step: answering.step,
            token,
            ..self.greeting(n1)
        };
        let message = dialect::connect_answer(&answering.connect, &own);
        answering.last = self.send_plain(now, n1, &message, dt);
        answering.is_accepted = true;
        answering.until = now + 4 * self.policies.enrollment.step_ns;
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.answering = Some(answering);
        }
    }

    /// The other side asks for a piece of the DIF's configuration.
    pub(super) fn on_piece_wanted(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let answering = self.n1s[&n1].answering.as_ref();
        let is_known = answering.is_some_and(|answering| {
            answering.is_accepted && message.filter == answering.answer_nonce.to_be_bytes()
        });
        let Some(member) = self.member.as_ref().filter(|_| is_known) else {
            self.journal.count("not-connected");
            return;
        };
        let mut config = member.config.clone();
        if let Some(spec) = config.policies.get_mut(component::AUTHENTICATION) {
            // Parameters of an authentication may be secrets.
            spec.params.clear();
        }
        let whole = dialect::encode_dif(&config);
        let offset = usize::try_from(message.instance).unwrap_or(usize::MAX);
        if message.invoke_id == 0 || offset >= whole.len() {
            return self.discard(&format!("N-1 flow {}", n1.0), "malformed-value");
        }
        let end = (offset + PIECE_MAX).min(whole.len());
        let piece = Piece {
            offset: offset as u32,
            total: whole.len() as u32,
            bytes: whole[offset..end].to_vec(),
        };
        let answer = dialect::answer(message, Some(dialect::encode(&piece)));
        self.send_plain(now, n1, &answer, dt);
    }

    /// M_START of the channel.
    pub(super) fn on_channel_wanted(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(end) = dialect::decode::<ChannelEnd>(dialect::bytes(message)) else {
            return self.discard(&format!("N-1 flow {}", n1.0), "malformed-value");
        };
        let nonces = (end.nonce, end.answer_nonce);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if let Some(up) = flow.up.as_ref().filter(|up| up.nonces == nonces) {
            let reply = up.reply.clone();
            return dt.send_management(now, Target::N1(n1), &reply);
        }
        let accepted = |answering: &mut Answering| {
            answering.is_accepted && (answering.nonce, answering.answer_nonce) == nonces
        };
        let Some(answering) = flow.answering.take_if(accepted) else {
            self.journal.count("not-connected");
            return;
        };
        if let Err(reason) = self.answered_is_up(now, n1, message, CepId(end.cep), answering, dt) {
            let answer = message.answer().with_error(result::REJECTED, &reason);
            self.notice(&reason, &reason);
            self.send_plain(now, n1, &answer, dt);
        }
    }

    fn answered_is_up(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        remote: CepId,
        answering: Answering,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), String> {
        let config = self.member.as_ref().map(|member| member.config.clone());
        let config = config.ok_or("this IPCP is no member any more")?;
        let is_exposed = answering.peer.is_exposed || self.n1s[&n1].props.is_exposed;
        let secret = answering.proof.secret;
        let protection = self.sdu_protection(n1, is_exposed, false, secret.as_ref(), &config)?;
        let channel = self.new_channel();
        let open = Open {
            owner: Owner::Channel(channel),
            cube: qos::channel_cube(),
            msg_boundaries: true,
            pinned: Some(n1),
        };
        let cep = dt.open(now, open)?;
        dt.connect(now, cep, Address::NONE, remote);
        let Answering {
            nonce,
            answer_nonce,
            connect,
            peer,
            ..
        } = answering;
        let value = ChannelEnd {
            nonce,
            answer_nonce,
            cep: cep.0,
        };
        let answer = dialect::answer(message, Some(dialect::encode(&value)));
        let reply = self.send_plain(now, n1, &answer, dt);
        let until = now + 4 * self.policies.enrollment.step_ns;
        let stage = match peer.dif_id {
            0 => Stage::Admitting { address: 0, until },
            _ => Stage::Neighbours,
        };
        let up = Up {
            name: peer.name,
            address: peer.address,
            incarnation: peer.incarnation,
            channel,
            cdap: Management::cdap(now, &connect, false),
            nonces: (nonce, answer_nonce),
            reply,
            stage,
            heard: now,
            ask_at: now + self.keepalive_ns(),
            missed: 0,
        };
        self.channel_is_up(now, n1, up, dt);
        dt.set_sdu_protection(n1, protection);
        Ok(())
    }

    /// True when a member was told to leave and the time is not over.
    pub(in super::super) fn is_expelled(&self, name: &str) -> bool {
        self.store.all(Kind::Expelled).any(|(origin, member, _)| {
            member == name && self.policies.access.allows(origin, Deed::Expel)
        })
    }

    /// Of two DIFs with one name, one that has a single member gives way to the other.
    pub(in super::super) fn yields_to(&self, other: &Greeting) -> bool {
        let is_alone = self.members_known() == 1 && other.dif_id != 0;
        is_alone && (other.members > 1 || self.own > other.name)
    }

    /// Gives up a DIF that has no other member, to join the one at the other end of `n1`.
    pub(in super::super) fn join_other(&mut self, now: u64, n1: N1Port, dt: &mut dyn DataTransfer) {
        self.forget_membership(now, "there is a DIF of this name already; joining it", dt);
        self.enroll_by(now, n1, dt);
    }
}
