//! Stores: the persistent state of roles.
//!
//! A store maps keys to values. It has a revision, which each transaction that changes something
//! increments. A role decides on what it has read at some revision; a [`Transaction`] compares
//! revisions before it writes. If two processes decide on the same state, one writes, and the other
//! gets a conflict and reads again. A key may be attached to a lease, and is deleted when the lease
//! ends.
//!
//! Time is an argument, so that simulations can use a [`memory::MemoryStore`]. A store with a clock
//! of its own, such as etcd, ignores the argument. Every store must pass the cases of
//! [`conformance`].
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

/// A store of keys and values, with revisions and leases.
///
/// Every call may fail with [`StoreError::Unavailable`]. The operation may then have been done or
/// not, and the caller must read before it continues.
pub trait Store {
    /// The entries of a range of keys, in the order of keys.
    ///
    /// # Errors
    /// The store does not answer.
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError>;

    /// The changes of a range of keys after a revision. A caller polls this in place of a watch.
    /// Several changes of one key are merged into the last one. The answer may be as of any
    /// revision from `after` up to the current one; a decision is safe only because
    /// [`Store::commit`] compares.
    ///
    /// # Errors
    /// [`StoreError::Compacted`]: the history does not reach back to `after`; the caller must read
    /// the whole range.
    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError>;

    /// Executes a transaction atomically: if all comparisons hold, all writes are done, else none.
    ///
    /// # Errors
    /// Nothing was written, except perhaps after [`StoreError::Unavailable`].
    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError>;

    /// Creates a lease that ends after `ttl` unless it is renewed. A store that counts in seconds
    /// may end it later than that, but never earlier.
    ///
    /// # Errors
    /// The store does not answer.
    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError>;

    /// Restarts the time of a lease at its full length.
    ///
    /// # Errors
    /// [`StoreError::NoSuchLease`]: the lease has ended.
    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends a lease and deletes the keys attached to it. Revoking a lease that has already ended is
    /// not an error.
    ///
    /// # Errors
    /// The store does not answer.
    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError>;

    /// Discards the history up to a revision, which must not exceed the store's revision.
    ///
    /// # Errors
    /// The store does not answer.
    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError>;
}

/// A revision: the number of transactions that have changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Identifies a lease of a store. When the lease ends, the store deletes the keys attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// The keys from `from` up to, but not including, `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key of the range.
    pub from: String,
    /// The first key after the range.
    pub to: String,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key: 1 to [`KEY_MAX`] printable ASCII characters.
    pub key: String,
    /// The value: at most [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
    /// The revision that last wrote the key.
    pub modified: Revision,
    /// The lease to which the key is attached, if any.
    pub lease: Option<LeaseId>,
}

/// The entries of a range of keys at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the store when it was read.
    pub revision: Revision,
    /// The entries, in the order of keys.
    pub entries: Vec<Entry>,
}

/// The changes in a range of keys after a revision that the caller requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The revision up to which changes are included; the next request starts after it.
    pub through: Revision,
    /// The entries that were written after the requested revision and were not deleted since, with
    /// their current values, in the order of keys.
    pub written: Vec<Entry>,
    /// The keys that were deleted after the requested revision. A key may be among them that the
    /// caller never saw, because it was also created after that revision.
    pub deleted: Vec<String>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(String),
    /// The key exists, and this revision last wrote it.
    Unchanged(String, Revision),
}

/// A write of a transaction: sets or deletes one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets the value of a key.
    Put {
        /// The key to set.
        key: String,
        /// The new value of the key.
        value: Vec<u8>,
        /// The lease to which the key is attached; `None`: the key stays until it is deleted.
        lease: Option<LeaseId>,
    },
    /// Deletes this key, if it exists.
    Delete(String),
}

/// Conditions and writes; the store does all writes if all conditions hold, and none otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions of this transaction, which must all hold.
    pub compares: Vec<Compare>,
    /// The writes of this transaction; at most one for each key.
    pub writes: Vec<Write>,
}

/// Whether a store has done the writes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All writes were done; the keys have this revision.
    Done(Revision),
    /// A condition did not hold; nothing was written.
    Conflict,
}

/// Why a store could not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store does not answer, or the connection broke. The operation may have been done.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The store has no room left.
    #[error("the store is full: {0}; remove networks, or give the store more space")]
    Full(String),
    /// The content of the store cannot be read.
    #[error("the store is damaged: {0}; restore it from a backup")]
    Damaged(String),
    /// The lease has ended, or never existed.
    #[error("lease {:x} has ended", .0.0)]
    NoSuchLease(LeaseId),
    /// The history begins after this revision.
    #[error("the history begins after revision {}; read the range again", .0.0)]
    Compacted(Revision),
    /// A key, value or transaction exceeds its largest size.
    #[error("{what} has {size}; must be at most {max}")]
    TooLarge {
        /// What exceeds the limit of the store, such as `a key`.
        what: &'static str,
        /// Size of the key, value or transaction that is too large, in bytes or operations.
        size: usize,
        /// The largest allowed size.
        max: usize,
    },
    /// The text is not a valid key.
    #[error("`{0}` is not a key: give one or more printable ASCII characters")]
    Key(String),
    /// The transaction writes this key twice.
    #[error("the transaction writes `{0}` twice; once is possible")]
    Twice(String),
}

impl StoreError {
    /// The name of this kind of error, by which counters count it.
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
    /// All keys with this prefix, which must not be empty.
    #[must_use]
    pub fn prefix(prefix: &str) -> KeyRange {
        let mut to = prefix.to_owned();
        // The last character is printable ASCII, so that the next one exists.
        let last = to.pop().map_or(u8::MAX, |last| last as u8);
        to.push(char::from(last.saturating_add(1)));
        KeyRange {
            from: prefix.to_owned(),
            to,
        }
    }

    /// The range that contains only this key.
    #[must_use]
    pub fn key(key: &str) -> KeyRange {
        KeyRange {
            from: key.to_owned(),
            to: format!("{key}\0"),
        }
    }

    /// Whether a key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        *self.from <= *key && *key < *self.to
    }
}

impl Transaction {
    /// A transaction without conditions and writes.
    #[must_use]
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds the condition that the key does not exist.
    #[must_use]
    pub fn if_absent(mut self, key: impl Into<String>) -> Transaction {
        self.compares.push(Compare::Absent(key.into()));
        self
    }

    /// Adds the condition that revision `since` last wrote the key.
    #[must_use]
    pub fn if_unchanged(mut self, key: impl Into<String>, since: Revision) -> Transaction {
        self.compares.push(Compare::Unchanged(key.into(), since));
        self
    }

    /// Adds the condition that the key is still as it was read: last written at revision `read`, or
    /// absent if `None`.
    #[must_use]
    pub fn if_as_read(self, key: impl Into<String>, read: Option<Revision>) -> Transaction {
        match read {
            Some(revision) => self.if_unchanged(key, revision),
            None => self.if_absent(key),
        }
    }

    /// Adds a write that sets the value of a key.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: Vec<u8>) -> Transaction {
        let (key, lease) = (key.into(), None);
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// Adds a write that sets the value of a key and attaches the key to a lease.
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

    /// Adds a write that deletes a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.writes.push(Write::Delete(key.into()));
        self
    }

    /// Checks the form of the transaction: keys, values and sizes. Reads no store.
    ///
    /// # Errors
    /// A key is invalid, a value is longer than [`VALUE_MAX`], a key is written twice, or there are
    /// more than [`OPERATIONS_MAX`] conditions or more than [`OPERATIONS_MAX`] writes.
    pub fn check(&self) -> Result<(), StoreError> {
        let operations = self.compares.len().max(self.writes.len());
        check_size("a transaction", operations, OPERATIONS_MAX)?;
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
                check_size("a value", value.len(), VALUE_MAX)?;
            }
        }
        Ok(())
    }
}

impl Write {
    /// The key that this write sets or deletes.
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

/// A store shared within one thread, for instance by the roles of a simulation.
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
    check_size("a key", key.len(), KEY_MAX)?;
    if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err(StoreError::Key(key.to_owned()))
    }
}

fn check_size(what: &'static str, size: usize, max: usize) -> Result<(), StoreError> {
    if size > max {
        Err(StoreError::TooLarge { what, size, max })
    } else {
        Ok(())
    }
}

/// Largest size of a key, bytes.
pub const KEY_MAX: usize = 256;

/// Largest size of a value, bytes: a value of this size fits into a request to etcd.
pub const VALUE_MAX: usize = 1 << 20;

/// Largest number of conditions, and of writes, of a transaction, as etcd limits them.
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
        assert!(refusal(empty).contains("one or more"));
        let large = Transaction::new().put("a", vec![0; VALUE_MAX + 1]);
        assert!(refusal(large).contains("at most 1048576"));
        let many = (0..=OPERATIONS_MAX).fold(Transaction::new(), |transaction, number| {
            transaction.delete(number.to_string())
        });
        assert!(refusal(many).contains("a transaction has 129"));
    }
}
