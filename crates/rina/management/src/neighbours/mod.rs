//! N-1 flows, and the exchange by which the IPCPs at their ends become neighbours.
//!
//! ```text
//!  initiator                                             responder (a member)
//!    M_CONNECT {nonce}                        ---------->
//!                                             <----------  M_WRITE authentication {both nonces}
//!    M_WRITE authentication {token}           ---------->        as often as the policy needs
//!                                             <----------  M_CONNECT_R {both nonces, DIF identity}
//!    M_READ enrollment, piece by piece        <--------->  M_READ_R {DIF's configuration}
//!       (only by an IPCP that is not a member)
//!    M_START channel {CEP-id}                 ---------->
//!                                             <----------  M_START_R channel {CEP-id}
//!    ======================= management channel, protected =======================
//! ```
//!
//! All these messages are management PDUs, sent one at a time: the initiator repeats its last
//! message until the next one arrives, and the responder repeats its answer when it receives a
//! message again. Nonces distinguish the attempts. When both sides are initiators at once, one
//! attempt continues: that of an IPCP that is not a member or, of two members, that of the one with
//! the lower name.

mod detaching;
mod ending;
mod error;
mod initiator;
mod negotiation;
mod responder;
mod timers;
mod to_itself;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Connection, Limits, Message, Opcode, Rules};
use carina_ipcp::api::{Event, N1Port, N1Properties};
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::{DataTransfer, Owner, Target};
use carina_ipcp::security::Authenticator;
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::Management;
use super::schema::Object;

use detaching::Detaching;
pub(super) use initiator::Initiator;
use negotiation::is_none;
pub(super) use responder::Responder;

/// First pause before a message is repeated.
const REPEAT_FIRST: Duration = Duration::from_millis(250);

/// Longest pause before a message is repeated.
const REPEAT_MAX: Duration = Duration::from_secs(4);

/// First pause before another attempt.
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// Bytes that protection may add to the DIF's longest PDU, assumed while the protection is not
/// known yet.
const PROTECTION_RESERVE: usize = 64;

/// How long the channel to a neighbour that has left is kept, so that the answer to its M_RELEASE
/// reaches it.
const RELEASED_GRACE: Duration = Duration::from_millis(100);

/// Longest PDU of any DIF.
const MAX_PDU_MAX: usize = 65_535;

/// State of an N-1 flow in layer management.
pub(super) struct N1 {
    pub(super) props: N1Properties,
    pub(super) initiator: Option<Initiator>,
    pub(super) responder: Option<Responder>,
    pub(super) up: Option<Up>,
    /// When this IPCP next tries to connect to the IPCP at the other end of the flow, to join the
    /// DIF or to become its neighbour. `None`: no attempt is scheduled.
    retry_at: Option<Instant>,
    /// The pause before the next scheduled attempt; doubled after each failure.
    retry_after: Duration,
    /// The failure of an attempt has been reported to the owner, and no attempt since has
    /// succeeded.
    pub(super) failure_reported: bool,
    /// The other end has refused an attempt for a lasting reason.
    is_refused: bool,
    /// The other end has shown by a message that it is a member.
    peer_is_member: bool,
    /// When this IPCP started its last attempt to connect.
    last_attempt_at: Instant,
    /// The next attempt waits until the attempt over another N-1 flow ends.
    is_deferred: bool,
    /// Number of consecutive attempts to which the other end has not answered at all.
    unanswered_attempts: u32,
    /// When the neighbour was lost or released the channel; `None` as soon as the neighbour
    /// connects again.
    lost_at: Option<Instant>,
    /// This IPCP stops using the N-1 flow: it has released the neighbour, and returns the flow
    /// after a grace period.
    detaching: Option<Detaching>,
}

/// A management channel to the IPCP at the other end of an N-1 flow.
pub(super) struct Up {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) incarnation: u64,
    pub(super) channel: u32,
    pub(super) cdap: Connection,
    /// Nonces of the attempt that opened the channel: the initiator's and the responder's.
    nonces: (u64, u64),
    /// The responder's last answer, which is repeated on request; empty at the initiator.
    reply: Vec<u8>,
    pub(super) stage: Stage,
    /// When the last message of the other end arrived.
    pub(super) heard: Instant,
    pub(super) ask_at: Instant,
    pub(super) missed: u32,
}

/// State of two IPCPs with a management channel between them.
pub(super) enum Stage {
    /// This IPCP joins the DIF through the IPCP at the other end of the N-1 flow.
    Joining(Joining),
    /// The other IPCP joins through this one. `address` is the address assigned to it; 0 for none
    /// yet.
    Admitting { address: u64, until: Instant },
    /// Both are members and neighbours.
    Neighbours,
    /// The other IPCP has left. The channel is kept for the answer to its M_RELEASE.
    Released { until: Instant },
}

/// What a joining IPCP has received so far.
pub(super) struct Joining {
    pub(super) config: DifConfig,
    /// This IPCP's address and the identity of the DIF, both from M_START_R.
    pub(super) given: Option<(u64, u64)>,
    pub(super) until: Instant,
}

impl Joining {
    pub(super) fn new(config: DifConfig, until: Instant) -> Joining {
        Joining {
            config,
            given: None,
            until,
        }
    }

    /// The message that the joining IPCP waits for.
    pub(super) fn step(&self) -> &'static str {
        match self.given {
            None => "M_START of the enrollment",
            Some(_) => "M_STOP of the enrollment, which follows what members know",
        }
    }
}

/// The authentication under way, and the secret that it has produced.
pub(super) struct AuthState {
    pub(super) auth: Option<Box<dyn Authenticator>>,
    pub(super) secret: Option<[u8; 32]>,
}

impl AuthState {
    fn none() -> AuthState {
        AuthState {
            auth: None,
            secret: None,
        }
    }
}

impl Management {
    pub(super) fn n1_up(
        &mut self,
        now: Instant,
        n1: N1Port,
        props: N1Properties,
        dt: &mut dyn DataTransfer,
    ) {
        if self.n1s.contains_key(&n1) {
            self.n1_down(now, n1, "the N-1 flow came up again", dt);
        }
        dt.add_n1(n1, &props);
        self.has_left = false;
        let starts = self.member.is_none() || props.is_initiator;
        self.n1s.insert(
            n1,
            N1 {
                props,
                initiator: None,
                responder: None,
                up: None,
                retry_at: None,
                retry_after: RETRY_FIRST,
                failure_reported: false,
                is_refused: false,
                peer_is_member: false,
                last_attempt_at: Instant::ZERO,
                is_deferred: false,
                unanswered_attempts: 0,
                lost_at: None,
                detaching: None,
            },
        );
        if starts && self.leaving.is_none() {
            self.initiate(now, n1, dt);
        }
    }

    pub(super) fn n1_down(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        if !self.n1s.contains_key(&n1) {
            return;
        }
        let reason = format!("the N-1 flow ended: {reason}");
        let was_asking = self.n1s[&n1].initiator.is_some() || self.is_joining(n1);
        if was_asking && self.member.is_none() {
            self.log.push(Event::EnrollFailed {
                n1,
                reason: reason.clone(),
            });
        }
        self.cancel_initiator(now, n1, dt);
        self.up_ended(now, n1, &reason, dt);
        let Some(gone) = self.n1s.remove(&n1) else {
            return;
        };
        dt.remove_n1(now, n1);
        let is_given_up = gone.is_refused || gone.detaching.is_some();
        let is_wanted = gone.props.is_initiator && !is_given_up && !self.has_left;
        if is_wanted && !gone.props.remote.is_empty() {
            self.schedule_reconnect(now, gone.props.dif, gone.props.remote);
        }
        self.schedule_idle_flows(now, dt);
    }

    /// Handles [`Command::Enroll`](carina_ipcp::Command::Enroll) through this N-1 flow.
    pub(super) fn enroll_through(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            let reason = "there is no such N-1 flow".to_string();
            self.log.push(Event::EnrollFailed { n1, reason });
            return;
        };
        flow.failure_reported = false;
        flow.is_refused = false;
        flow.retry_after = RETRY_FIRST;
        self.has_left = false;
        if flow.initiator.is_none() && flow.up.is_none() {
            self.initiate(now, n1, dt);
        }
    }

    /// Schedules attempts over the N-1 flows that have none and are not in use.
    pub(super) fn schedule_idle_flows(&mut self, now: Instant, _dt: &mut dyn DataTransfer) {
        let is_member = self.member.is_some();
        for flow in self.n1s.values_mut() {
            let is_busy = flow.initiator.is_some() || flow.up.is_some() || flow.responder.is_some();
            let is_idle = !is_busy && flow.detaching.is_none();
            if is_idle && (flow.props.is_initiator || !is_member) && self.leaving.is_none() {
                flow.retry_at = Some(
                    flow.retry_at
                        .unwrap_or(now)
                        .min(now + Duration::from_millis(50)),
                );
            }
        }
    }

    /// Handles a management PDU from the other end of `n1`, or from a member beyond it.
    pub(super) fn on_management_pdu(
        &mut self,
        now: Instant,
        n1: N1Port,
        src: Address,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => return self.log.discard(&peer, error.name()),
        };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return self.log.discard(&peer, "unknown-n1");
        };
        flow.unanswered_attempts = 0;
        if flow.detaching.is_some() {
            return self.log.count("n1-detaching");
        }
        let object = Object::parse(&message.name);
        if is_of_exchange(message.opcode, object.as_ref()) {
            flow.lost_at = None;
        }
        if message.opcode == Opcode::Connect {
            self.released_ended(now, n1, dt);
        }
        match (message.opcode, object) {
            (Opcode::Connect, _) => self.on_connect(now, n1, &message, dt),
            (Opcode::ConnectR, _) => self.on_connect_response(now, n1, &message, dt),
            (Opcode::Release, _) => self.on_attempt_release(now, n1),
            (Opcode::Write, Some(Object::Authentication)) => {
                self.on_authentication(now, n1, &message, dt);
            }
            (Opcode::Read, Some(Object::Enrollment)) => {
                self.on_configuration_read(now, n1, &message, dt)
            }
            (Opcode::ReadR, Some(Object::Enrollment)) => {
                self.on_configuration_piece(now, n1, &message, dt)
            }
            (Opcode::Start, Some(Object::Channel)) => {
                self.on_channel_request(now, n1, &message, dt)
            }
            (Opcode::StartR, Some(Object::Channel)) => {
                self.on_channel_response(now, n1, &message, dt);
            }
            _ => self.on_member_pdu(now, n1, src, message, dt),
        }
    }

    /// Sends a message to the other end of `n1`, without a channel. Returns the encoded message.
    fn send_to_peer(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Vec<u8> {
        let bytes = message.encode();
        dt.send_management(now, Target::N1(n1), &bytes);
        bytes
    }

    /// Starts to use a channel that is open at both ends. An earlier channel over the same N-1 flow
    /// ends; the same incarnation of the other IPCP stays a neighbour without interruption.
    fn channel_is_up(&mut self, now: Instant, n1: N1Port, up: Up, dt: &mut dyn DataTransfer) {
        let is_same = self.n1s[&n1].up.as_ref().is_some_and(|old| {
            old.incarnation == up.incarnation && matches!(old.stage, Stage::Neighbours)
        });
        if is_same {
            if let Some(old) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.take()) {
                self.channels.remove(&old.channel);
                dt.close(now, Owner::Channel(old.channel));
            }
        } else {
            self.up_ended(now, n1, "the other end has restarted", dt);
        }
        self.channels.insert(up.channel, n1);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.retry_at = None;
        flow.retry_after = RETRY_FIRST;
        (flow.unanswered_attempts, flow.lost_at) = (0, None);
        let is_member = matches!(up.stage, Stage::Neighbours);
        flow.up = Some(up);
        if is_member && is_same {
            self.compare_with(now, n1, false, dt);
        } else if is_member {
            self.neighbour_up(now, n1, dt);
        }
    }

    /// The state of a CDAP connection, made after the exchange has replaced M_CONNECT and its
    /// answer.
    fn cdap(now: Instant, connect: &Message, is_initiator: bool) -> Connection {
        let mut cdap = Connection::new(Rules::NATIVE, Limits::default());
        let mut request = connect.clone();
        // A new connection accepts M_CONNECT in either direction, and then the answer to it.
        let made = if is_initiator {
            let sent = cdap.send_request(now.as_nanos(), &mut request, true);
            sent.and_then(|()| cdap.receive(now.as_nanos(), &request.answer()).map(|_| ()))
        } else {
            let received = cdap.receive(now.as_nanos(), &request);
            received.and_then(|_| cdap.send_answer(now.as_nanos(), &request.answer()))
        };
        debug_assert!(made.is_ok(), "{made:?}");
        cdap
    }

    /// A new channel number.
    fn new_channel(&mut self) -> u32 {
        self.last_channel = self.last_channel.wrapping_add(1);
        self.last_channel
    }

    pub(super) fn is_joining(&self, n1: N1Port) -> bool {
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        up.is_some_and(|up| matches!(up.stage, Stage::Joining(_)))
    }

    /// The N-1 flows to each neighbour, by its address; the cheapest first.
    pub(super) fn neighbours(&self) -> BTreeMap<u64, Vec<N1Port>> {
        let mut neighbours: BTreeMap<u64, Vec<N1Port>> = BTreeMap::new();
        for n1 in self.n1s.keys() {
            if let Some(up) = self.neighbour(*n1) {
                neighbours.entry(up.address).or_default().push(*n1);
            }
        }
        for n1s in neighbours.values_mut() {
            n1s.sort_by_key(|n1| (self.n1s[n1].props.cost, *n1));
        }
        neighbours
    }

    /// The channel to the neighbour over `n1`; `None` when the IPCP there is not a neighbour.
    pub(super) fn neighbour(&self, n1: N1Port) -> Option<&Up> {
        let flow = self.n1s.get(&n1).filter(|flow| flow.detaching.is_none())?;
        let up = flow.up.as_ref()?;
        matches!(up.stage, Stage::Neighbours).then_some(up)
    }
}

/// True for a message of the exchange between neighbours. Others come from members and were on
/// their way.
fn is_of_exchange(opcode: Opcode, object: Option<&Object>) -> bool {
    use Object::{Authentication, Channel, Enrollment};
    matches!(opcode, Opcode::Connect | Opcode::ConnectR)
        || matches!(object, Some(Authentication | Enrollment | Channel))
}
