//! The asking side of the exchange that makes neighbours.

mod proof;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_wire::dif::{Address, CepId};

use super::super::dialect::{self, ChannelEnd, Greeting, Object, Piece, result};
use super::super::enrollment::Joining;
use super::super::{Management, qos};
use super::{Proof, REPEAT_FIRST_NS, REPEAT_MAX_NS, Stage, Up, is_none};
use crate::api::{Event, N1Port};
use crate::config::DifConfig;
use crate::data_transfer::api::{DataTransfer, Open, Owner};
use crate::policy::component;

/// Longest configuration of a DIF in bytes.
const CONFIG_MAX: u32 = 65_536;

/// An attempt of this side.
pub(in super::super) struct Asking {
    nonce: u64,
    answer_nonce: u64,
    connect: Message,
    invoke: i32,
    state: State,
    /// The message that is repeated until its answer comes.
    last: Vec<u8>,
    repeat_at: u64,
    repeat_ns: u64,
    give_up_at: u64,
    /// Number of the last message of this side.
    step: u32,
    proof: Proof,
    peer: Greeting,
    /// The DIF's configuration, as far as it has come; decoded when whole.
    pieces: Vec<u8>,
    config: Option<DifConfig>,
}

enum State {
    Connecting,
    Authenticating,
    Reading,
    Opening { channel: u32, cep: CepId },
}

impl Asking {
    pub(super) fn due(&self) -> u64 {
        self.repeat_at.min(self.give_up_at)
    }

    /// Chosen by this side for the attempt.
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
        answers && (self.answer_nonce == 0 || greeting.answer_nonce == self.answer_nonce)
    }
}

impl Management {
    /// Begins an attempt over `n1`.
    pub(in super::super) fn ask(&mut self, now: u64, n1: N1Port, dt: &mut dyn DataTransfer) {
        if self.leaving.is_some() || self.has_other_attempt(n1) {
            // One enrollment at a time; its end wakes the others.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.retry_at = None;
                flow.is_waiting = true;
            }
            return;
        }
        self.stop_asking(now, n1, dt);
        let nonce = self.random.nonce();
        let invoke = self.invoke();
        let mechanism = self
            .authentication()
            .map_or_else(String::new, |spec| spec.name);
        let greeting = Greeting {
            nonce,
            mechanism,
            ..self.greeting(n1)
        };
        let connect = dialect::connect(&greeting, invoke);
        let last = self.send_plain(now, n1, &connect, dt);
        let asking = Asking {
            nonce,
            answer_nonce: 0,
            connect,
            invoke,
            state: State::Connecting,
            last,
            repeat_at: now + REPEAT_FIRST_NS,
            repeat_ns: REPEAT_FIRST_NS,
            give_up_at: now + self.policies.enrollment.step_ns,
            step: 0,
            proof: Proof::none(),
            peer: Greeting::default(),
            pieces: Vec::new(),
            config: None,
        };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.retry_at = None;
        (flow.asked_at, flow.is_waiting) = (now, false);
        flow.asking = Some(asking);
    }

    /// An IPCP that is no member joins through one N-1 flow at a time.
    fn has_other_attempt(&self, n1: N1Port) -> bool {
        self.member.is_none()
            && self
                .n1s
                .iter()
                .any(|(other, flow)| *other != n1 && (flow.asking.is_some() || flow.up.is_some()))
    }

    /// Ends this side's attempt without a word.
    pub(in super::super) fn stop_asking(
        &mut self,
        now: u64,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if let Some(Asking {
            state: State::Opening { channel, .. },
            ..
        }) = flow.asking.take()
        {
            dt.close(now, Owner::Channel(channel));
        }
    }

    /// The attempt over `n1`, or the enrollment that followed it, came to nothing.
    pub(in super::super) fn attempt_failed(
        &mut self,
        now: u64,
        n1: N1Port,
        reason: &str,
        is_passing: bool,
        dt: &mut dyn DataTransfer,
    ) {
        self.stop_asking(now, n1, dt);
        self.up_ended(now, n1, reason, dt);
        self.journal.count("connect-failed");
        let is_member = self.member.is_some();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.is_refused = !is_passing;
        let is_news = !core::mem::replace(&mut flow.is_told, true);
        if is_member {
            let remote = flow.props.remote.clone();
            self.notice(&remote, &format!("no neighbour at {remote:?}: {reason}"));
        } else if !is_passing {
            let reason = reason.to_string();
            self.events.push_back(Event::EnrollRefused { n1, reason });
        } else if is_news {
            let reason = reason.to_string();
            self.events.push_back(Event::EnrollFailed { n1, reason });
        }
        if is_passing {
            self.retry_later(now, n1);
        } else if is_member {
            self.retry_rarely(now, n1);
        }
        if !is_member {
            // The flows that waited for this one have their turn.
            for (other, flow) in &mut self.n1s {
                let is_idle = flow.retry_at.is_none() && !flow.is_told;
                if *other != n1 && (is_idle || flow.is_waiting) {
                    flow.retry_at = Some(now);
                }
            }
        }
    }

    pub(super) fn asking_timeout(&mut self, now: u64, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let Some(asking) = &mut flow.asking else {
            return;
        };
        if asking.give_up_at <= now {
            let reason = format!("no answer to {}", asking.step_name());
            flow.unheard += 1;
            self.attempt_failed(now, n1, &reason, true, dt);
        } else if asking.repeat_at <= now {
            asking.repeat_ns = (asking.repeat_ns * 2).min(REPEAT_MAX_NS);
            asking.repeat_at = now + asking.repeat_ns;
            let last = asking.last.clone();
            self.journal.count("repeated");
            dt.send_management(now, crate::data_transfer::api::Target::N1(n1), &last);
        }
    }

    /// The next message of the attempt; it is repeated until it is answered.
    fn go_on(&mut self, now: u64, n1: N1Port, message: &Message, dt: &mut dyn DataTransfer) {
        let last = self.send_plain(now, n1, message, dt);
        let step_ns = self.policies.enrollment.step_ns;
        let Some(asking) = self.n1s.get_mut(&n1).and_then(|flow| flow.asking.as_mut()) else {
            return;
        };
        asking.last = last;
        asking.repeat_ns = REPEAT_FIRST_NS;
        asking.repeat_at = now + REPEAT_FIRST_NS;
        asking.give_up_at = now + step_ns;
    }

    fn asking(&mut self, n1: N1Port) -> Option<&mut Asking> {
        self.n1s.get_mut(&n1)?.asking.as_mut()
    }

    /// M_CONNECT_R.
    pub(super) fn on_connect_answer(
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
        let Some(asking) = self.asking(n1) else {
            self.journal.count("stale");
            return;
        };
        let is_first = matches!(asking.state, State::Connecting | State::Authenticating);
        if !asking.is_answer(&greeting) || !is_first || message.invoke_id != asking.invoke {
            self.journal.count("stale");
            return;
        }
        if message.result != 0 {
            return self.on_connect_refused(now, n1, message, &greeting, dt);
        }
        if let Err(reason) = self.finish_proof(now, n1, &greeting) {
            return self.attempt_failed(now, n1, &reason, false, dt);
        }
        let is_member = self.member.is_some();
        let Some(asking) = self.asking(n1) else {
            return;
        };
        asking.answer_nonce = greeting.answer_nonce;
        asking.peer = greeting;
        if is_member {
            self.open_channel(now, n1, dt);
        } else {
            asking.state = State::Reading;
            self.want_piece(now, n1, 0, dt);
        }
    }

    fn on_connect_refused(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        greeting: &Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        if message.result == result::OTHER_DIF && self.yields_to(greeting) {
            return self.join_other(now, n1, dt);
        }
        let reason = format!("{} refused: {}", greeting.name, message.reason);
        let is_passing = message.result == result::LATER;
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.is_promising = greeting.dif_id != 0;
        }
        self.attempt_failed(now, n1, &reason, is_passing, dt);
    }

    fn want_piece(&mut self, now: u64, n1: N1Port, offset: u32, dt: &mut dyn DataTransfer) {
        let invoke = self.invoke();
        let mut message = dialect::request(Opcode::Read, &Object::Enrollment, None);
        message.invoke_id = invoke;
        message.instance = i64::from(offset);
        let Some(asking) = self.asking(n1) else {
            return;
        };
        message.filter = asking.answer_nonce.to_be_bytes().to_vec();
        asking.invoke = invoke;
        self.go_on(now, n1, &message, dt);
    }

    /// A piece of the DIF's configuration.
    pub(super) fn on_piece(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(piece) = dialect::decode::<Piece>(dialect::bytes(message)) else {
            return self.discard(&peer, "malformed-value");
        };
        let Some(asking) = self.asking(n1) else {
            return;
        };
        let is_wanted =
            matches!(asking.state, State::Reading) && message.invoke_id == asking.invoke;
        if !is_wanted || piece.offset as usize != asking.pieces.len() {
            self.journal.count("stale");
            return;
        }
        if piece.total > CONFIG_MAX || piece.bytes.is_empty() {
            return self.attempt_failed(now, n1, "the DIF's configuration is malformed", true, dt);
        }
        asking.pieces.extend_from_slice(&piece.bytes);
        let have = asking.pieces.len() as u64;
        if have < u64::from(piece.total) {
            let offset = asking.pieces.len() as u32;
            return self.want_piece(now, n1, offset, dt);
        }
        let pieces = core::mem::take(&mut asking.pieces);
        match self.take_configuration(now, &pieces, dt) {
            Ok(config) => {
                if let Some(asking) = self.asking(n1) {
                    asking.config = Some(config);
                }
                self.open_channel(now, n1, dt);
            }
            Err(reason) => {
                let reason = format!("the DIF's configuration cannot be used here: {reason}");
                self.attempt_failed(now, n1, &reason, false, dt);
            }
        }
    }

    fn take_configuration(
        &mut self,
        now: u64,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) -> Result<DifConfig, String> {
        let mut config = dialect::decode_dif(bytes).ok_or("it is malformed")?;
        // Credentials are each member's own.
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

    fn open_channel(&mut self, now: u64, n1: N1Port, dt: &mut dyn DataTransfer) {
        let channel = self.new_channel();
        let open = Open {
            owner: Owner::Channel(channel),
            cube: qos::channel_cube(),
            msg_boundaries: true,
            pinned: Some(n1),
        };
        let cep = match dt.open(now, open) {
            Ok(cep) => cep,
            Err(reason) => return self.attempt_failed(now, n1, &reason, true, dt),
        };
        let invoke = self.invoke();
        let Some(asking) = self.asking(n1) else {
            return;
        };
        asking.state = State::Opening { channel, cep };
        asking.invoke = invoke;
        let end = ChannelEnd {
            nonce: asking.nonce,
            answer_nonce: asking.answer_nonce,
            cep: cep.0,
        };
        let value = Some(dialect::encode(&end));
        let mut message = dialect::request(Opcode::Start, &Object::Channel, value);
        message.invoke_id = invoke;
        self.go_on(now, n1, &message, dt);
    }

    /// M_START_R of the channel.
    pub(super) fn on_channel_answer(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(asking) = self.asking(n1) else {
            return;
        };
        let State::Opening { channel, cep } = asking.state else {
            return;
        };
        if message.invoke_id != asking.invoke {
            self.journal.count("stale");
            return;
        }
        if message.result != 0 {
            let reason = format!("{} refused: {}", asking.peer.name, message.reason);
            return self.attempt_failed(now, n1, &reason, false, dt);
        }
        let Some(end) = dialect::decode::<ChannelEnd>(dialect::bytes(message)) else {
            return self.attempt_failed(now, n1, "the management channel is malformed", true, dt);
        };
        let is_exposed = asking.peer.is_exposed;
        let secret = asking.proof.secret;
        let joined = asking.config.clone();
        let of_dif = self.member.as_ref().map(|member| member.config.clone());
        let Some(config) = joined.or(of_dif) else {
            return;
        };
        let is_exposed = is_exposed || self.n1s[&n1].props.is_exposed;
        let protection = match self.sdu_protection(n1, is_exposed, true, secret.as_ref(), &config) {
            Ok(protection) => protection,
            Err(reason) => return self.attempt_failed(now, n1, &reason, false, dt),
        };
        let Some(asking) = self.n1s.get_mut(&n1).and_then(|flow| flow.asking.take()) else {
            return;
        };
        dt.connect(now, cep, Address::NONE, CepId(end.cep));
        self.asked_is_up(now, n1, channel, Box::new(asking), dt);
        dt.set_sdu_protection(n1, protection);
    }

    fn asked_is_up(
        &mut self,
        now: u64,
        n1: N1Port,
        channel: u32,
        asking: Box<Asking>,
        dt: &mut dyn DataTransfer,
    ) {
        let Asking {
            nonce,
            answer_nonce,
            connect,
            peer,
            config,
            ..
        } = *asking;
        let until = now + self.policies.enrollment.step_ns;
        let joins = self.member.is_none();
        let stage = match config {
            Some(config) if joins => Stage::Joining(Joining::new(config, until)),
            _ => Stage::Neighbours,
        };
        let up = Up {
            name: peer.name,
            address: peer.address,
            incarnation: peer.incarnation,
            channel,
            cdap: Management::cdap(now, &connect, true),
            nonces: (nonce, answer_nonce),
            reply: Vec::new(),
            stage,
            heard: now,
            ask_at: now + self.keepalive_ns(),
            missed: 0,
        };
        self.channel_is_up(now, n1, up, dt);
        if joins {
            self.start_joining(now, n1, dt);
        }
    }
}
