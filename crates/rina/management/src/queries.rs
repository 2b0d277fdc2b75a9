//! Requests to members that are not neighbours, and responses that take several messages.
//!
//! A request is a management PDU, repeated with the same invoke id until it is answered. A long
//! answer is sent as numbered parts of one byte string. The answering member keeps the answer for a
//! while, so that a repeated request gets the same parts.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, FlowKey, N1Port, Reason, RibObject, RibOp};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::rib_view::passing;
use carina_time::{Duration, Instant};

use super::Management;
use super::read_responses::{ANSWER_MAX, Reader};
use super::requester::Requester;
use super::rib_error::RibError;
use super::schema::{self, EnrollmentRequest, MemberValue, Object, Part, Registrants, result};

/// First pause before a request is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(500);

/// Longest pause between repetitions.
const REPEAT_MAX: Duration = Duration::from_secs(4);

/// How long one member is asked before the next one.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Largest number of requests under way.
const QUERIES_MAX: usize = 1024;

/// Longest filter of an M_READ to another member, in bytes.
const FILTER_BYTES_MAX: usize = 1024;

/// Purpose of a request: decides how its answer is handled.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Purpose {
    /// Read or write the RIB of another member, for [`Command::Rib`](carina_ipcp::Command::Rib).
    Rib { id: u64 },
    /// Find the members where the called application of a flow is registered.
    Lookup { flow: FlowKey, name: String },
    /// Register an application at its home; `round` is the number of the attempt.
    Registration { name: String, round: u64 },
    /// Withdraw a registration at a home.
    Withdrawal { name: String },
    /// Tell a member to leave the DIF.
    Expel { id: u64 },
    /// Find out whether the member that has the name of an enrolling IPCP is alive.
    NameHolder(Box<PendingEnrollment>),
}

/// Error: no member could say where an application is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LookupFailed {
    /// Name of the application.
    name: String,
    /// The reason of the last member that was asked or, if none answered, of this one.
    reason: Reason,
}

impl fmt::Display for LookupFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LookupFailed { name, reason } = self;
        write!(f, "looking up {name:?} in the directory failed: {reason}")
    }
}

impl core::error::Error for LookupFailed {}

/// An IPCP whose enrollment waits while the member of its name is queried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingEnrollment {
    pub(super) n1: N1Port,
    pub(super) channel: u32,
    pub(super) start: Message,
    pub(super) wanted: EnrollmentRequest,
}

impl PendingEnrollment {
    /// The query to the member of the name.
    pub(super) fn question(&self) -> Message {
        let object = Object::Member(Some(self.wanted.name.clone()));
        schema::request(Opcode::Start, &object, None)
    }
}

/// The answer of a home to a registration, as far as it matters.
#[derive(Debug)]
pub(super) enum HomeAnswer {
    /// The home stores the registration.
    Taken,
    /// The home has no room; the text names the limit.
    Full(String),
    /// No answer came, or another error.
    Nothing,
}

/// Requests under way, and answers that are being sent in parts.
#[derive(Debug, Default)]
pub(super) struct Queries {
    asked: BTreeMap<i32, Query>,
    pub(super) readers: BTreeMap<(String, i32), Reader>,
}

#[derive(Debug)]
struct Query {
    what: Purpose,
    /// Name of the member that is asked now.
    member: String,
    /// Members to ask next if this one does not answer.
    others: Vec<String>,
    address: u64,
    message: Message,
    repeat_at: Instant,
    repeat_after: Duration,
    give_up_at: Instant,
    parts: BTreeMap<u32, Vec<u8>>,
    total: u32,
}

impl Queries {
    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self
            .asked
            .values()
            .map(|query| query.repeat_at.min(query.give_up_at));
        let readers = self.readers.values().map(Reader::due);
        asked.chain(readers).min()
    }

    /// True when `count` more requests leave half of the limit for other purposes.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.asked.len() + count <= QUERIES_MAX / 2
    }

    /// Cancels the directory lookup of a flow that has ended.
    pub(super) fn cancel_lookup(&mut self, of: FlowKey) {
        self.asked
            .retain(|_, query| !matches!(query.what, Purpose::Lookup { flow, .. } if flow == of));
    }

    /// Cancels pending registrations and withdrawals of a name at its homes.
    pub(super) fn cancel_registration(&mut self, of: &str) {
        self.asked.retain(|_, query| match &query.what {
            Purpose::Registration { name, .. } | Purpose::Withdrawal { name } => name != of,
            _ => true,
        });
    }
}

impl Management {
    /// Sends a request to the first of `members` that can be reached, and to the next one if that
    /// member does not answer.
    pub(super) fn query(
        &mut self,
        now: Instant,
        mut members: Vec<String>,
        mut message: Message,
        what: Purpose,
        dt: &mut dyn DataTransfer,
    ) {
        let is_full = self.queries.asked.len() >= QUERIES_MAX;
        let next = loop {
            if members.is_empty() || is_full {
                break None;
            }
            let member = members.remove(0);
            if let Some(address) = self.address_of(&member) {
                break Some((member, address));
            }
        };
        let Some((member, address)) = next else {
            let reason = if is_full {
                "too many lookups are in progress"
            } else {
                "no member that stores the entry can be reached"
            };
            return self.query_failed(now, what, reason, dt);
        };
        message.invoke_id = self.invoke_id();
        self.send_to(now, address, message.encode(), dt);
        // An enrolling IPCP waits for this answer, so pauses and time limit are short.
        let (repeat_after, patience) = match what {
            Purpose::NameHolder(_) => (self.name_query_timeout() / 8, self.name_query_timeout()),
            _ => (REPEAT_AFTER, GIVE_UP_AFTER),
        };
        let query = Query {
            what,
            member,
            others: members,
            address,
            repeat_at: now + repeat_after,
            repeat_after,
            give_up_at: now + patience,
            parts: BTreeMap::new(),
            total: 0,
            message,
        };
        self.queries.asked.insert(query.message.invoke_id, query);
    }

    fn query_failed(
        &mut self,
        now: Instant,
        what: Purpose,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        match what {
            Purpose::Rib { id } => {
                let result = Err(reason.into());
                self.log.push(Event::Answer { id, result });
            }
            Purpose::Lookup { flow, name } => {
                let reason = Reason::from(reason);
                self.flow_located(now, flow, Err(LookupFailed { name, reason }), dt);
            }
            // The next renewal registers again.
            Purpose::Registration { name, round } => {
                self.log.count("registrations-unanswered");
                self.home_answered(&name, round, HomeAnswer::Nothing);
            }
            Purpose::Withdrawal { .. } => self.log.count("registrations-unanswered"),
            Purpose::Expel { id } => self.expel_failed(id, reason),
            Purpose::NameHolder(waiting) => self.on_name_answer(now, *waiting, None, dt),
        }
    }

    pub(super) fn queries_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let due: Vec<i32> = self
            .queries
            .asked
            .iter()
            .filter(|(_, query)| query.repeat_at.min(query.give_up_at) <= now)
            .map(|(invoke_id, _)| *invoke_id)
            .collect();
        for invoke_id in due {
            let Some(query) = self.queries.asked.get_mut(&invoke_id) else {
                continue;
            };
            if query.give_up_at <= now {
                let Some(query) = self.queries.asked.remove(&invoke_id) else {
                    continue;
                };
                self.cancel_read(now, &query, dt);
                if query.others.is_empty() {
                    let reason = format!("{} does not answer", query.member);
                    self.query_failed(now, query.what, &reason, dt);
                } else {
                    self.query(now, query.others, query.message, query.what, dt);
                }
            } else {
                if !matches!(query.what, Purpose::NameHolder(_)) {
                    query.repeat_after = (query.repeat_after * 2).min(REPEAT_MAX);
                }
                query.repeat_at = now + query.repeat_after;
                let (address, message) = (query.address, query.message.encode());
                self.log.count("repeated");
                self.send_to(now, address, message, dt);
            }
        }
        let readers: Vec<(String, i32)> = self.queries.readers.keys().cloned().collect();
        for key in readers {
            self.send_parts(now, &key, dt);
        }
        self.queries.readers.retain(|_, reader| reader.until > now);
    }

    /// Sends M_CANCELREAD, so that the answering member sends no more parts.
    fn cancel_read(&mut self, now: Instant, query: &Query, dt: &mut dyn DataTransfer) {
        if query.message.opcode == Opcode::Read {
            let mut cancel = Message::new(Opcode::CancelRead);
            cancel.invoke_id = query.message.invoke_id;
            self.send_to(now, query.address, cancel.encode(), dt);
        }
    }

    /// Handles an answer to a request, or a part of one.
    pub(super) fn on_query_answer(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.opcode == Opcode::CancelReadR {
            return;
        }
        let Some(query) = self.queries.asked.get_mut(&message.invoke_id) else {
            return self.log.count("stale");
        };
        let is_fit =
            query.address == requester.address && message.opcode == query.message.opcode.response();
        if !is_fit {
            return self.log.discard(&requester.name, "response-unsolicited");
        }
        if message.result != 0 {
            let reason = format!("{}: {}", query.member, message.reason);
            let query = self.queries.asked.remove(&message.invoke_id);
            return match query.map(|query| query.what) {
                Some(Purpose::Registration { name, round }) if message.result == result::FULL => {
                    self.home_answered(&name, round, HomeAnswer::Full(message.reason.clone()));
                }
                Some(what) => self.query_failed(now, what, &reason, dt),
                None => {}
            };
        }
        let bytes = match message.opcode {
            Opcode::ReadR => {
                let Some(whole) = query.add_part(now, schema::bytes(message)) else {
                    return;
                };
                whole
            }
            _ => schema::bytes(message).to_vec(),
        };
        let Some(query) = self.queries.asked.remove(&message.invoke_id) else {
            return;
        };
        match query.what {
            Purpose::Rib { id } => {
                let result = match message.opcode {
                    Opcode::ReadR => schema::decode_objects(&bytes).ok_or_else(|| {
                        format!("the answer of {} is malformed", query.member).into()
                    }),
                    _ => Ok(Vec::new()),
                };
                self.log.push(Event::Answer { id, result });
            }
            Purpose::Lookup { flow, name } => {
                let Some(value) = schema::decode::<Registrants>(&bytes) else {
                    return self.log.discard(&requester.name, "malformed-value");
                };
                if value.members.is_empty() && !query.others.is_empty() {
                    let what = Purpose::Lookup { flow, name };
                    return self.query(now, query.others, query.message, what, dt);
                }
                let members = self.cache_holders(now, &name, value.members);
                self.flow_located(now, flow, Ok(members), dt);
            }
            Purpose::Expel { id } => {
                let result = Ok(Vec::new());
                self.log.push(Event::Answer { id, result });
            }
            Purpose::Registration { name, round } => {
                self.home_answered(&name, round, HomeAnswer::Taken)
            }
            Purpose::Withdrawal { .. } => {}
            Purpose::NameHolder(waiting) => {
                let value = schema::decode::<MemberValue>(&bytes);
                let incarnation = value.map(|value| value.incarnation);
                self.on_name_answer(now, *waiting, incarnation, dt);
            }
        }
    }

    /// Handles [`Command::Rib`](carina_ipcp::Command::Rib).
    pub(super) fn rib_command(
        &mut self,
        now: Instant,
        id: u64,
        member: Option<String>,
        op: RibOp,
        dt: &mut dyn DataTransfer,
    ) {
        let own_address = self
            .member
            .as_ref()
            .map(|member| member.address.to_string());
        let remote = member.filter(|name| *name != self.own && Some(name) != own_address.as_ref());
        let Some(remote) = remote else {
            let done = self.local_op(now, op, dt);
            let result = done.map_err(|error| error.to_string().into());
            self.log.push(Event::Answer { id, result });
            return;
        };
        let name = match remote.parse::<u64>() {
            Ok(address) => self.members_by_address().get(&address).cloned(),
            Err(_) => Some(remote.clone()),
        };
        let name = name.filter(|name| self.address_of(name).is_some());
        let object = Object::parse(match &op {
            RibOp::Read { path, .. } | RibOp::Write { path, .. } => path,
        });
        let (Some(name), Some(object)) = (name, object) else {
            let result = Err(format!(
                "either no member {remote:?} is known here, or there is no \
                such object"
            )
            .into());
            self.log.push(Event::Answer { id, result });
            return;
        };
        let message = match op {
            RibOp::Read {
                path,
                scope,
                filter,
            } => {
                if filter.len() > FILTER_BYTES_MAX {
                    let result = Err(format!(
                        "the filter has {} bytes; at most {FILTER_BYTES_MAX} go in a message",
                        filter.len()
                    )
                    .into());
                    self.log.push(Event::Answer { id, result });
                    return;
                }
                let mut message = schema::request(Opcode::Read, &object, None);
                message.name = path;
                message.scope = i32::try_from(scope).unwrap_or(i32::MAX);
                message.filter = filter.into_bytes();
                message
            }
            RibOp::Write { path, fields } => {
                let class = object.class().to_string();
                let written = [RibObject {
                    path,
                    class,
                    fields,
                }];
                let value = Some(schema::encode_objects(&written));
                schema::request(Opcode::Write, &object, value)
            }
        };
        self.query(now, alloc::vec![name], message, Purpose::Rib { id }, dt);
    }

    fn local_op(
        &mut self,
        now: Instant,
        op: RibOp,
        dt: &mut dyn DataTransfer,
    ) -> Result<Vec<RibObject>, RibError> {
        match op {
            RibOp::Read {
                path,
                scope,
                filter,
            } => Ok(passing(self.show(now, &path, scope, dt)?, &filter)?),
            RibOp::Write { path, fields } => match Object::parse(&path) {
                Some(Object::Policy(Some(component))) => {
                    self.set_policy(now, &component, &fields, dt)?;
                    Ok(self.show(now, &path, 0, dt)?)
                }
                _ => Err(RibError::NotWritable(path)),
            },
        }
    }
}

impl Query {
    /// Adds a part of the answer. Returns the complete answer when no part is missing.
    fn add_part(&mut self, now: Instant, bytes: &[u8]) -> Option<Vec<u8>> {
        let part: Part = schema::decode(bytes)?;
        let is_good = part.index < part.total && part.total as usize <= ANSWER_MAX / 64;
        if !is_good {
            return None;
        }
        if part.total != self.total {
            self.parts.clear();
            self.total = part.total;
        }
        self.parts.insert(part.index, part.bytes);
        // Parts arrive, so the request need not be repeated yet.
        self.repeat_at = now + REPEAT_AFTER;
        self.give_up_at = now + GIVE_UP_AFTER;
        (self.parts.len() as u64 == u64::from(self.total))
            .then(|| self.parts.values().flatten().copied().collect())
    }
}
