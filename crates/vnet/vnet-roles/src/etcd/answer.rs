//! Answers of etcd's JSON gateway, in which 64-bit numbers are texts and zero values are omitted.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carina_vnet::store::{Entry, LeaseId, Revision, StoreError};
use serde::{Deserialize, Deserializer};

/// The header of every answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    revision: u64,
}

impl Header {
    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }
}

/// The answer to a range request.
#[derive(Debug, Deserialize)]
pub(super) struct Ranged {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
}

/// A key with its value.
#[derive(Debug, Deserialize)]
struct Pair {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: u64,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
}

/// The answer to the creation of a lease.
#[derive(Debug, Deserialize)]
pub(super) struct Leased {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: u64,
}

/// The answer to the renewal of a lease.
#[derive(Debug, Deserialize)]
pub(super) struct LeaseRenewal {
    pub(super) result: KeptResult,
}

/// The remaining time of a lease, s; 0 if it has ended.
#[derive(Debug, Deserialize)]
pub(super) struct KeptResult {
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    pub(super) ttl: u64,
}

/// A refusal: a gRPC code and a text.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    error: String,
}

impl Ranged {
    pub(super) fn revision(&self) -> Revision {
        self.header.revision()
    }

    /// The entries, in the order of keys.
    pub(super) fn entries(self) -> Result<Vec<Entry>, StoreError> {
        self.kvs.into_iter().map(Pair::entry).collect()
    }
}

impl Pair {
    fn entry(self) -> Result<Entry, StoreError> {
        let wrong = |what: &str| StoreError::Damaged(format!("{what} of an entry is not base64"));
        let key = STANDARD.decode(&self.key).map_err(|_| wrong("the key"))?;
        let key = String::from_utf8(key);
        Ok(Entry {
            key: key.map_err(|_| StoreError::Damaged("a key is not text".to_owned()))?,
            value: STANDARD
                .decode(&self.value)
                .map_err(|_| wrong("the value"))?,
            modified: Revision(self.mod_revision),
            lease: (self.lease != 0).then_some(LeaseId(self.lease)),
        })
    }
}

impl Refusal {
    /// Whether the request may succeed later, or at another member.
    pub(super) fn is_passing(&self) -> bool {
        // The gRPC codes UNKNOWN, which etcd uses for some states of its own, DEADLINE_EXCEEDED and
        // UNAVAILABLE.
        matches!(self.code, 2 | 4 | 14)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.error, self.code)
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        let says = |words: &str| refusal.error.contains(words);
        if says("has been compacted") || says("future revision") {
            StoreError::Compacted(Revision(0))
        } else if says("lease not found") {
            StoreError::NoSuchLease(LeaseId(0))
        } else if says("database space exceeded") {
            StoreError::Full(refusal.to_string())
        } else if says("too large") {
            StoreError::TooLarge {
                what: "a transaction",
                size: 0,
                max: super::REQUEST_MAX,
            }
        } else {
            StoreError::Unavailable(refusal.to_string())
        }
    }
}

/// Deserializes a number that may be written as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Number(u64),
    }
    match Form::deserialize(deserializer)? {
        Form::Number(number) => Ok(number),
        Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_texts_and_zero_is_left_out() {
        let answer = r#"{"header":{"cluster_id":"1","revision":"7","raft_term":"2"},
            "kvs":[{"key":"YS8x","create_revision":"3","mod_revision":"5","version":"2",
            "lease":"7587"},{"key":"YS8y","value":"AAE="}],"count":"2"}"#;
        let ranged: Ranged = serde_json::from_str(answer).unwrap();
        assert_eq!(ranged.revision(), Revision(7));
        let entries = ranged.entries().unwrap();
        assert_eq!(
            (&*entries[0].key, entries[0].modified),
            ("a/1", Revision(5))
        );
        assert_eq!(entries[0].lease, Some(LeaseId(7587)));
        assert_eq!((&*entries[1].value, entries[1].lease), (&[0, 1][..], None));
        let renewal: LeaseRenewal = serde_json::from_str(r#"{"result":{"ID":"5"}}"#).unwrap();
        assert_eq!(renewal.result.ttl, 0);
    }

    #[test]
    fn refusals_become_errors_of_the_store() {
        let error = |code, words: &str| {
            let error = words.to_owned();
            StoreError::from(Refusal { code, error })
        };
        let compacted = error(11, "etcdserver: mvcc: required revision has been compacted");
        assert!(matches!(compacted, StoreError::Compacted(_)));
        let lease = error(5, "etcdserver: requested lease not found");
        assert!(matches!(lease, StoreError::NoSuchLease(_)));
        let full = error(8, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, StoreError::Full(_)), "{full}");
        let other = error(13, "something else");
        assert!(other.to_string().contains("something else (code 13)"));
    }
}
