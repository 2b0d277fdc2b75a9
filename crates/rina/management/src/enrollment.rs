//! Enrollment of a new member through a neighbour.
//!
//! After the Pouzin Society's *Basic Enrollment Specification*: M_START of the enrollment, the
//! state of the DIF, M_STOP.
//!
//! ```text
//!  joining IPCP                                            member
//!    M_START enrollment {name, former address}  --------->   chooses an address
//!                                               <---------  M_START_R {address, DIF identity}
//!                                               <---------  M_WRITE entries, routing ...
//!                                               <---------  M_STOP enrollment
//!    M_STOP_R                                   --------->
//!    is a member; both are neighbours
//! ```

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::addresses::{self, View};
use super::entries::Kind;
use super::neighbours::{Joining, Stage};
use super::schema::{self, EnrollmentRequest, MemberValue, Object, result};
use super::{Management, Membership};

/// How long an assigned address stays reserved when no member announces it.
const RESERVATION_TIME: Duration = Duration::from_secs(120);

impl Management {
    /// Requests an address, after the management channel has opened.
    pub(super) fn start_joining(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let value = EnrollmentRequest {
            name: self.own.clone(),
            address: self.former_address,
            dif_id: 0,
            incarnation: self.incarnation,
        };
        let value = Some(schema::encode(&value));
        let message = schema::request(Opcode::Start, &Object::Enrollment, value);
        self.tell(now, n1, message, true, dt);
    }

    /// Handles M_START, at the member that admits.
    pub(super) fn on_enrollment_start(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let wanted = schema::decode::<EnrollmentRequest>(schema::bytes(message));
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        let Some((wanted, up)) = wanted.zip(up).filter(|(wanted, up)| wanted.name == up.name)
        else {
            return self.reject(
                now,
                n1,
                message,
                result::VALUE,
                "the enrollment is malformed",
                dt,
            );
        };
        if !matches!(up.stage, Stage::Admitting { .. }) {
            let reason = "the requester is a member already";
            return self.reject(now, n1, message, result::OPERATION, reason, dt);
        }
        if !self.queries_name_holder(now, n1, message, &wanted, dt) {
            self.enroll(now, n1, message, wanted, dt);
        }
    }

    /// Assigns an address to the IPCP at the other end, and sends it the entries and the routing
    /// state.
    pub(super) fn enroll(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        wanted: EnrollmentRequest,
        dt: &mut dyn DataTransfer,
    ) {
        let until = now + 4 * self.policies.enrollment.step_timeout;
        let Some(address) = self.assign_address(now, &wanted.name, wanted.address) else {
            let reason = "the DIF has no free address; its addresses are too narrow";
            return self.reject(now, n1, message, result::ERROR, reason, dt);
        };
        let Some(member) = &self.member else { return };
        let value = EnrollmentRequest {
            address,
            dif_id: member.dif_id,
            ..wanted
        };
        let answer = schema::answer(message, Some(schema::encode(&value)));
        self.reply(now, n1, &answer, dt);
        if let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) {
            up.stage = Stage::Admitting { address, until };
        }
        self.send_everything(now, n1, dt);
        let message = schema::request(Opcode::Stop, &Object::Enrollment, None);
        self.tell(now, n1, message, true, dt);
    }

    /// Chooses an address for `name`: a former address if it is free, else the policy's choice.
    fn assign_address(&mut self, now: Instant, name: &str, former_address: u64) -> Option<u64> {
        let member = self.member.as_ref()?;
        let last = addresses::last_address(member.config.widths.address);
        let own = member.address;
        let mut taken = self.taken(now);
        taken.insert(own, self.own.clone());
        let known = MemberValue::of(&self.store, name);
        let known = known.map_or(0, |value| value.address);
        let is_free = |address: u64| {
            let owner = taken.get(&address);
            address != 0 && address <= last && owner.is_none_or(|owner| owner == name)
        };
        let address = [former_address, known]
            .into_iter()
            .find(|address| is_free(*address));
        let address = match address {
            Some(address) => address,
            None => {
                let view = View {
                    last,
                    own,
                    taken: &taken,
                };
                addresses::assign(&*self.policies.addresses, &view, &mut self.random)?
            }
        };
        self.reserved_addresses
            .insert(address, (String::from(name), now + RESERVATION_TIME));
        Some(address)
    }

    /// Addresses in use or reserved, with the names of their owners.
    fn taken(&mut self, now: Instant) -> BTreeMap<u64, String> {
        self.reserved_addresses.retain(|_, (_, until)| *until > now);
        let reserved_addresses = self
            .reserved_addresses
            .iter()
            .map(|(address, (name, _))| (*address, name.clone()));
        let mut taken: BTreeMap<u64, String> = reserved_addresses.collect();
        for (origin, _, value) in self.store.all(Kind::Member) {
            if let Some(value) = schema::decode::<MemberValue>(value) {
                taken.insert(value.address, String::from(origin));
            }
        }
        taken
    }

    /// Handles M_START_R, at the joining IPCP.
    pub(super) fn on_enrollment_started(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let until = now + self.policies.enrollment.step_timeout;
        if !self.is_joining(n1) {
            return;
        }
        if message.result != 0 {
            let reason = format!("the member refused the enrollment: {}", message.reason);
            let is_passing = message.result != result::REJECTED;
            return self.attempt_failed(now, n1, &reason, is_passing, dt);
        }
        let value = schema::decode::<EnrollmentRequest>(schema::bytes(message));
        let Some(value) = value.filter(|value| value.address != 0 && value.dif_id != 0) else {
            let reason = "the answer to M_START of the enrollment is malformed";
            return self.attempt_failed(now, n1, reason, true, dt);
        };
        let up = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut());
        if let Some(Stage::Joining(joining)) = up.map(|up| &mut up.stage) {
            let last = addresses::last_address(joining.config.widths.address);
            if value.address > last {
                let reason = "the address that the member gave is wider than the DIF's addresses";
                return self.attempt_failed(now, n1, reason, false, dt);
            }
            joining.given = Some((value.address, value.dif_id));
            joining.until = until;
        }
    }

    /// Handles M_STOP, at the joining IPCP, which has received the state of the DIF and becomes a
    /// member.
    pub(super) fn on_enrollment_stop(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let up = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut());
        let Some(up) = up else { return };
        let Stage::Joining(Joining {
            config,
            given: Some((address, dif_id)),
            ..
        }) = &up.stage
        else {
            let reason = "no enrollment is under way";
            return self.reject(now, n1, message, result::OPERATION, reason, dt);
        };
        let membership = Membership {
            dif_id: *dif_id,
            address: *address,
            config: config.clone(),
        };
        up.stage = Stage::Neighbours;
        let answer = message.answer();
        self.reply(now, n1, &answer, dt);
        if let Err(error) = self.become_member(now, membership, dt) {
            self.member = None;
            return self.attempt_failed(now, n1, &error.to_string(), false, dt);
        }
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.failure_reported = false;
        }
        self.neighbour_up(now, n1, dt);
        self.schedule_idle_flows(now, dt);
    }

    /// Handles M_STOP_R, at the member that admits.
    pub(super) fn on_enrollment_stopped(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
            return;
        };
        let Stage::Admitting { address, .. } = up.stage else {
            return;
        };
        if message.result != 0 || address == 0 {
            return self.up_ended(now, n1, "the neighbour did not finish its enrollment", dt);
        }
        up.stage = Stage::Neighbours;
        up.address = address;
        self.log.count("enrolled-others");
        self.neighbour_up(now, n1, dt);
    }

    /// Takes a new address, because another member keeps the old one. Flows continue.
    pub(super) fn take_new_address(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let Some(member) = &self.member else { return };
        let old = member.address;
        let last = addresses::last_address(member.config.widths.address);
        let taken = self.taken(now);
        let view = View {
            last,
            own: old,
            taken: &taken,
        };
        // Not from the block of the old address: that block belongs to the other owner.
        let fresh = addresses::assign(&addresses::Draw, &view, &mut self.random);
        let Some(address) = fresh else {
            return self.leave(
                now,
                "its address belongs to another member, and no other address \
                is free",
                dt,
            );
        };
        if let Some(member) = &mut self.member {
            member.address = address;
        }
        self.former_address = address;
        self.log.count("readdressed");
        dt.set_address(carina_wire::dif::Address(address));
        if let Some(routing) = &mut self.routing {
            routing.set_own(now, address, &self.own);
        }
        self.report_all_links(now, dt);
        self.publish_member(now, dt);
        let text = format!(
            "address {old} belongs to another member; this member now has address {address}"
        );
        self.log.push(Event::Notice { text });
    }

    /// Floods this member's entry with its present address.
    pub(super) fn publish_member(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let Some(member) = &self.member else { return };
        let value = self.member_value(member.address);
        let own = self.own.clone();
        match self.store.put(Kind::Member, &own, schema::encode(&value)) {
            Ok(entry) => self.flood(now, &[entry], None, dt),
            Err(error) => self.log.notice("member", &error.to_string()),
        }
    }
}
