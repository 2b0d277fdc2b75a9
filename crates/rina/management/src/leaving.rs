//! Leaving the DIF, by a command of this system or by expulsion.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::Management;
use super::access_control::Operation;
use super::entries::{Kind, Store};
use super::name_conflict::NameConflict;
use super::queries::Purpose;
use super::requester::Requester;
use super::schema::{self, Object, result};

/// How long a departure waits for its last messages to be sent, when neighbours do not answer
/// M_RELEASE.
const LEAVE_GRACE: Duration = Duration::from_millis(500);

/// How long an expelled member may not enroll again.
pub(super) const EXPULSION_TIME: Duration = Duration::from_secs(300);

/// A departure of this member that is under way.
#[derive(Debug)]
pub(super) struct Departure {
    at: Instant,
    reason: String,
    /// N-1 flows whose neighbours have not answered M_RELEASE yet.
    unanswered: BTreeSet<N1Port>,
}

impl Departure {
    pub(super) fn due(&self) -> Instant {
        self.at
    }
}

impl Management {
    /// Leaves in order: ends flows, deletes this member's entries and links, and releases
    /// neighbours.
    pub(super) fn leave(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        if self.member.is_none() || self.leaving.is_some() {
            for n1 in self.n1s.keys().copied().collect::<Vec<_>>() {
                self.cancel_enrollment(now, n1, reason, dt);
            }
            return;
        }
        let own = self.own.clone();
        let mut gone = Vec::new();
        for name in self.own_applications().clone() {
            gone.extend(self.store.delete(now, Kind::Application, &name));
        }
        gone.extend(self.store.delete(now, Kind::Member, &own));
        self.flood(now, &gone, None, dt);
        self.depart(now, reason, dt);
    }

    /// Ends flows and links in order; the membership ends after a grace period.
    pub(super) fn depart(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        self.leaving = Some(Departure {
            at: now + LEAVE_GRACE,
            reason: reason.to_string(),
            unanswered: BTreeSet::new(),
        });
        self.end_all_flows(now, reason, true, dt);
        if let Some(routing) = &mut self.routing {
            routing.handle_leave(now);
        }
        self.drain_routing(now, dt);
        let neighbours = self.n1s.keys().copied();
        let neighbours: BTreeSet<N1Port> = neighbours
            .filter(|n1| self.neighbour(*n1).is_some())
            .collect();
        for n1 in self.n1s.keys().copied().collect::<Vec<_>>() {
            self.tell(now, n1, Message::new(Opcode::Release), true, dt);
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.unanswered = neighbours;
        }
        self.hasten_departure(now);
    }

    /// Records that the neighbour behind `n1` has answered M_RELEASE or is lost.
    pub(super) fn release_answered(&mut self, now: Instant, n1: N1Port) {
        if let Some(leaving) = &mut self.leaving {
            leaving.unanswered.remove(&n1);
            self.hasten_departure(now);
        }
    }

    /// Ends the grace period when no neighbour has to answer any more. A channel keeps the order,
    /// so an answer to M_RELEASE shows that all messages before it have arrived.
    fn hasten_departure(&mut self, now: Instant) {
        if let Some(leaving) = &mut self.leaving
            && leaving.unanswered.is_empty()
        {
            leaving.at = leaving.at.min(now);
        }
    }

    /// Ends an attempt to join, because of [`Command::Leave`](carina_ipcp::Command::Leave).
    fn cancel_enrollment(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let flow = self.n1s.get(&n1);
        if flow.is_some_and(|flow| flow.initiator.is_some()) || self.is_joining(n1) {
            self.attempt_failed(now, n1, reason, false, dt);
        }
    }

    pub(super) fn leaving_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if let Some(leaving) = self.leaving.take_if(|leaving| leaving.at <= now) {
            self.end_membership(now, &leaving.reason, dt);
            self.has_left = true;
            let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
            for n1 in n1s {
                let reason = leaving.reason.clone();
                self.log.push(Event::DropN1 { n1, reason });
            }
        }
    }

    /// Ends the membership at once, without waiting for neighbours.
    pub(super) fn end_membership(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        self.end_all_flows(now, reason, false, dt);
        let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        for n1 in n1s {
            self.cancel_initiator(now, n1, dt);
            self.up_ended(now, n1, reason, dt);
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.responder = None;
            }
        }
        self.member = None;
        // A new incarnation distinguishes the next membership, for members that missed the end of
        // this one.
        self.incarnation = self.random.nonce();
        self.name_conflict = NameConflict::default();
        self.routing = None;
        self.lost.clear();
        self.reserved_addresses.clear();
        self.store = Store::new(&self.own, self.incarnation);
        self.forget_directory();
        self.queries = super::Queries::default();
        self.own_messages.clear();
        dt.set_forwarding(&[]);
        dt.set_address(carina_wire::dif::Address::NONE);
        self.log.push(Event::Left {
            reason: reason.to_string(),
        });
    }

    /// Handles [`Command::Expel`](carina_ipcp::Command::Expel).
    pub(super) fn expel(&mut self, now: Instant, id: u64, member: &str, dt: &mut dyn DataTransfer) {
        if self.member.is_none() || self.address_of(member).is_none() {
            return self.expel_failed(id, &alloc::format!("no member {member:?} is known here"));
        }
        if !self.policies.access.allows(&self.own, Operation::Expel) {
            let text = "this member may not expel members; see policy access-control";
            return self.expel_failed(id, text);
        }
        if member == self.own {
            let result = Ok(Vec::new());
            self.log.push(Event::Answer { id, result });
            return self.leave(now, "the node ordered it to leave", dt);
        }
        let until = (now + EXPULSION_TIME).as_nanos().to_be_bytes().to_vec();
        match self.store.put(Kind::Expelled, member, until) {
            Ok(entry) => self.flood(now, &[entry], None, dt),
            Err(error) => return self.expel_failed(id, &error.to_string()),
        }
        let object = Object::Member(Some(member.to_string()));
        let message = schema::request(Opcode::Stop, &object, None);
        self.query(
            now,
            alloc::vec![member.to_string()],
            message,
            Purpose::Expel { id },
            dt,
        );
        self.drop_expelled_later(now);
    }

    /// Answers [`Command::Expel`](carina_ipcp::Command::Expel) with an error, and reports a notice.
    pub(super) fn expel_failed(&mut self, id: u64, reason: &str) {
        self.log.notice("expel", reason);
        let result = Err(reason.into());
        self.log.push(Event::Answer { id, result });
    }

    /// Schedules the end of the channels to expelled neighbours, after the order has had time to
    /// reach them.
    pub(super) fn drop_expelled_later(&mut self, now: Instant) {
        if self.store.all(Kind::Expelled).next().is_some() {
            self.refresh_at = self.refresh_at.min(now + 4 * LEAVE_GRACE);
        }
    }

    /// Handles M_STOP of a member: an order that this member leaves.
    pub(super) fn on_expel(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if name != self.own {
            let reason = "the request names another member than this one";
            return self.reject_to(now, requester, message, result::OBJECT, reason, dt);
        }
        if !self
            .policies
            .access
            .allows(&requester.name, Operation::Expel)
        {
            let reason = "the requester may not expel members; see policy access-control";
            return self.reject_to(now, requester, message, result::ACCESS, reason, dt);
        }
        self.respond_to(now, requester, &message.answer(), dt);
        let reason = alloc::format!("{} expelled this member", requester.name);
        self.leave(now, &reason, dt);
    }

    /// Ends the channels to neighbours that were expelled and have not left.
    pub(super) fn drop_expelled(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let is_expelled = |n1: &N1Port| {
            self.neighbour(*n1)
                .is_some_and(|up| self.is_expelled(&up.name))
        };
        let expelled: Vec<N1Port> = self.n1s.keys().copied().filter(is_expelled).collect();
        for n1 in expelled {
            self.up_ended(now, n1, "the member was expelled", dt);
        }
    }

    /// Deletes this member's expulsions that are over, so that the members may return.
    pub(super) fn lift_expulsions(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let over: Vec<String> = self
            .store
            .all(Kind::Expelled)
            .filter(|(origin, _, value)| {
                let until = <[u8; 8]>::try_from(*value).map_or(0, u64::from_be_bytes);
                let until = Instant::from_nanos(until);
                *origin == self.own && until <= now
            })
            .map(|(_, name, _)| name.to_string())
            .collect();
        for name in over {
            if let Some(entry) = self.store.delete(now, Kind::Expelled, &name) {
                self.flood(now, &[entry], None, dt);
            }
        }
        self.drop_expelled(now, dt);
    }
}
