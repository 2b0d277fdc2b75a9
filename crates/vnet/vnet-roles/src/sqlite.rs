//! A store in an SQLite file, for roles on one machine.
//!
//! A transaction that was answered is on the disk (write-ahead log, `synchronous = FULL`), and
//! survives the end of the process and of the machine. Several processes may open the file. One
//! writes at a time; the others wait up to 5 s, and then report that the store does not answer. The
//! command `sqlite3 FILE 'select key, cast(value as text) from entry'` prints the content.
//!
//! Calls block for as long as the disk takes. Therefore a role calls its store on its own thread.

use std::path::Path;
use std::time::Duration as StdDuration;

use carina_time::{Duration, Instant};
use carina_vnet::store::{
    Changes, Compare, Entry, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError,
    Transaction, Write,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

/// A store in an SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
}

impl SqliteStore {
    /// Opens the store in this file, or creates it, with room for `bytes_max` bytes.
    ///
    /// # Errors
    /// The file cannot be opened or created, is not a store, or was made by another version.
    pub fn open(path: &Path, bytes_max: u64) -> Result<SqliteStore, StoreError> {
        let mut connection = Connection::open(path).map_err(store_error)?;
        connection.busy_timeout(WAIT).map_err(store_error)?;
        prepare(&mut connection, bytes_max).map_err(store_error)?;
        let format = |connection: &Connection| {
            connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
        };
        match format(&connection).map_err(store_error)? {
            FORMAT => Ok(SqliteStore { connection }),
            other => Err(StoreError::Damaged(format!(
                "{} has format {other}; this version reads format {FORMAT}",
                path.display()
            ))),
        }
    }

    /// Ends the leases that have expired, then reads at one revision.
    fn read<T>(
        &mut self,
        now: Instant,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let over = "select 1 from lease where ends_ns <= ?1 limit 1";
        let over = self
            .connection
            .query_row(over, [signed(now.as_nanos())], |_| Ok(()));
        if over.optional().map_err(store_error)?.is_some() {
            self.write(now, |_| Ok(()))?;
        }
        let transaction = self.connection.transaction().map_err(store_error)?;
        let result = read(&transaction).map_err(store_error)?;
        transaction.finish().map_err(store_error)?;
        Ok(result)
    }

    /// Ends the leases that have expired, then writes. If anything fails, everything is rolled
    /// back.
    fn write<T>(
        &mut self,
        now: Instant,
        write: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior);
        let transaction = transaction.map_err(store_error)?;
        let result = expire(&transaction, now).map_err(Fault::from);
        match result.and_then(|()| write(&transaction)) {
            Ok(result) => {
                transaction.commit().map_err(store_error)?;
                Ok(result)
            }
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Sqlite(error)) => Err(store_error(error)),
        }
    }
}

impl Store for SqliteStore {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.read(now, |connection| {
            Ok(Snapshot {
                revision: revision(connection)?,
                entries: entries(connection, range, Revision(0))?,
            })
        })
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        let (compacted, changes) = self.read(now, |connection| {
            let gone = "select key from gone where key >= ?1 and key < ?2 and at > ?3 order by key";
            let mut gone = connection.prepare_cached(gone)?;
            let keys = params![range.from, range.to, signed(after.0)];
            let keys = gone.query_map(keys, |row| row.get::<_, String>(0))?;
            let changes = Changes {
                through: revision(connection)?,
                written: entries(connection, range, after)?,
                deleted: keys.collect::<Result<_, _>>()?,
            };
            Ok((number(connection, "compacted")?, changes))
        })?;
        if after.0 < compacted {
            Err(StoreError::Compacted(Revision(compacted)))
        } else {
            Ok(changes)
        }
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        transaction.check()?;
        self.write(now, |connection| {
            for compare in &transaction.compares {
                if !holds(connection, compare)? {
                    return Ok(Outcome::Conflict);
                }
            }
            let now = revision(connection)?;
            let next = Revision(now.0 + 1);
            let mut is_changed = false;
            for write in &transaction.writes {
                is_changed |= apply(connection, write, next)?;
            }
            if !is_changed {
                return Ok(Outcome::Done(now));
            }
            set_number(connection, "revision", next.0)?;
            Ok(Outcome::Done(next))
        })
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.write(now, |connection| {
            let id = number(connection, "lease")? + 1;
            set_number(connection, "lease", id)?;
            let insert = "insert into lease (id, ttl_ns, ends_ns) values (?1, ?2, ?3)";
            let ends = signed((now + ttl).as_nanos());
            connection.execute(insert, params![signed(id), signed(ttl.as_nanos()), ends])?;
            Ok(LeaseId(id))
        })
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.write(now, |connection| {
            let update = "update lease set ends_ns = ?1 + ttl_ns where id = ?2";
            let now = signed(now.as_nanos());
            match connection.execute(update, params![now, signed(lease.0)])? {
                0 => Err(StoreError::NoSuchLease(lease).into()),
                _ => Ok(()),
            }
        })
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.write(now, |connection| Ok(end_lease(connection, lease)?))
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.write(now, |connection| {
            let through = through.min(revision(connection)?).0;
            let compacted = number(connection, "compacted")?.max(through);
            set_number(connection, "compacted", compacted)?;
            connection.execute("delete from gone where at <= ?1", [signed(compacted)])?;
            Ok(())
        })
    }
}

/// Why a transaction is rolled back.
enum Fault {
    Refused(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sqlite(error)
    }
}

fn prepare(connection: &mut Connection, bytes_max: u64) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = signed(bytes_max) / page.max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages.max(16), |_| Ok(()))?;
    let behavior = TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behavior)?;
    let tables: i64 = {
        let count = "select count(*) from sqlite_schema";
        transaction.query_row(count, [], |row| row.get(0))?
    };
    if tables == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()
}

fn entries(
    connection: &Connection,
    range: &KeyRange,
    after: Revision,
) -> rusqlite::Result<Vec<Entry>> {
    let select = "select key, value, modified, lease from entry \
                  where key >= ?1 and key < ?2 and modified > ?3 order by key";
    let mut select = connection.prepare_cached(select)?;
    let entries = select.query_map(params![range.from, range.to, signed(after.0)], |row| {
        let lease: Option<i64> = row.get(3)?;
        Ok(Entry {
            key: row.get(0)?,
            value: row.get(1)?,
            modified: Revision(unsigned(row.get(2)?)),
            lease: lease.map(|id| LeaseId(unsigned(id))),
        })
    })?;
    entries.collect()
}

fn holds(connection: &Connection, compare: &Compare) -> rusqlite::Result<bool> {
    let (Compare::Absent(key) | Compare::Unchanged(key, _)) = compare;
    let mut select = connection.prepare_cached("select modified from entry where key = ?1")?;
    let modified: Option<i64> = select.query_row([key], |row| row.get(0)).optional()?;
    Ok(match compare {
        Compare::Absent(_) => modified.is_none(),
        Compare::Unchanged(_, since) => modified == Some(signed(since.0)),
    })
}

/// Executes a write; returns whether it changes anything.
fn apply(connection: &Connection, write: &Write, revision: Revision) -> Result<bool, Fault> {
    let at = signed(revision.0);
    match write {
        Write::Delete(key) => {
            let gone = connection.execute("delete from entry where key = ?1", [key])?;
            if gone > 0 {
                let note = "insert or replace into gone (key, at) values (?1, ?2)";
                connection.prepare_cached(note)?.execute(params![key, at])?;
            }
            Ok(gone > 0)
        }
        Write::Put { key, value, lease } => {
            if let Some(id) = lease {
                let known = "select 1 from lease where id = ?1";
                let known = connection.query_row(known, [signed(id.0)], |_| Ok(()));
                if known.optional()?.is_none() {
                    return Err(StoreError::NoSuchLease(*id).into());
                }
            }
            let put = "insert or replace into entry (key, value, modified, lease) \
                       values (?1, ?2, ?3, ?4)";
            let lease = lease.map(|id| signed(id.0));
            connection
                .prepare_cached(put)?
                .execute(params![key, value, at, lease])?;
            connection.execute("delete from gone where key = ?1", [key])?;
            Ok(true)
        }
    }
}

/// Ends the leases that have expired.
fn expire(connection: &Connection, now: Instant) -> rusqlite::Result<()> {
    let mut over = connection.prepare_cached("select id from lease where ends_ns <= ?1")?;
    let over = over.query_map([signed(now.as_nanos())], |row| row.get::<_, i64>(0))?;
    let over: Vec<i64> = over.collect::<Result<_, _>>()?;
    over.into_iter()
        .try_for_each(|id| end_lease(connection, LeaseId(unsigned(id))))
}

fn end_lease(connection: &Connection, lease: LeaseId) -> rusqlite::Result<()> {
    let id = signed(lease.0);
    let next = revision(connection)?.0 + 1;
    let note = "insert or replace into gone (key, at) select key, ?1 from entry where lease = ?2";
    connection.execute(note, params![signed(next), id])?;
    if connection.execute("delete from entry where lease = ?1", [id])? > 0 {
        set_number(connection, "revision", next)?;
    }
    connection.execute("delete from lease where id = ?1", [id])?;
    Ok(())
}

fn revision(connection: &Connection) -> rusqlite::Result<Revision> {
    number(connection, "revision").map(Revision)
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached("select value from number where name = ?1")?;
    select.query_row([name], |row| row.get(0)).map(unsigned)
}

fn set_number(connection: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    let update = "update number set value = ?1 where name = ?2";
    connection
        .prepare_cached(update)?
        .execute(params![signed(value), name])?;
    Ok(())
}

/// SQLite's integers are signed; no number here comes near the limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn store_error(error: rusqlite::Error) -> StoreError {
    let words = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(words),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged(words),
        _ => StoreError::Unavailable(words),
    }
}

/// Version of the tables below, which the file stores.
const FORMAT: i64 = 1;

/// How long a process waits while another one writes.
const WAIT: StdDuration = StdDuration::from_secs(5);

const SCHEMA: &str = "
    create table number (name text primary key, value integer not null) strict;
    insert into number values ('revision', 0), ('compacted', 0), ('lease', 0);
    create table entry (
        key text primary key, value blob not null, modified integer not null, lease integer
    ) strict;
    create index entry_of_lease on entry (lease) where lease is not null;
    create table gone (key text primary key, at integer not null) strict;
    create table lease (
        id integer primary key, ttl_ns integer not null, ends_ns integer not null
    ) strict;
";
