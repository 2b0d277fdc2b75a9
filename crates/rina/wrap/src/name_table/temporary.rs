//! Names of the table that any program or remote system may cause to be added: their number is
//! bounded, and the one that was not used for the longest time makes room for a new one.
//!
//! The file has records of a fixed length:
//!
//! ```text
//! 0..8   time of the last use, seconds since 1970, little endian
//! 8      length of the name
//! 9..    the name, then zeros up to RECORD_BYTES
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::is_host;

/// The temporary names in their file.
pub(super) struct TemporaryNames {
    path: PathBuf,
    /// Seconds since 1970.
    now: u64,
}

impl TemporaryNames {
    /// The temporary names, whose file is in the directory of the name table `table`.
    pub(super) fn beside(table: &Path, now: u64) -> TemporaryNames {
        let mut path = table.as_os_str().to_owned();
        path.push(".temporary");
        let path = path.into();
        TemporaryNames { path, now }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of a name that is in the file; counts as a use of it.
    pub(super) fn place(&self, host: &str) -> io::Result<Option<usize>> {
        let Some(file) = self.open_existing()? else {
            return Ok(None);
        };
        flock(&file, FlockOperation::LockShared)?;
        let records = read_all(&file)?;
        let Some(place) = place_of(&records, host) else {
            return Ok(None);
        };
        let used = last_use(&records[place * RECORD_BYTES..]);
        self.note_use(&file, place, host, used)?;
        Ok(Some(place))
    }

    /// The name at a place; counts as a use of it.
    pub(super) fn name(&self, place: usize) -> io::Result<Option<String>> {
        let Some(file) = self.open_existing()? else {
            return Ok(None);
        };
        flock(&file, FlockOperation::LockShared)?;
        let mut record = [0; RECORD_BYTES];
        match file.read_exact_at(&mut record, (place * RECORD_BYTES) as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let name = name_in(&record).filter(|name| is_host(name));
        if let Some(name) = name {
            self.note_use(&file, place, name, last_use(&record))?;
        }
        Ok(name.map(str::to_owned))
    }

    /// The place of a name, which is added if it is not in the file. `None` if all places are taken
    /// by names that were used within [`AGE_MIN_S`].
    pub(super) fn add(&self, host: &str) -> io::Result<Option<usize>> {
        let file = self.open(true)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let records = read_all(&file)?;
        let place = match place_of(&records, host) {
            Some(place) => place,
            None if records.len() / RECORD_BYTES < PLACES => records.len() / RECORD_BYTES,
            None => {
                let ages = records.chunks_exact(RECORD_BYTES).map(last_use).enumerate();
                let oldest = ages.min_by_key(|(_, used)| *used);
                let is_old = |(_, used): &(usize, u64)| used + AGE_MIN_S <= self.now;
                match oldest.filter(is_old) {
                    Some((place, _)) => place,
                    None => return Ok(None),
                }
            }
        };
        self.write(&file, place, host)?;
        Ok(Some(place))
    }

    /// Writes the time of a use, unless one was written a short time ago.
    fn note_use(&self, file: &File, place: usize, host: &str, used: u64) -> io::Result<()> {
        if self.now.saturating_sub(used) < USE_INTERVAL_S {
            return Ok(());
        }
        flock(file, FlockOperation::LockExclusive)?;
        let mut record = [0; RECORD_BYTES];
        file.read_exact_at(&mut record, (place * RECORD_BYTES) as u64)?;
        // While the lock changed, another name may have been put there.
        if name_in(&record) == Some(host) {
            self.write(file, place, host)?;
        }
        Ok(())
    }

    fn write(&self, file: &File, place: usize, host: &str) -> io::Result<()> {
        let mut record = [0; RECORD_BYTES];
        record[..TIME_BYTES].copy_from_slice(&self.now.to_le_bytes());
        record[TIME_BYTES] = host.len() as u8;
        record[NAME_AT..NAME_AT + host.len()].copy_from_slice(host.as_bytes());
        file.write_all_at(&record, (place * RECORD_BYTES) as u64)
    }

    fn open_existing(&self) -> io::Result<Option<File>> {
        match self.open(false) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open(&self, creates: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(creates);
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        options.mode(0o600).custom_flags(no_link).open(&self.path)
    }
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    let bytes_max = (PLACES * RECORD_BYTES) as u64;
    file.take(bytes_max).read_to_end(&mut records)?;
    Ok(records)
}

fn place_of(records: &[u8], host: &str) -> Option<usize> {
    let mut records = records.chunks_exact(RECORD_BYTES);
    records.position(|record| name_in(record) == Some(host))
}

fn name_in(record: &[u8]) -> Option<&str> {
    let length = usize::from(record[TIME_BYTES]);
    let name = record.get(NAME_AT..NAME_AT + length)?;
    std::str::from_utf8(name).ok()
}

fn last_use(record: &[u8]) -> u64 {
    let time = record.first_chunk().copied();
    time.map_or(0, u64::from_le_bytes)
}

/// Number of names in the file.
pub(super) const PLACES: usize = 16_000;

/// How long a name keeps its place after its last use, in seconds. A program connects to an address
/// soon after it has looked the name up; each connection is a use.
pub(super) const AGE_MIN_S: u64 = 3600;

/// Shortest time between two writes of the time of use, in seconds.
const USE_INTERVAL_S: u64 = 60;

/// Length of a record. The longest name has 253 bytes.
const RECORD_BYTES: usize = 264;
const TIME_BYTES: usize = 8;
const NAME_AT: usize = TIME_BYTES + 1;

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;

    fn at(directory: &tempfile::TempDir, seconds: u64) -> TemporaryNames {
        TemporaryNames::beside(&directory.path().join("names"), START + seconds)
    }

    /// A file without a free place, whose names were used last at the start.
    fn full() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let names = at(&directory, 0);
        let file = names.open(true).unwrap();
        for place in 0..PLACES {
            names.write(&file, place, &format!("h{place}.vm")).unwrap();
        }
        directory
    }

    #[test]
    fn names_keep_their_places() {
        let directory = tempfile::tempdir().unwrap();
        let names = at(&directory, 0);
        assert_eq!(names.place("a.vm").unwrap(), None);
        assert_eq!(names.name(0).unwrap(), None);
        assert_eq!(names.add("a.vm").unwrap(), Some(0));
        let longest = "b".repeat(253);
        assert_eq!(names.add(&longest).unwrap(), Some(1));
        assert_eq!(names.add("a.vm").unwrap(), Some(0));
        assert_eq!(names.place(&longest).unwrap(), Some(1));
        assert_eq!(names.name(1).unwrap(), Some(longest));
        assert_eq!(names.name(2).unwrap(), None);
    }

    #[test]
    fn only_a_name_that_is_not_used_any_more_makes_room() {
        let directory = full();
        let soon = at(&directory, AGE_MIN_S - 1);
        assert_eq!(soon.add("new.vm").unwrap(), None, "all may be in use");
        // A look-up by name and one by address are uses.
        assert_eq!(soon.place("h0.vm").unwrap(), Some(0));
        assert_eq!(soon.name(1).unwrap().as_deref(), Some("h1.vm"));
        let later = at(&directory, AGE_MIN_S);
        assert_eq!(later.add("new.vm").unwrap(), Some(2));
        assert_eq!(later.place("h2.vm").unwrap(), None);
        assert_eq!(later.name(2).unwrap().as_deref(), Some("new.vm"));
        assert_eq!(later.add("newer.vm").unwrap(), Some(3));
        assert_eq!(later.place("h0.vm").unwrap(), Some(0));
    }

    #[test]
    fn garbage_in_the_file_gives_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let names = at(&directory, 0);
        std::fs::write(&names.path, [0xff; 3 * RECORD_BYTES]).unwrap();
        assert_eq!(names.name(0).unwrap(), None);
        assert_eq!(names.place("a.vm").unwrap(), None);
        assert_eq!(names.add("a.vm").unwrap(), Some(3));
    }
}
