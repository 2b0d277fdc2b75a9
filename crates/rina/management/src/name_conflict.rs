//! Name conflicts: distinguishes a member that has restarted from another IPCP of the same name.
//!
//! An entry of the same name with another incarnation may be left over from a member that died, or
//! belong to a living one. So before a member admits an IPCP, it asks the member of that name:
//!
//! ```text
//!  joining IPCP               member it asks             member of the same name
//!    M_START enrollment  ----->  M_START members/NAME  ----->
//!      permanently refused <---       <----- M_START_R {incarnation}: it is alive
//!                 admitted <---       no answer within ANSWER_TIMEOUT, or no route: it is not
//! ```
//!
//! Only members answer, and the query is sent after the attempt to join began, so an answer proves
//! that the member lives. Two IPCPs of one name may still be admitted: at the same time by two
//! members, in two parts of a partitioned DIF, or because an answer was lost. Each then receives
//! the other's member entry in place of its own, and reissues its own, which names the other as the
//! *conflicting incarnation*. An entry that names this incarnation is younger than this
//! incarnation, so its author lives. Of the two, the one that became a member later leaves.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use carina_cdap::Message;
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};

use super::Management;
use super::entries::{Entry, Key, Kind};
use super::queries::{PendingEnrollment, Purpose};
use super::requester::Requester;
use super::schema::{self, EnrollmentRequest, MemberValue, result};

/// How long the member of a name has to answer the query. A restarted IPCP waits this long while
/// the end of its earlier incarnation is not known everywhere.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What an IPCP knows of other incarnations with its name.
#[derive(Debug, Default)]
pub(super) struct NameConflict {
    /// Number of earlier incarnations that this one knew of when it became a member.
    pub(super) generation: u64,
    /// The incarnation whose member entry was received last; 0 for none.
    pub(super) conflicting_incarnation: u64,
}

/// How to react to an entry with this member as its origin that this member did not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DisputeOutcome {
    /// Flood this entry, a new version that replaces the other.
    Again(Entry),
    /// Leave the DIF: another member has the name and became a member first.
    CedeName,
    /// Do nothing.
    Nothing,
}

impl Management {
    /// How long to wait for an answer of the member of a name.
    pub(super) fn name_query_timeout(&self) -> Duration {
        ANSWER_TIMEOUT.min(self.policies.enrollment.step_timeout / 2)
    }

    /// Queries the member that has the name of a joining IPCP, if there may be one. Returns false
    /// when no such member is reachable.
    pub(super) fn queries_name_holder(
        &mut self,
        now: Instant,
        n1: N1Port,
        start: &Message,
        wanted: &EnrollmentRequest,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let name = &wanted.name;
        let value = MemberValue::of(&self.store, name);
        let is_other = |value: &MemberValue| value.incarnation != wanted.incarnation;
        let is_reachable = value.filter(is_other).is_some_and(|value| {
            self.store.is_visible(name) && self.distance(value.address).is_some()
        });
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        let Some(up) = up.filter(|_| is_reachable) else {
            return false;
        };
        let waiting = PendingEnrollment {
            n1,
            channel: up.channel,
            start: start.clone(),
            wanted: wanted.clone(),
        };
        self.log.count("name-conflict-queries");
        let (message, member) = (waiting.question(), name.clone());
        let what = Purpose::NameHolder(Box::new(waiting));
        self.query(now, alloc::vec![member], message, what, dt);
        true
    }

    /// Handles M_START of a member: the query from a member where an IPCP of this name enrolls.
    pub(super) fn on_name_query(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let member = self.member.as_ref().filter(|_| self.leaving.is_none());
        let answer = match member.filter(|_| name == self.own) {
            Some(member) => {
                let value = self.member_value(member.address);
                schema::answer(message, Some(schema::encode(&value)))
            }
            None => {
                let reason = "the request names another member than this one";
                message.answer().with_error(result::OBJECT, reason)
            }
        };
        self.respond_to(now, requester, &answer, dt);
    }

    /// Continues an enrollment with the incarnation that the member of the name answered; `None`:
    /// no answer came.
    pub(super) fn on_name_answer(
        &mut self,
        now: Instant,
        waiting: PendingEnrollment,
        incarnation: Option<u64>,
        dt: &mut dyn DataTransfer,
    ) {
        let PendingEnrollment {
            n1,
            channel,
            start,
            wanted,
        } = waiting;
        let up = self.n1s.get(&n1).and_then(|flow| flow.up.as_ref());
        if up.is_none_or(|up| up.channel != channel) {
            return self.log.count("stale");
        }
        if incarnation.is_none_or(|other| other == wanted.incarnation) {
            return self.enroll(now, n1, &start, wanted, dt);
        }
        let name = &wanted.name;
        let reason = taken(name);
        self.log
            .notice(name, &format!("{name:?} was refused: {reason}"));
        self.log.count("name-conflict-refusals");
        self.log.trace(|| TraceEvent::NameConflict { name });
        let answer = start.answer().with_error(result::REJECTED, &reason);
        self.reply(now, n1, &answer, dt);
    }

    /// The value of `entry` if it is the member entry of this name by another incarnation.
    pub(super) fn conflicting_member(&self, entry: &Entry) -> Option<MemberValue> {
        let Key { origin, kind, .. } = &entry.key;
        if *kind != Kind::Member || *origin != self.own {
            return None;
        }
        let value = schema::decode::<MemberValue>(entry.value.as_ref()?)?;
        (value.incarnation != self.incarnation).then_some(value)
    }

    /// Resolves an entry with this member as its origin that this member did not make.
    /// `conflicting_member` is its value if it is the member entry of another incarnation.
    pub(super) fn resolve_dispute(
        &mut self,
        now: Instant,
        key: &Key,
        conflicting_member: Option<MemberValue>,
    ) -> DisputeOutcome {
        let Some(address) = self.member.as_ref().map(|member| member.address) else {
            // An IPCP that is not a member only records the generation.
            if let Some(former_address) = conflicting_member {
                let generation = former_address.generation.saturating_add(1);
                self.name_conflict.generation = self.name_conflict.generation.max(generation);
            }
            return DisputeOutcome::Nothing;
        };
        if self.leaving.is_some() {
            return DisputeOutcome::Nothing;
        }
        self.log.count("entries-disputed");
        let Some(other) = conflicting_member else {
            return DisputeOutcome::Again(self.store.reissue(now, key));
        };
        if self.has_precedence(&other) {
            return DisputeOutcome::CedeName;
        }
        self.name_conflict.conflicting_incarnation = other.incarnation;
        let value = schema::encode(&self.member_value(address));
        match self.store.put(key.kind, &key.name, value) {
            Ok(entry) => DisputeOutcome::Again(entry),
            Err(_) => DisputeOutcome::Nothing,
        }
    }

    /// True when another incarnation lives and became a member before this one.
    fn has_precedence(&mut self, other: &MemberValue) -> bool {
        if other.conflicting_incarnation != self.incarnation {
            // The other incarnation does not know this one, so it may be dead.
            return false;
        }
        self.log.count("name-conflicts");
        self.log
            .trace(|| TraceEvent::NameConflict { name: &self.own });
        let own = (self.name_conflict.generation, self.incarnation);
        if (other.generation, other.incarnation) < own {
            return true;
        }
        let text = format!(
            "another member has the name {:?} too; that member has to leave",
            self.own
        );
        self.log.notice("namesake", &text);
        false
    }

    /// Leaves, because another member has the name. The entries are not deleted: they belong to the
    /// other member.
    pub(super) fn cede_name(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let reason = taken(&self.own);
        self.depart(now, &reason, dt);
    }

    /// The value of this member's own entry.
    pub(super) fn member_value(&self, address: u64) -> MemberValue {
        MemberValue {
            address,
            incarnation: self.incarnation,
            generation: self.name_conflict.generation,
            conflicting_incarnation: self.name_conflict.conflicting_incarnation,
        }
    }
}

/// The reason why an IPCP may not use its name, with a remedy.
fn taken(name: &str) -> String {
    format!(
        "{name:?} is the name of another member that is alive; choose another name (--ipcp \
        NAME)"
    )
}
