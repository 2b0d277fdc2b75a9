//! Handles M_READ of other members: filters, long answers in parts, cancellation.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Flag, Message, Value};
use carina_ipcp::api::RibObject;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::rib_view::{ReadError, passing};
use carina_time::{Duration, Instant};

use super::Management;
use super::requester::Requester;
use super::schema::{self, Part, result};

/// Longest answer in bytes.
pub(super) const ANSWER_MAX: usize = 4 << 20;

/// Largest number of answers that are kept.
const READERS_MAX: usize = 32;

/// How long an answer is kept for repeated requests.
const KEEP_TIME: Duration = Duration::from_secs(10);

/// Number of parts that are sent in one go, without waiting.
const PARTS_AT_ONCE: usize = 16;
/// Pause before the next parts are sent.
const PARTS_PAUSE: Duration = Duration::from_millis(5);

/// Bytes that the CDAP message around a part needs.
const PART_OVERHEAD: usize = 160;

/// An answer that is sent in parts and kept for repeated requests.
#[derive(Debug)]
pub(super) struct Reader {
    address: u64,
    answer: Message,
    parts: Vec<Vec<u8>>,
    next: usize,
    at: Instant,
    pub(super) until: Instant,
}

impl Reader {
    pub(super) fn due(&self) -> Instant {
        if self.next < self.parts.len() {
            self.at
        } else {
            self.until
        }
    }
}

impl Management {
    /// Handles M_READ of a member.
    pub(super) fn on_read(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let key = (requester.name.clone(), message.invoke_id);
        if let Some(reader) = self.queries.readers.get_mut(&key) {
            // A repeated request gets the same answer again, after all parts have been sent once.
            if reader.next >= reader.parts.len() {
                reader.next = 0;
                self.send_parts(now, &key, dt);
            }
            return;
        }
        let objects = match self.select(now, message, dt) {
            Ok(objects) => objects,
            Err(error) => {
                let reason = error.to_string();
                return self.reject_to(now, requester, message, result::OBJECT, &reason, dt);
            }
        };
        let bytes = schema::encode_objects(&objects);
        if bytes.len() > ANSWER_MAX || self.queries.readers.len() >= READERS_MAX {
            let reason = "the answer is too long or too many ask at once; read a smaller part";
            return self.reject_to(now, requester, message, result::ERROR, reason, dt);
        }
        let size = dt
            .management_max()
            .saturating_sub(PART_OVERHEAD + message.name.len())
            .max(64);
        let mut parts: Vec<Vec<u8>> = bytes.chunks(size).map(<[u8]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let reader = Reader {
            address: requester.address,
            answer: message.answer(),
            parts,
            next: 0,
            at: now,
            until: now + KEEP_TIME,
        };
        self.queries.readers.insert(key.clone(), reader);
        self.send_parts(now, &key, dt);
    }

    pub(super) fn send_parts(
        &mut self,
        now: Instant,
        key: &(String, i32),
        dt: &mut dyn DataTransfer,
    ) {
        let Some(reader) = self.queries.readers.get_mut(key) else {
            return;
        };
        if reader.at > now && reader.next > 0 {
            return;
        }
        let total = reader.parts.len();
        let end = (reader.next + PARTS_AT_ONCE).min(total);
        let mut messages = Vec::new();
        for index in reader.next..end {
            let part = Part {
                index: index as u32,
                total: total as u32,
                bytes: reader.parts[index].clone(),
            };
            let mut answer = reader.answer.clone();
            answer.value = Some(Value::Bytes(schema::encode(&part)));
            if index + 1 < total {
                answer.flag = Flag::ReadIncomplete;
            }
            messages.push(answer.encode());
        }
        reader.next = end;
        reader.at = now + PARTS_PAUSE;
        let address = reader.address;
        for message in messages {
            self.send_to(now, address, message, dt);
        }
    }

    /// Handles M_CANCELREAD: no more parts are sent.
    pub(super) fn on_cancel(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        self.queries
            .readers
            .remove(&(requester.name.clone(), message.invoke_id));
        self.respond_to(now, requester, &message.answer(), dt);
    }

    /// The objects that an M_READ selects.
    ///
    /// # Errors
    /// The object does not exist, or the filter is invalid.
    fn select(
        &self,
        now: Instant,
        message: &Message,
        dt: &dyn DataTransfer,
    ) -> Result<Vec<RibObject>, ReadError> {
        let scope = u32::try_from(message.scope).unwrap_or(0);
        let filter = core::str::from_utf8(&message.filter);
        let filter = filter.map_err(|_| ReadError::FilterEncoding)?;
        passing(self.show(now, &message.name, scope, dt)?, filter)
    }
}
