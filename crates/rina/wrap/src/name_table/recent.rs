//! The names that this process has found in a table before. A program that makes many connections
//! looks the same few names up for each of them. Reading the files costs a dozen system calls a
//! look-up; here one call shows that the file of the name has not changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The version of a file: it changes with each write, and when another file takes the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Version {
    /// The version of the file that is at `path` now; `None` if none is there. Find the version
    /// before reading the file: if a writer comes between, the next look-up reads the file again.
    pub(super) fn of(path: &Path) -> Option<Version> {
        let metadata = path.symlink_metadata().ok()?;
        Some(Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Where a name was found: the table, and the one of its files that has the name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub table: &'a Path,
    pub file: &'a Path,
    /// The version of `file`, from before it was read.
    pub version: Option<Version>,
}

/// A name that was found in a file of a table.
#[derive(Debug)]
struct Entry {
    table: PathBuf,
    file: PathBuf,
    version: Version,
    host: String,
    number: u16,
    found: Instant,
}

/// The number of a name that was found earlier in a file that has not changed.
pub(super) fn number(table: &Path, host: &str) -> Option<u16> {
    find(table, |entry| entry.host == host, |entry| entry.number)
}

/// The name that was found earlier to have a number, in a file that has not changed.
pub(super) fn host(table: &Path, number: u16) -> Option<String> {
    let name = |entry: &Entry| entry.host.clone();
    find(table, |entry| entry.number == number, name)
}

/// Notes a name that was found at a place.
pub(super) fn note(place: Place<'_>, host: &str, number: u16) {
    let Some(version) = place.version else {
        return;
    };
    // Another thread may hold the lock, or have held it when this process was forked.
    let Ok(mut entries) = FOUND.try_lock() else {
        return;
    };
    entries.retain(|entry| {
        let is_same = entry.host == host || entry.number == number;
        !(is_same && entry.table == place.table)
    });
    if entries.len() >= ENTRIES_MAX {
        entries.remove(0);
    }
    entries.push(Entry {
        table: place.table.to_owned(),
        file: place.file.to_owned(),
        version,
        host: host.to_owned(),
        number,
        found: Instant::now(),
    });
}

fn find<T>(
    table: &Path,
    is_wanted: impl Fn(&Entry) -> bool,
    value: impl Fn(&Entry) -> T,
) -> Option<T> {
    let entries = FOUND.try_lock().ok()?;
    let mut entries = entries.iter();
    let entry = entries.find(|entry| is_wanted(entry) && entry.table == table)?;
    let is_valid = entry.found.elapsed() < VALID && Version::of(&entry.file) == Some(entry.version);
    is_valid.then(|| value(entry))
}

/// The names that were found, the oldest first.
static FOUND: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// After this time the file is read again, even if it has not changed: reading it records that a
/// temporary name is in use. The time is much shorter than that after which another name may get
/// the number of an unused temporary name.
const VALID: Duration = Duration::from_secs(60);

/// Largest number of names.
const ENTRIES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests use the list at the same time, so that it may be locked at any moment.
    fn eventually<T>(look: impl Fn() -> Option<T>) -> Option<T> {
        (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            look()
        })
    }

    #[test]
    fn name_is_known_in_its_own_table_while_the_file_is_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let [file, other] = ["a", "b"].map(|name| directory.path().join(name));
        std::fs::write(&file, "a.vm\n").unwrap();
        let place = || Place {
            table: &file,
            file: &file,
            version: Version::of(&file),
        };
        let known = || {
            note(place(), "a.vm", 7);
            number(&file, "a.vm")
        };
        assert_eq!(eventually(known), Some(7));
        assert_eq!(eventually(|| host(&file, 7)).as_deref(), Some("a.vm"));
        assert_eq!(number(&other, "a.vm"), None);
        assert_eq!(host(&other, 7), None);
        std::fs::write(&file, "a.vm\nb.vm\n").unwrap();
        assert_eq!(number(&file, "a.vm"), None);
        assert_eq!(eventually(known), Some(7));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(number(&file, "a.vm"), None);
        assert_eq!(host(&file, 7), None);
    }

    #[test]
    fn list_keeps_the_names_that_were_found_last() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("names");
        std::fs::write(&file, "").unwrap();
        for number in 0..100 {
            let place = Place {
                table: &file,
                file: &file,
                version: Version::of(&file),
            };
            note(place, &format!("h{number}.vm"), number);
        }
        assert!(FOUND.lock().unwrap().len() <= ENTRIES_MAX);
        assert_eq!(number(&file, "h0.vm"), None);
    }
}
