//! A store in etcd, for roles whose state several management nodes share.
//!
//! The store uses the JSON gateway of etcd's v3 API over HTTP, with one connection per request:
//! `range`, `txn`, `lease` and `compaction`. Several members are tried in turn. A request that
//! changes something is sent to one member only; if its answer is lost, [`StoreError::Unavailable`]
//! says that the change may have been made.
//!
//! Changes since a revision are computed from two ranges, one of them at that revision: etcd keeps
//! its history until it is compacted. Leases use etcd's clock, in whole seconds.
//!
//! The connection is neither encrypted nor authenticated. Therefore the members must listen only
//! where the management nodes reach them, for example on loopback.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration as StdDuration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carina_api::control::read_reply;
use carina_time::{Duration, Instant};
use carina_vnet::store::{
    Changes, Compare, Entry, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError,
    Transaction, VALUE_MAX, Write,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::answer::{LeaseRenewal, Leased, Ranged, Refusal, Written};

mod answer;

/// A store on the members of an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    members: Vec<SocketAddr>,
    /// Index of the member that answered last; it is tried first.
    next: usize,
}

/// Whether a request may be repeated at another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// The request may be repeated, because it changes nothing.
    Harmless,
    /// The request may be repeated only if it was not sent: a request that was sent may already
    /// have been executed.
    Unless,
}

/// Why a member of the etcd cluster gave no usable answer.
#[derive(Debug)]
enum Fault {
    /// No connection to the member was made; nothing was sent.
    Unreached(io::Error),
    /// The connection to the member broke; the request may have been executed.
    Broken(io::Error),
    /// The member of the etcd cluster refused the request.
    Refused(Refusal),
}

impl EtcdStore {
    /// The store on the members with these client addresses.
    #[must_use]
    pub fn new(members: Vec<SocketAddr>) -> EtcdStore {
        EtcdStore { members, next: 0 }
    }

    /// Sends a request to one member after the other, until one answers.
    fn ask<T: DeserializeOwned>(
        &mut self,
        repeat: Repeat,
        target: &str,
        body: &Value,
    ) -> Result<T, StoreError> {
        let mut last = "no member is configured".to_owned();
        for _ in 0..self.members.len() {
            let member = self.members[self.next % self.members.len()];
            let fault = match exchange(member, target, body) {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            self.next = (self.next + 1) % self.members.len();
            let (is_undone, words) = match fault {
                Fault::Refused(refusal) if !refusal.is_passing() => return Err(refusal.into()),
                Fault::Refused(refusal) => (false, refusal.to_string()),
                Fault::Unreached(error) => (true, error.to_string()),
                Fault::Broken(error) => (false, error.to_string()),
            };
            last = format!("{member}: {words}");
            if repeat == Repeat::Unless && !is_undone {
                break;
            }
        }
        Err(StoreError::Unavailable(last))
    }

    fn ask_range(&mut self, range: &KeyRange, more: Value) -> Result<Ranged, StoreError> {
        let mut body = json!({
            "key": STANDARD.encode(&range.from),
            "range_end": STANDARD.encode(&range.to),
        });
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        self.ask(Repeat::Harmless, "/v3/kv/range", &body)
    }

    fn keys_at(&mut self, range: &KeyRange, at: u64) -> Result<BTreeSet<String>, StoreError> {
        let more = json!({"revision": at.to_string(), "keys_only": true});
        let entries = self.ask_range(range, more)?.entries()?;
        Ok(entries.into_iter().map(|entry| entry.key).collect())
    }
}

impl Store for EtcdStore {
    fn range(&mut self, _: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        let ranged = self.ask_range(range, json!({}))?;
        Ok(Snapshot {
            revision: ranged.revision(),
            entries: ranged.entries()?,
        })
    }

    fn changes(
        &mut self,
        _: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        let least = (after.0 + 1).to_string();
        let ranged = self.ask_range(range, json!({"min_mod_revision": least}))?;
        let through = ranged.revision();
        let written: Vec<Entry> = ranged.entries()?;
        if through < after {
            // The cluster was created again: its history does not contain the caller's revision.
            return Err(StoreError::Compacted(through));
        }
        let mut deleted = Vec::new();
        if through > after && after > Revision(0) {
            let before = self.keys_at(range, after.0)?;
            let now = self.keys_at(range, through.0)?;
            deleted.extend(before.difference(&now).cloned());
        }
        Ok(Changes {
            through,
            written,
            deleted,
        })
    }

    fn commit(&mut self, _: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        transaction.check()?;
        let compares: Vec<Value> = transaction.compares.iter().map(compare).collect();
        let writes: Vec<Value> = transaction.writes.iter().map(write).collect();
        let body = json!({"compare": compares, "success": writes});
        let written = self.ask(Repeat::Unless, "/v3/kv/txn", &body);
        let written: Written = written.map_err(|error| name_lease(error, transaction))?;
        Ok(if written.succeeded {
            Outcome::Done(written.header.revision())
        } else {
            Outcome::Conflict
        })
    }

    fn grant(&mut self, _: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        let nanos = Duration::from_secs(1).as_nanos();
        let seconds = ttl.as_nanos().div_ceil(nanos).max(1);
        let body = json!({"TTL": seconds.to_string()});
        let leased: Leased = self.ask(Repeat::Unless, "/v3/lease/grant", &body)?;
        Ok(LeaseId(leased.id))
    }

    fn renew(&mut self, _: Instant, lease: LeaseId) -> Result<(), StoreError> {
        let body = json!({"ID": lease.0.to_string()});
        let renewal: LeaseRenewal = self.ask(Repeat::Harmless, "/v3/lease/keepalive", &body)?;
        match renewal.result.ttl {
            0 => Err(StoreError::NoSuchLease(lease)),
            _ => Ok(()),
        }
    }

    fn revoke(&mut self, _: Instant, lease: LeaseId) -> Result<(), StoreError> {
        let body = json!({"ID": lease.0.to_string()});
        match self.ask::<Value>(Repeat::Unless, "/v3/lease/revoke", &body) {
            Ok(_) | Err(StoreError::NoSuchLease(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn compact(&mut self, _: Instant, through: Revision) -> Result<(), StoreError> {
        let body = json!({"revision": through.0.to_string()});
        match self.ask::<Value>(Repeat::Harmless, "/v3/kv/compaction", &body) {
            Ok(_) | Err(StoreError::Compacted(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn compare(compare: &Compare) -> Value {
    match compare {
        Compare::Absent(key) => json!({
            "key": STANDARD.encode(key), "target": "VERSION", "result": "EQUAL", "version": "0",
        }),
        Compare::Unchanged(key, since) => json!({
            "key": STANDARD.encode(key), "target": "MOD", "result": "EQUAL",
            "mod_revision": since.0.to_string(),
        }),
    }
}

fn write(write: &Write) -> Value {
    match write {
        Write::Put { key, value, lease } => json!({"requestPut": {
            "key": STANDARD.encode(key),
            "value": STANDARD.encode(value),
            "lease": lease.map_or(0, |lease| lease.0).to_string(),
        }}),
        Write::Delete(key) => json!({"requestDeleteRange": {"key": STANDARD.encode(key)}}),
    }
}

/// Adds to an error which lease is gone, or what was too large: etcd does not say that.
fn name_lease(error: StoreError, transaction: &Transaction) -> StoreError {
    let lease = transaction.writes.iter().find_map(|write| match write {
        Write::Put { lease, .. } => *lease,
        Write::Delete(_) => None,
    });
    match (error, lease) {
        (StoreError::NoSuchLease(_), Some(lease)) => StoreError::NoSuchLease(lease),
        (StoreError::TooLarge { what, max, .. }, _) => {
            let size = |write: &Write| match write {
                Write::Put { value, .. } => value.len(),
                Write::Delete(_) => 0,
            };
            let size = transaction.writes.iter().map(size).sum();
            StoreError::TooLarge { what, size, max }
        }
        (error, _) => error,
    }
}

fn exchange<T: DeserializeOwned>(
    member: SocketAddr,
    target: &str,
    body: &Value,
) -> Result<T, Fault> {
    let mut stream = TcpStream::connect_timeout(&member, CONNECT).map_err(Fault::Unreached)?;
    let (status, answer) = send(&mut stream, member, target, body).map_err(Fault::Broken)?;
    let wrong = |error: serde_json::Error| {
        let words = format!("its answer was not understood: {error}");
        Fault::Broken(io::Error::new(io::ErrorKind::InvalidData, words))
    };
    match status {
        200 => serde_json::from_slice(&answer).map_err(wrong),
        _ => Err(Fault::Refused(
            serde_json::from_slice(&answer).map_err(wrong)?,
        )),
    }
}

fn send(
    stream: &mut TcpStream,
    member: SocketAddr,
    target: &str,
    body: &Value,
) -> io::Result<(u16, Vec<u8>)> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.set_nodelay(true)?;
    let body = body.to_string();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {member}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    read_reply(&mut BufReader::new(stream))
}

/// Longest time for connecting to a member.
const CONNECT: StdDuration = StdDuration::from_secs(2);

/// Longest time for a member to answer.
const ANSWER: StdDuration = StdDuration::from_secs(5);

/// Limit of a request's size that errors name, bytes; etcd does not report its own.
const REQUEST_MAX: usize = VALUE_MAX;
