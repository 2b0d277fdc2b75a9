//! The responder's side of an enrollment: a member that admits another IPCP. `enrollee` has a
//! diagram of the messages.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode, Party, Value};
use carina_ipcp::api::N1Port;
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};

use super::detaching::RELEASE_GRACE;
use super::dissemination::candidate;
use super::error::Refusal;
use super::n1::{Assignment, INITIATOR_WAIT, N1, STEP_TIMEOUT, Stage, connection};
use super::objects::{class, name};
use super::values::{Constants, EnrollmentInfo, is_name, value, value_of};
use super::{Member, Rlite};
use crate::interop::names::Name;

/// Largest number of addresses that are proposed for one joining IPCP.
const PROPOSALS_MAX: u32 = 16;

/// How long after an M_CONNECT a second one with the same invoke id is taken for a duplicate.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);

/// Longest PDU that the constants announce. The actual limit is that of the N-1 flow.
const MAX_PDU: u32 = 65_536;

impl Rlite {
    /// Handles M_CONNECT: the other side starts an attempt, or starts again.
    pub(super) fn on_connect(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let name = Name::from(message.src.clone()).to_string();
        if self.return_n1_to_itself(now, n1, &name, message, dt) {
            return;
        }
        if self.resolve_crossing(now, n1, &name, message, dt) {
            return;
        }
        if self.is_duplicate(now, n1, message.invoke_id) {
            return self.log.count("connects-duplicated");
        }
        let is_repeated = self
            .n1s
            .get(&n1)
            .is_some_and(|flow| matches!(flow.stage, Stage::Accepting) && flow.peer == name);
        if !is_repeated {
            self.neighbour_down(now, n1, "the neighbour connects again", dt);
        }
        let refused = self.check_initiator(n1, &name);
        let own = self.own.clone();
        let is_member = self.member.is_some();
        let waits = !is_member && !self.has_left;
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.cdap = connection();
        flow.connect = Some((message.invoke_id, now));
        if flow.cdap.receive(now.as_nanos(), message).is_err() {
            return self.log.discard(&name, "cdap-state");
        }
        let mut answer = message.answer();
        answer.src = Party::from(Name::of(&own));
        if let Err(refusal) = refused {
            let reason = refusal.to_string();
            (flow.stage, flow.at) = match flow.props.is_initiator {
                // An IPCP that is not a member sends its own M_CONNECT after a while.
                _ if waits => (Stage::Idle, Some(now + INITIATOR_WAIT)),
                // The peer may return under another name, over another N-1 flow.
                false if is_member => (Stage::Leaving, Some(now + RELEASE_GRACE)),
                // An IPCP that has left may later receive a command to enroll through this flow.
                _ => (Stage::Idle, None),
            };
            let answer = answer.with_error(-1, &reason);
            self.send_response(now, n1, answer, dt);
            let text = format!("M_CONNECT of {name:?} was refused: {reason}");
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.why.clone_from(&text);
            }
            return self.log.notice("connect", &text);
        }
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: false,
        });
        flow.peer = name;
        flow.stage = Stage::Accepting;
        flow.at = Some(now + STEP_TIMEOUT);
        self.send_response(now, n1, answer, dt);
    }

    /// True when an M_CONNECT is a duplicate of the one just answered. A later one with the same
    /// invoke id comes from an IPCP that has restarted.
    fn is_duplicate(&self, now: Instant, n1: N1Port, invoke_id: i32) -> bool {
        let Some(flow) = self.n1s.get(&n1) else {
            return false;
        };
        let is_served = matches!(
            flow.stage,
            Stage::Assigning(_) | Stage::Stopping | Stage::Up
        );
        let is_same = |(id, at): (i32, Instant)| id == invoke_id && now < at + DUPLICATE_WINDOW;
        is_served && flow.connect.is_some_and(is_same)
    }

    /// Checks whether the IPCP `name` may connect over an N-1 flow.
    ///
    /// # Errors
    /// Why it may not connect.
    fn check_initiator(&self, n1: N1Port, name: &str) -> Result<(), Refusal> {
        if self.member.is_none() {
            return Err(Refusal::NotMember {
                own: self.own.clone(),
                dif: self.dif.clone(),
            });
        }
        if !is_name(name) || name == self.own {
            return Err(Refusal::Name(name.to_string()));
        }
        let props = &self.n1s[&n1].props;
        // If this side requested the flow, its remote name may be the DIF's name or another name of
        // the other side.
        let is_known = !props.is_initiator && is_name(&props.remote) && props.remote != self.dif;
        if is_known && props.remote != name && !is_ip_address(&props.remote) {
            return Err(Refusal::OtherSource {
                source: props.remote.clone(),
                name: name.to_string(),
            });
        }
        Ok(())
    }

    /// Accepts a further N-1 flow of a neighbour that sends no M_CONNECT on it. The N-1 DIF tells
    /// which IPCP is at the other end.
    pub(super) fn accept_without_connect(&mut self, now: Instant, n1: N1Port) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let remote = flow.props.remote.clone();
        if !self.is_neighbour(&remote) {
            return;
        }
        let own = Party::from(Name::of(&self.own));
        let mut connect = Message {
            invoke_id: i32::MAX,
            ..Message::connect(Party::from(Name::of(&remote)), own)
        };
        connect.abstract_syntax = super::RULES.abstract_syntax;
        connect.version = super::RULES.version;
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.peer = remote;
            flow.stage = Stage::Accepting;
            flow.at = Some(now + STEP_TIMEOUT);
            let taken = flow.cdap.receive(now.as_nanos(), &connect);
            let answered =
                taken.and_then(|_| flow.cdap.send_answer(now.as_nanos(), &connect.answer()));
            if answered.is_err() {
                self.log.count("cdap-state");
            }
        }
    }

    /// The peer that has connected over an N-1 flow and may now send M_START.
    fn connected_peer(&self, n1: N1Port) -> Option<String> {
        let flow = self.n1s.get(&n1)?;
        matches!(flow.stage, Stage::Accepting).then(|| flow.peer.clone())
    }

    /// Handles M_START of an enrollment.
    pub(super) fn on_start(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(peer) = self.connected_peer(n1) else {
            return self.log.count("stale");
        };
        let Some(info) = value_of::<EnrollmentInfo>(message) else {
            return self.refuse_start(now, n1, message, "M_START has no enrollment value", dt);
        };
        let asked = info.address.unwrap_or_default();
        self.end_former_life(now, n1, &peer, asked, dt);
        let mut assignment = Assignment {
            request: message.clone(),
            info,
            proposed: asked,
            proposals: 0,
        };
        if let Some(address) = self.retained_address(&peer, asked) {
            assignment.proposed = address;
            return self.admit(now, n1, assignment, dt);
        }
        if !self.policies.assigns() {
            let reason = format!(
                "address {asked} is not free, and addresses are configured in this DIF (policy static)"
            );
            return self.refuse_start(now, n1, message, &reason, dt);
        }
        self.propose(now, n1, assignment, dt);
    }

    fn refuse_start(
        &mut self,
        now: Instant,
        n1: N1Port,
        request: &Message,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let answer = request.answer().with_error(-1, reason);
        self.send_response(now, n1, answer, dt);
        self.attempt_failed(now, n1, reason, dt);
    }

    /// Draws an address for the IPCP behind `n1`, and proposes it to the neighbours.
    pub(super) fn propose(
        &mut self,
        now: Instant,
        n1: N1Port,
        mut assignment: Assignment,
        dt: &mut dyn DataTransfer,
    ) {
        assignment.proposals += 1;
        let drawn = self.draw_address();
        let Some(address) = drawn.filter(|_| assignment.proposals <= PROPOSALS_MAX) else {
            let request = assignment.request;
            let reason = "no free address was found";
            return self.refuse_start(now, n1, &request, reason, dt);
        };
        assignment.proposed = address;
        if self.propose_address(now, address, dt) {
            let until = now + self.policies.nack_wait();
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.stage = Stage::Assigning(Box::new(assignment));
                flow.at = Some(until);
            }
        } else {
            // Without neighbours, no member can object.
            self.admit(now, n1, assignment, dt);
        }
    }

    /// Admits an IPCP, because no member objected to its address in time.
    pub(super) fn assignment_timeout(
        &mut self,
        now: Instant,
        n1: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let peer = flow.peer.clone();
        if let Stage::Assigning(assignment) = core::mem::replace(&mut flow.stage, Stage::Idle) {
            let mut assignment = *assignment;
            // The IPCP may have become a member through another enroller in the meantime.
            let asked = assignment.info.address.unwrap_or_default();
            if let Some(address) = self.retained_address(&peer, asked) {
                assignment.proposed = address;
            }
            self.admit(now, n1, assignment, dt);
        }
    }

    /// Handles an objection to an address that this member proposed.
    pub(super) fn on_objection(&mut self, now: Instant, address: u64, dt: &mut dyn DataTransfer) {
        let is_it =
            |flow: &N1| matches!(&flow.stage, Stage::Assigning(it) if it.proposed == address);
        let concerned = self.n1s.iter().filter(|(_, flow)| is_it(flow));
        let concerned: Vec<N1Port> = concerned.map(|(n1, _)| *n1).collect();
        for n1 in concerned {
            let Some(flow) = self.n1s.get_mut(&n1) else {
                continue;
            };
            if let Stage::Assigning(it) = core::mem::replace(&mut flow.stage, Stage::Idle) {
                self.propose(now, n1, *it, dt);
            }
        }
    }

    /// Admits an IPCP whose address is determined: sends M_START_R, the policies and M_STOP.
    fn admit(
        &mut self,
        now: Instant,
        n1: N1Port,
        assignment: Assignment,
        dt: &mut dyn DataTransfer,
    ) {
        let Assignment {
            request,
            info,
            proposed,
            ..
        } = assignment;
        let Some(config) = self.member.as_ref().map(|member| &member.config) else {
            return;
        };
        let answer = EnrollmentInfo {
            address: Some(proposed),
            lower_difs: info.lower_difs.clone(),
            start_early: None,
            constants: Some(constants(config)),
        };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.stage = Stage::Stopping;
        flow.at = Some(now + STEP_TIMEOUT);
        let peer = flow.peer.clone();
        let member = Member {
            address: proposed,
            lower_difs: Rlite::note_lower_difs(info.lower_difs),
        };
        self.set_member(now, &peer, member, None);
        self.send_response(now, n1, request.answer().with_value(value(&answer)), dt);
        for (component, policy) in self.policies.announced_policies() {
            let object = format!("/mgmt/{component}/policy");
            let message = Message::object(Opcode::Write, class::POLICY, &object);
            self.send_request(now, n1, message.with_value(Value::Text(policy)), dt);
        }
        for (component, parameter, text) in self.policies.announced_parameters() {
            let object = format!("/mgmt/{component}/params");
            let message = Message::object(Opcode::Write, &parameter, &object);
            self.send_request(now, n1, message.with_value(Value::Text(text)), dt);
        }
        let stop = EnrollmentInfo {
            start_early: Some(true),
            ..EnrollmentInfo::default()
        };
        let message = Message::object(Opcode::Stop, class::ENROLLMENT, name::ENROLLMENT);
        self.send_request(now, n1, message.with_value(value(&stop)), dt);
    }

    /// Handles M_STOP_R: the other side is a member now.
    pub(super) fn on_stopped(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if !matches!(self.n1s[&n1].stage, Stage::Stopping) {
            return self.log.count("stale");
        }
        if message.result != 0 {
            let reason = format!("the enrollee gave up: {}", message.reason);
            return self.attempt_failed(now, n1, &reason, dt);
        }
        self.enrollee_is_up(now, n1, dt);
    }

    /// Makes the IPCP behind an N-1 flow a neighbour: it has confirmed that it is a member, or acts
    /// as one.
    pub(super) fn enrollee_is_up(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let message = Message::object(Opcode::Start, class::STATUS, name::STATUS);
        self.send_request(now, n1, message, dt);
        self.member_is_up(now, n1, dt);
    }

    /// Makes the member behind an N-1 flow a neighbour: its entries are learned again, and all
    /// other neighbours get its address.
    fn member_is_up(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        // Reports from its earlier incarnation, or from before it was lost, could outrank its new
        // ones.
        let peer = self.n1s[&n1].peer.clone();
        if !self.is_neighbour(&peer) {
            self.links.forget(&peer);
        }
        // The address that it announces itself is known here, but news to the others.
        if let Some(member) = self.members.get(&peer) {
            let record = candidate(&peer, member.address, member.lower_difs.clone());
            let others = self.neighbours_but(None);
            self.send_members(now, Opcode::Create, &[record], &others, dt);
        }
        self.neighbour_up(now, n1, dt);
    }

    /// Until the record of the IPCP behind an N-1 flow arrives, uses the source address of its PDUs
    /// as its address, unless another member has that address.
    pub(super) fn note_source_address(&mut self, now: Instant, n1: N1Port) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let (peer, address) = (flow.peer.clone(), flow.src);
        if self.address_of(&peer).is_none() && self.check_free(address) {
            let member = Member {
                address,
                lower_difs: Vec::new(),
            };
            self.set_member(now, &peer, member, None);
        }
    }

    /// Handles M_START of `lowerflow`: a further N-1 flow of a neighbour, or the first one of a
    /// member that was lost. rlite enrolls only once. After it has lost all neighbours, and even if
    /// the DIF has started again without it, it sends only this message and keeps its address.
    pub(super) fn on_lower_flow(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(peer) = self.connected_peer(n1) else {
            return self.log.count("stale");
        };
        self.send_response(now, n1, message.answer(), dt);
        if self.is_neighbour(&peer) {
            return self.neighbour_up(now, n1, dt);
        }
        self.log.count("members-returned");
        self.note_source_address(now, n1);
        self.member_is_up(now, n1, dt);
    }
}

/// True when the N-1 DIF, over IP, only knows the IP address of a caller.
fn is_ip_address(text: &str) -> bool {
    text.parse::<core::net::IpAddr>().is_ok() || text.parse::<core::net::SocketAddr>().is_ok()
}

/// Encodes the constants of a DIF as rlite does.
fn constants(config: &DifConfig) -> Constants {
    let widths = &config.widths;
    let width = |bytes: u8| Some(u32::from(bytes));
    Constants {
        max_pdu: Some(MAX_PDU),
        address: width(widths.address),
        port: Some(2),
        cep: width(widths.cep),
        qos: width(widths.qos),
        seq: width(widths.seq),
        length: width(widths.length),
        // Half of the number range, sign-extended, as rlite writes it.
        seq_rollover: Some(0xffff_ffff_8000_0000),
        max_pdu_lifetime_ms: Some(config.max_pdu_lifetime_ms),
        concatenation: Some(false),
        fragmentation: Some(false),
        integrity: Some(false),
        retransmit_ms: Some(1_000),
        acknowledge_ms: Some(200),
        rate: None,
        frame: None,
        ctrl_seq: width(widths.ctrl_seq),
    }
}
