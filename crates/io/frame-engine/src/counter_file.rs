//! Counters in shared memory, with names that their owners choose.
//!
//! The engine of SDUs has one row of fixed values for each IPCP and flow. Apps of frames
//! have counters of their own kinds, so here each counter is a row with its name. One process
//! writes the file, and each counter is written by one thread. Any process can read the file, also
//! after the writer has died, and must not trust its contents.
//!
//! ```text
//! file:  [magic 8][version u32][rows u32]...pad to 4096, then rows
//! row:   [state u32: 0 free, 1 in use][changes u32][value u64][name 112, NUL-padded]
//! ```

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carina_sys::{Mapping, Memory};

/// A file of counters in shared memory, for the process that writes it. Clones share the file.
#[derive(Clone)]
pub struct CounterFile {
    shared: Arc<Shared>,
}

struct Shared {
    mapping: Mapping,
    free: Mutex<Vec<u32>>,
    /// Locked as long as the writer lives.
    _lock: Option<File>,
}

/// One counter of a [`CounterFile`]. Dropping it frees its row in the file.
pub struct Counter {
    shared: Arc<Shared>,
    /// `None` if the file was full: the counter then counts nothing.
    row: Option<u32>,
    // A counter is written by a load and a store; two threads would lose counts.
    _one_thread: PhantomData<Cell<()>>,
}

/// The name and value of a counter at the moment at which a reader read the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading {
    /// Name of the counter.
    pub name: String,
    /// Number that changes when the row is given to another counter. A rate may be computed only
    /// from readings with the same number.
    pub changes: u32,
    /// Value of the counter.
    pub value: u64,
}

impl Reading {
    /// The app and the reason, if the counter `APP/drop_REASON` counts frames that an app has
    /// dropped. A counter `drop_…_bytes` counts the same frames once more, by their bytes.
    #[must_use]
    pub fn dropped(&self) -> Option<(&str, &str)> {
        let (app, what) = self.name.rsplit_once('/')?;
        let reason = what.strip_prefix("drop_")?;
        (!what.ends_with("_bytes")).then_some((app, reason))
    }
}

impl CounterFile {
    /// Creates a file at `path` and replaces any file there. The writer holds a lock on the file,
    /// by which [`has_writer`] distinguishes a file in use from the file of a killed process.
    ///
    /// # Errors
    /// Errors of the file system, with the path.
    pub fn create(path: &Path) -> io::Result<CounterFile> {
        // The file is created under another name, so that it is locked from the moment when it
        // appears at `path`.
        let new = path.with_added_extension(format!("new-{}", std::process::id()));
        let created = CounterFile::create_at(&new).and_then(|file| {
            std::fs::rename(&new, path).map_err(|error| at(path, &error))?;
            Ok(file)
        });
        if created.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&new);
        }
        created
    }

    fn create_at(path: &Path) -> io::Result<CounterFile> {
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(at(path, &error));
        }
        let memory = Memory::file(path, FILE_BYTES)?;
        let lock = File::open(path).map_err(|error| at(path, &error))?;
        lock.lock_shared().map_err(|error| at(path, &error))?;
        CounterFile::over(&memory, Some(lock))
    }

    /// Makes counters in private memory, which no other process can read.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn private() -> io::Result<CounterFile> {
        CounterFile::over(&Memory::anonymous("carina-frames", FILE_BYTES)?, None)
    }

    fn over(memory: &Memory, lock: Option<File>) -> io::Result<CounterFile> {
        let mapping = memory.map()?;
        mapping.atomic_u32(8).store(VERSION, Ordering::Relaxed);
        mapping.atomic_u32(12).store(ROWS as u32, Ordering::Relaxed);
        mapping.atomic_u64(0).store(MAGIC, Ordering::Release);
        let free = Mutex::new((0..ROWS as u32).rev().collect());
        Ok(CounterFile {
            shared: Arc::new(Shared {
                mapping,
                free,
                _lock: lock,
            }),
        })
    }

    /// Makes a counter with value 0. Its name is cut to [`NAME_BYTES_MAX`] bytes. If the file is
    /// full, the counter counts nothing.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        let shared = Arc::clone(&self.shared);
        let row = shared.free().pop();
        if let Some(row) = row {
            let (at, mapping) = (offset(row), &shared.mapping);
            let mut bytes = [0; NAME_BYTES_MAX];
            let cut = name.floor_char_boundary(NAME_BYTES_MAX);
            bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
            mapping.write(at + NAME_AT, &bytes);
            mapping
                .atomic_u64(at + VALUE_AT)
                .store(0, Ordering::Relaxed);
            mapping.atomic_u32(at + 4).fetch_add(1, Ordering::Relaxed);
            mapping.atomic_u32(at).store(1, Ordering::Release);
        }
        Counter {
            shared,
            row,
            _one_thread: PhantomData,
        }
    }
}

impl Shared {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter {
    fn value(&self) -> Option<&AtomicU64> {
        let at = offset(self.row?) + VALUE_AT;
        Some(self.shared.mapping.atomic_u64(at))
    }

    /// Adds `count` to the counter's value.
    #[inline]
    pub fn add(&self, count: u64) {
        if count > 0
            && let Some(cell) = self.value()
        {
            // Only one thread writes, so no locked instruction is needed.
            let value = cell.load(Ordering::Relaxed);
            cell.store(value.wrapping_add(count), Ordering::Relaxed);
        }
    }

    /// Sets the counter's value.
    pub fn set(&self, value: u64) {
        if let Some(cell) = self.value() {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the counter's value; 0 if the file was full when the counter was made.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value().map_or(0, |cell| cell.load(Ordering::Relaxed))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(row) = self.row {
            let state = self.shared.mapping.atomic_u32(offset(row));
            state.store(0, Ordering::Release);
            self.shared.free().push(row);
        }
    }
}

/// Whether the process that writes the counter file at `path` is alive.
#[must_use]
pub fn has_writer(path: &Path) -> bool {
    // The writer's lock is shared, so only an exclusive lock conflicts with it.
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Removes the file at `path` if its writer is dead. Returns true if the file is gone.
pub fn remove_dead(path: &Path) -> bool {
    if has_writer(path) {
        return false;
    }
    // A writer may replace the file in the meantime, so the file is checked again after it was
    // moved aside.
    let aside = path.with_added_extension(format!("dead-{}", std::process::id()));
    if std::fs::rename(path, &aside).is_err() {
        return false;
    }
    let is_alive = has_writer(&aside);
    if is_alive {
        // The link fails only if yet another writer has created a file there.
        let _ = std::fs::hard_link(&aside, path);
    }
    let _ = std::fs::remove_file(&aside);
    !is_alive
}

/// Reads all counters in use from the file at `path`, sorted by name.
///
/// # Errors
/// The file cannot be read, or is not a file of counters of this version.
pub fn read(path: &Path) -> io::Result<Vec<Reading>> {
    let bytes = std::fs::read(path).map_err(|error| at(path, &error))?;
    let wrong = |text: &str| {
        let text = format!("{}: {text}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    if bytes.len() < HEADER_BYTES || word64(&bytes, 0) != MAGIC {
        return Err(wrong("not a file of counters"));
    }
    if word32(&bytes, 8) != VERSION {
        return Err(wrong(
            "the file of counters has another version than this program reads",
        ));
    }
    let rows = bytes[HEADER_BYTES..].chunks_exact(ROW_BYTES);
    let mut readings: Vec<Reading> = rows.filter_map(reading).collect();
    readings.sort();
    Ok(readings)
}

fn reading(row: &[u8]) -> Option<Reading> {
    if word32(row, 0) != 1 {
        return None;
    }
    let name = &row[NAME_AT..];
    let end = name.iter().position(|byte| *byte == 0);
    Some(Reading {
        name: String::from_utf8_lossy(&name[..end.unwrap_or(NAME_BYTES_MAX)]).into_owned(),
        changes: word32(row, 4),
        value: word64(row, VALUE_AT),
    })
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn offset(row: u32) -> usize {
    HEADER_BYTES + row as usize * ROW_BYTES
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Largest length of a counter's name in bytes.
pub const NAME_BYTES_MAX: usize = 112;

const MAGIC: u64 = u64::from_le_bytes(*b"CARINAFC");
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
const VALUE_AT: usize = 8;
const NAME_AT: usize = 16;
const ROW_BYTES: usize = NAME_AT + NAME_BYTES_MAX;
/// Number of counters of a file. The file takes memory only for rows that were used.
const ROWS: usize = 16_384;
const FILE_BYTES: usize = HEADER_BYTES + ROWS * ROW_BYTES;

const _: () = assert!(FILE_BYTES.is_multiple_of(4096));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_drops_have_an_app_and_a_reason() {
        let dropped = |name: &str| {
            let (changes, value) = (0, 1);
            let name = name.to_owned();
            let reading = Reading {
                name,
                changes,
                value,
            };
            let dropped = reading.dropped();
            dropped.map(|(app, reason)| format!("{app}: {reason}"))
        };
        assert_eq!(dropped("port/a/drop_short").unwrap(), "port/a: short");
        for other in ["a/drop_rate_bytes", "a/drop_bytes", "a.o -> b.i/drops", "a"] {
            assert_eq!(dropped(other), None);
        }
    }

    #[test]
    fn file_of_a_dead_writer_is_known_and_removed() {
        let path = std::env::temp_dir().join(format!("carina-dead-{}", std::process::id()));
        let file = CounterFile::create(&path).unwrap();
        let counter = file.counter("a/b");
        drop(file);
        assert!(has_writer(&path), "a counter is in use");
        assert!(!remove_dead(&path) && path.exists());
        // Another writer takes the path while the first one lives.
        let second = CounterFile::create(&path).unwrap();
        drop(counter);
        assert!(has_writer(&path) && !remove_dead(&path));
        drop(second);
        assert!(!has_writer(&path));
        assert!(remove_dead(&path) && !path.exists());
        assert!(
            !has_writer(&path) && !remove_dead(&path),
            "the file has been removed"
        );
    }

    #[test]
    fn readers_see_the_counters_in_use() {
        let path = std::env::temp_dir().join(format!("carina-frames-{}", std::process::id()));
        let file = CounterFile::create(&path).unwrap();
        let (hops, other) = (file.counter("hop/ttl_exceeded"), file.counter("b"));
        hops.add(3);
        hops.add(4);
        drop(other);
        let again = file.counter(&"é".repeat(100));
        again.set(1);
        let found = read(&path).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|row| (row.name.as_str(), row.changes, row.value))
            .collect();
        let long = "é".repeat(56);
        assert_eq!(found, [("hop/ttl_exceeded", 1, 7), (long.as_str(), 2, 1)]);
        std::fs::write(&path, vec![1; 9000]).unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("not a file of counters")
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn full_file_costs_figures_and_nothing_else() {
        let file = CounterFile::private().unwrap();
        let all: Vec<Counter> = (0..ROWS).map(|_| file.counter("")).collect();
        let late = file.counter("late");
        late.add(5);
        assert_eq!(late.get(), 0);
        drop(all);
        let next = file.counter("next");
        next.add(5);
        assert_eq!(next.get(), 5);
    }
}
