//! Stores of roles' states, as a configuration names them.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use carina_time::{Duration, Instant};
use carina_vnet::store::{
    Changes, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError, Transaction,
};

use crate::etcd::EtcdStore;
use crate::sqlite::SqliteStore;

/// The name of a store: the path of a file, or `etcd://ADDRESS,ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreName {
    /// An SQLite file.
    File(PathBuf),
    /// The client addresses of an etcd cluster's members.
    Etcd(Vec<SocketAddr>),
}

/// The error for text that does not name a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: a store must be a path, or `etcd://ADDRESS:PORT` with more addresses after commas")]
pub struct StoreNameError(String);

/// A store opened by its name. It compacts its history from time to time, so that the store does
/// not grow without bound.
#[derive(Debug)]
pub struct NamedStore {
    engine: Engine,
    /// The revision up to which this process has compacted the history.
    forgotten: Revision,
}

#[derive(Debug)]
enum Engine {
    Sqlite(SqliteStore),
    Etcd(EtcdStore),
}

impl StoreName {
    /// The name with a relative path resolved against `directory`.
    #[must_use]
    pub fn within(self, directory: &Path) -> StoreName {
        match self {
            StoreName::File(path) => StoreName::File(directory.join(path)),
            etcd @ StoreName::Etcd(_) => etcd,
        }
    }

    /// Opens the store; creates a file that does not exist.
    ///
    /// # Errors
    /// The file is not a store. An etcd cluster is not contacted yet.
    pub fn open(&self) -> Result<NamedStore, StoreError> {
        let engine = match self {
            StoreName::File(path) => Engine::Sqlite(SqliteStore::open(path, BYTES_MAX)?),
            StoreName::Etcd(members) => Engine::Etcd(EtcdStore::new(members.clone())),
        };
        let forgotten = Revision(0);
        Ok(NamedStore { engine, forgotten })
    }
}

impl FromStr for StoreName {
    type Err = StoreNameError;

    fn from_str(text: &str) -> Result<StoreName, StoreNameError> {
        let wrong = || StoreNameError(text.chars().take(128).collect());
        let Some(members) = text.strip_prefix("etcd://") else {
            return if text.is_empty() || text.contains("://") {
                Err(wrong())
            } else {
                Ok(StoreName::File(text.into()))
            };
        };
        let members = members.split(',').map(str::parse);
        let members: Result<Vec<SocketAddr>, _> = members.collect();
        members.map(StoreName::Etcd).map_err(|_| wrong())
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreName::File(path) => write!(f, "{}", path.display()),
            StoreName::Etcd(members) => {
                let members: Vec<String> = members.iter().map(ToString::to_string).collect();
                write!(f, "etcd://{}", members.join(","))
            }
        }
    }
}

impl NamedStore {
    fn store(&mut self) -> &mut dyn Store {
        match &mut self.engine {
            Engine::Sqlite(store) => store,
            Engine::Etcd(store) => store,
        }
    }

    /// Compacts the old history. A process that has not read for that long must read everything
    /// again.
    fn forget(&mut self, now: Instant, revision: Revision) {
        let through = Revision(revision.0.saturating_sub(HISTORY));
        if through.0 > self.forgotten.0 + HISTORY {
            self.forgotten = through;
            // If it fails, the next attempt may succeed.
            let _ = self.store().compact(now, through);
        }
    }
}

impl Store for NamedStore {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.store().range(now, range)
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        self.store().changes(now, range, after)
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let outcome = self.store().commit(now, transaction)?;
        if let Outcome::Done(revision) = outcome {
            self.forget(now, revision);
        }
        Ok(outcome)
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.store().grant(now, ttl)
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.store().renew(now, lease)
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.store().revoke(now, lease)
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.store().compact(now, through)
    }
}

/// Number of revisions whose changes are kept.
const HISTORY: u64 = 10_000;
/// Largest size of a file, bytes.
const BYTES_MAX: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_paths_or_clusters() {
        let read = |text: &str| text.parse::<StoreName>().map(|name| name.to_string());
        assert_eq!(read("uk.db").unwrap(), "uk.db");
        let cluster = "etcd://127.0.0.1:2379,[::1]:2379";
        assert_eq!(read(cluster).unwrap(), cluster);
        for wrong in ["", "etcd://", "etcd://here", "http://127.0.0.1:2379"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("etcd://ADDRESS:PORT"), "{error}");
        }
        let within = |text: &str| text.parse::<StoreName>().unwrap().within("/x".as_ref());
        assert_eq!(within("uk.db").to_string(), "/x/uk.db");
        assert_eq!(within("/y/uk.db").to_string(), "/y/uk.db");
    }

    #[test]
    fn history_of_long_ago_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let name = StoreName::File(directory.path().join("store"));
        let mut store = name.open().unwrap();
        let (now, range) = (Instant::from_secs(1), KeyRange::prefix("k/"));
        let write = Transaction::new().put("k/1", vec![1]);
        let Outcome::Done(first) = store.commit(now, &write).unwrap() else {
            panic!("nothing was compared");
        };
        store.forget(now, Revision(first.0 + HISTORY));
        assert!(store.changes(now, &range, Revision(0)).is_ok());
        store.forget(now, Revision(first.0 + 2 * HISTORY));
        let error = store.changes(now, &range, Revision(0)).unwrap_err();
        assert!(matches!(error, StoreError::Compacted(_)), "{error}");
    }
}
