//! Where roles keep what they must not forget.
//!
//! A store maps keys to values and has one revision, which each transaction that changes something
//! raises by one. What a role decides on, it has read at a revision; a [`Transaction`] compares
//! before it writes, so that of two who decide on the same state one writes and the other reads
//! again. Keys may hang on a lease, and go with it.
//!
//! Time is an argument, so that a [`memory::MemoryStore`] serves in simulations; a store with a
//! clock of its own, such as etcd, ignores it. [`conformance`] is what every store has to keep.
//!
//! ```text
//! range at 7 --> decide --> commit: if as of 7, write --> Done(8), or Conflict: read again
//!     \-----> changes after 7 --> changes after 9 --> ... --> Compacted: range again
//! ```

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use carina_time::{Duration, Instant};

pub mod conformance;
pub mod memory;

/// Keys, values, revisions and leases.
///
/// Every call may fail with [`StoreError::Unavailable`]; then what was asked may have been done or
/// not, and the caller reads before it goes on.
pub trait Store {
    /// What is in a range of keys, in order of keys.
    ///
    /// # Errors
    /// The store does not answer.
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError>;

    /// What has changed in a range after a revision: the watch of a store that is asked. Several
    /// changes of one key are one. It may be late, as of a revision since `after` that is not the
    /// last: what decides is what [`Store::commit`] compares.
    ///
    /// # Errors
    /// [`StoreError::Compacted`]: the history does not go back so far; the caller takes the range.
    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError>;

    /// Compares, and writes if all comparisons hold, whole or not at all.
    ///
    /// # Errors
    /// Nothing was written, but for [`StoreError::Unavailable`].
    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError>;

    /// Begins a lease that ends after `ttl` unless it is renewed. Stores may count in seconds, and
    /// end it later, never earlier.
    ///
    /// # Errors
    /// The store does not answer.
    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError>;

    /// Lets a lease run for its whole time from now on.
    ///
    /// # Errors
    /// [`StoreError::NoSuchLease`]: it has ended.
    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends a lease, and deletes the keys on it. A lease that has ended is no error.
    ///
    /// # Errors
    /// The store does not answer.
    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError>;

    /// Forgets the history up to a revision, which is not above that of the store.
    ///
    /// # Errors
    /// The store does not answer.
    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError>;
}

/// A count of transactions that changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A lease of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// Keys from one up to, but without, another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: String,
    /// The first key that does not belong to it.
    pub to: String,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key: 1 to [`KEY_MAX`] printable letters of ASCII.
    pub key: String,
    /// The value: up to [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
    /// The revision that wrote it last.
    pub modified: Revision,
    /// The lease with which it goes.
    pub lease: Option<LeaseId>,
}

/// What was in a range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the store then.
    pub revision: Revision,
    /// The entries, in order of keys.
    pub entries: Vec<Entry>,
}

/// What has changed in a range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The revision of the store, after which to ask next.
    pub through: Revision,
    /// What was written and is there, as it is now, in order of keys.
    pub written: Vec<Entry>,
    /// Keys that are gone; among them may be some that the caller never saw.
    pub deleted: Vec<String>,
}

/// What has to be so for a transaction to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// There is no such key.
    Absent(String),
    /// The key is there, last written by this revision.
    Unchanged(String, Revision),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The key has this value. Without a lease it stays until it is deleted.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease with which it goes.
        lease: Option<LeaseId>,
    },
    /// The key is gone.
    Delete(String),
}

/// Comparisons, and what is written if all of them hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What has to be so.
    pub compares: Vec<Compare>,
    /// What is written; each key once.
    pub writes: Vec<Write>,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was written; the keys have this revision.
    Done(Revision),
    /// A comparison did not hold; nothing was written.
    Conflict,
}

/// Why a store did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It does not answer, or broke off. What was asked may have been done.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// There is no room.
    #[error("the store is full: {0}; remove networks, or give it more room")]
    Full(String),
    /// What it holds cannot be read.
    #[error("the store holds what cannot be read: {0}; restore it from a copy")]
    Damaged(String),
    /// A lease has ended, or never began.
    #[error("lease {:x} has ended", .0.0)]
    NoSuchLease(LeaseId),
    /// The history begins later.
    #[error("the history begins after revision {}; read the range again", .0.0)]
    Compacted(Revision),
    /// Something is larger than is possible.
    #[error("{what} has {size}; at most {most} is possible")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The largest size.
        most: usize,
    },
    /// A key is not one.
    #[error("`{0}` is not a key: give printable letters of ASCII, one at least")]
    Key(String),
    /// A transaction writes a key twice.
    #[error("the transaction writes `{0}` twice; once is possible")]
    Twice(String),
}

impl StoreError {
    /// Its kind, as counters name it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            StoreError::Unavailable(_) => "the store did not answer",
            StoreError::Full(_) => "the store is full",
            StoreError::Damaged(_) => "the store is damaged",
            StoreError::NoSuchLease(_) => "the lease had ended",
            StoreError::Compacted(_) => "the history was compacted",
            StoreError::TooLarge { .. } => "too large for the store",
            StoreError::Key(_) | StoreError::Twice(_) => "the store refused",
        }
    }
}

impl KeyRange {
    /// All keys that begin so; `prefix` is not empty.
    #[must_use]
    pub fn prefix(prefix: &str) -> KeyRange {
        let mut to = prefix.to_owned();
        // The last letter is ASCII, and below the highest: a key is printable.
        let last = to.pop().map_or(u8::MAX, |last| last as u8);
        to.push(char::from(last.saturating_add(1)));
        KeyRange {
            from: prefix.to_owned(),
            to,
        }
    }

    /// This key alone.
    #[must_use]
    pub fn key(key: &str) -> KeyRange {
        KeyRange {
            from: key.to_owned(),
            to: format!("{key}\0"),
        }
    }

    /// Whether a key belongs to it.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        *self.from <= *key && *key < *self.to
    }
}

impl Transaction {
    /// One that does nothing yet.
    #[must_use]
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Writes only if there is no such key.
    #[must_use]
    pub fn if_absent(mut self, key: impl Into<String>) -> Transaction {
        self.compares.push(Compare::Absent(key.into()));
        self
    }

    /// Writes only if the key was last written by this revision.
    #[must_use]
    pub fn if_unchanged(mut self, key: impl Into<String>, since: Revision) -> Transaction {
        self.compares.push(Compare::Unchanged(key.into(), since));
        self
    }

    /// Writes only if the key is as it was read: at this revision, or absent.
    #[must_use]
    pub fn if_as_read(self, key: impl Into<String>, read: Option<Revision>) -> Transaction {
        match read {
            Some(revision) => self.if_unchanged(key, revision),
            None => self.if_absent(key),
        }
    }

    /// Gives a key a value.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: Vec<u8>) -> Transaction {
        let (key, lease) = (key.into(), None);
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// Gives a key a value, both of which go with a lease.
    #[must_use]
    pub fn put_leased(
        mut self,
        key: impl Into<String>,
        value: Vec<u8>,
        lease: LeaseId,
    ) -> Transaction {
        let (key, lease) = (key.into(), Some(lease));
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.writes.push(Write::Delete(key.into()));
        self
    }

    /// Checks that a store may be asked for it.
    ///
    /// # Errors
    /// A key or value that is not one, a key that is written twice, or more operations than
    /// [`OPERATIONS_MAX`].
    pub fn check(&self) -> Result<(), StoreError> {
        let operations = self.compares.len().max(self.writes.len());
        at_most("a transaction", operations, OPERATIONS_MAX)?;
        for compare in &self.compares {
            let (Compare::Absent(key) | Compare::Unchanged(key, _)) = compare;
            check_key(key)?;
        }
        let mut keys = std::collections::BTreeSet::new();
        for write in &self.writes {
            check_key(write.key())?;
            if !keys.insert(write.key()) {
                return Err(StoreError::Twice(write.key().to_owned()));
            }
            if let Write::Put { value, .. } = write {
                at_most("a value", value.len(), VALUE_MAX)?;
            }
        }
        Ok(())
    }
}

impl Write {
    /// The key that it changes.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Write::Put { key, .. } | Write::Delete(key) => key,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A store that several share within a thread, such as the roles of a simulation.
impl<S: Store> Store for Rc<RefCell<S>> {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.borrow_mut().range(now, range)
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        self.borrow_mut().changes(now, range, after)
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        self.borrow_mut().commit(now, transaction)
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.borrow_mut().grant(now, ttl)
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.borrow_mut().renew(now, lease)
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.borrow_mut().revoke(now, lease)
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.borrow_mut().compact(now, through)
    }
}

fn check_key(key: &str) -> Result<(), StoreError> {
    at_most("a key", key.len(), KEY_MAX)?;
    if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err(StoreError::Key(key.to_owned()))
    }
}

fn at_most(what: &'static str, size: usize, most: usize) -> Result<(), StoreError> {
    if size > most {
        Err(StoreError::TooLarge { what, size, most })
    } else {
        Ok(())
    }
}

/// Bytes of a key.
pub const KEY_MAX: usize = 256;

/// Bytes of a value: what etcd takes in a request, with room for what is around it.
pub const VALUE_MAX: usize = 1 << 20;

/// Comparisons, and writes, of a transaction, as etcd bounds them.
pub const OPERATIONS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_has_the_keys_that_begin_so_and_no_other() {
        let range = KeyRange::prefix("part/");
        assert!(range.contains("part/") && range.contains("part/7f"));
        assert!(range.contains("part/~~~"));
        assert!(!range.contains("part") && !range.contains("part0") && !range.contains("paru/"));
        let key = KeyRange::key("a");
        assert!(key.contains("a") && !key.contains("a!") && !key.contains("b"));
    }

    #[test]
    fn impossible_transactions_are_named() {
        let refusal = |transaction: Transaction| transaction.check().unwrap_err().to_string();
        let twice = Transaction::new().put("a", vec![]).delete("a");
        assert!(refusal(twice).contains("`a` twice"));
        let spaced = Transaction::new().if_absent("a b");
        assert!(refusal(spaced).contains("`a b` is not a key"));
        let empty = Transaction::new().delete("");
        assert!(refusal(empty).contains("one at least"));
        let large = Transaction::new().put("a", vec![0; VALUE_MAX + 1]);
        assert!(refusal(large).contains("at most 1048576"));
        let many = (0..=OPERATIONS_MAX).fold(Transaction::new(), |transaction, number| {
            transaction.delete(number.to_string())
        });
        assert!(refusal(many).contains("a transaction has 129"));
    }
}
