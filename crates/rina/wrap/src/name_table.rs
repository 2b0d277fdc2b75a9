//! The name table: for each host name an address that stands for it, shared by all programs of one
//! user.
//!
//! A program asks for the address of `web.vm` and later connects to that address, perhaps in
//! another process. Both use this table, which gives each name a number. The number determines the
//! addresses of the name:
//!
//! ```text
//! number n (from 0)    198.18.0.1 + n        fd63:6172:696e:6100:: + n + 1
//! ```
//!
//! | numbers | names | file |
//! |---|---|---|
//! | below `LASTING_MAX` | registered names, which keep their numbers | `names`, a name per line |
//! | the others | temporary names, which a program or a peer gives | `names.temporary` |
//!
//! A lock (`flock`) admits one writer at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use self::recent::{Place, Version};
use self::temporary::{AGE_MIN_S, PLACES, TemporaryNames};

mod recent;
mod temporary;

/// The name table in its file. Calls read or extend the file. For names that this process has found
/// before, a look-up only checks that the file has not changed.
#[derive(Debug, Clone)]
pub struct NameTable {
    path: PathBuf,
}

/// Why the name table cannot give an IP address to a host name, or cannot be used at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NameTableError {
    /// The file cannot be read or written.
    #[error("the table of names {path}: {error}")]
    File {
        /// Path of the file that contains the table.
        path: PathBuf,
        /// Why the operating system could not read or write the file.
        error: io::Error,
    },
    /// The text is not a host name.
    #[error("{0:?} is no name of a host: it has 1 to 253 letters, digits, '.', '-' and '_'")]
    Name(String),
    /// No directory of the user's own.
    #[error(
        "the directory {} of the table of names belongs to another user; set XDG_RUNTIME_DIR to a \
         directory of your own",
        .0.display()
    )]
    Directory(PathBuf),
    /// The table has the largest number of names that keep their numbers.
    #[error(
        "the table of names {path} has {LASTING_MAX} names, which is the maximum; remove the \
        file"
    )]
    Full {
        /// Path of the file that contains the full table.
        path: PathBuf,
    },
    /// All temporary names were used a short time ago.
    #[error(
        "the table of names {path} has {PLACES} temporary names, which is the maximum, and each \
        was used within {} minutes; try again later", AGE_MIN_S / 60
    )]
    Busy {
        /// Path of the name table's file.
        path: PathBuf,
    },
}

impl NameTable {
    /// Makes the table in the file `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> NameTable {
        NameTable { path: path.into() }
    }

    /// Finds the table of this process's user. It is in the node's run directory `run` if the user
    /// owns that directory, else in a directory of the user, which the call creates.
    ///
    /// # Errors
    /// The directory cannot be made, or belongs to another user.
    pub fn of_user(run: &Path) -> Result<NameTable, NameTableError> {
        let uid = rustix::process::geteuid().as_raw();
        let is_own = |path: &Path| {
            let metadata = path.symlink_metadata();
            metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid)
        };
        let failed = |path: &Path, error| NameTableError::File {
            path: path.to_owned(),
            error,
        };
        if is_own(run) {
            let run = std::path::absolute(run).map_err(|error| failed(run, error))?;
            return Ok(NameTable::new(run.join(FILE)));
        }
        let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) if !directory.is_empty() => Path::new(&directory).join("carina"),
            _ => PathBuf::from(format!("/tmp/carina-{uid}")),
        };
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| failed(&directory, error))?;
        if !is_own(&directory) {
            return Err(NameTableError::Directory(directory));
        }
        Ok(NameTable::new(directory.join(FILE)))
    }

    /// Returns the path of the table's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of a name that is in the table; `None` for any other name, which is not
    /// added.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn known(&self, host: &str) -> Result<Option<u16>, NameTableError> {
        self.find(&canonical(host)?)
    }

    /// Returns the number of a name of which it is not known that it is registered. A name that is
    /// not in the table is added to the temporary names, whose number is bounded.
    ///
    /// # Errors
    /// [`NameTableError`]
    pub fn temporary_number(&self, host: &str) -> Result<u16, NameTableError> {
        let host = canonical(host)?;
        if let Some(number) = self.find(&host)? {
            return Ok(number);
        }
        let place = self.temporary().add(&host);
        let place = place.map_err(|error| self.failed(error))?;
        place.map(number_at).ok_or_else(|| NameTableError::Busy {
            path: self.path.clone(),
        })
    }

    fn find(&self, host: &str) -> Result<Option<u16>, NameTableError> {
        if let Some(number) = recent::number(&self.path, host) {
            return Ok(Some(number));
        }
        let version = Version::of(&self.path);
        if let Some(number) = position(&self.read()?, host) {
            recent::note(self.place(&self.path, version), host, number);
            return Ok(Some(number));
        }
        let temporary = self.temporary();
        let version = Version::of(temporary.path());
        let place = temporary.place(host);
        let place = place.map_err(|error| self.failed(error))?;
        let number = place.map(number_at);
        if let Some(number) = number {
            recent::note(self.place(temporary.path(), version), host, number);
        }
        Ok(number)
    }

    fn place<'a>(&'a self, file: &'a Path, version: Option<Version>) -> Place<'a> {
        Place {
            table: &self.path,
            file,
            version,
        }
    }

    fn temporary(&self) -> TemporaryNames {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        TemporaryNames::beside(&self.path, now.map_or(0, |now| now.as_secs()))
    }

    /// Returns the number of a name, which it keeps. A name that is not in the table is added to
    /// it.
    ///
    /// # Errors
    /// [`NameTableError`]
    pub fn number(&self, host: &str) -> Result<u16, NameTableError> {
        let host = canonical(host)?;
        if let Some(number) = self.find(&host)? {
            return Ok(number);
        }
        let mut file = self.open(true).map_err(|error| self.failed(error))?;
        let mut add = || {
            flock(&file, FlockOperation::LockExclusive)?;
            let names = read_all(&mut file)?;
            if let Some(number) = position(&names, &host) {
                return Ok(Some(number));
            }
            let number = names.lines().count();
            if number >= LASTING_MAX {
                return Ok(None);
            }
            file.write_all(format!("{host}\n").as_bytes())?;
            Ok(Some(number as u16))
        };
        let number = add().map_err(|error| self.failed(error))?;
        number.ok_or_else(|| NameTableError::Full {
            path: self.path.clone(),
        })
    }

    /// Returns the IPv4 and the IPv6 address of a name. A name that is not in the table is added:
    /// for good if `is_registered`, otherwise to the temporary names.
    ///
    /// # Errors
    /// [`NameTableError`]
    pub fn addresses(
        &self,
        host: &str,
        is_registered: bool,
    ) -> Result<[IpAddr; 2], NameTableError> {
        let number = if is_registered {
            self.number(host)
        } else {
            self.temporary_number(host)
        };
        number.map(addresses_of)
    }

    /// The addresses that stand for a name that is in the table; `None` for any other name, which
    /// is not added.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn known_addresses(&self, host: &str) -> Result<Option<[IpAddr; 2]>, NameTableError> {
        Ok(self.known(host)?.map(addresses_of))
    }

    /// Returns the name for which the table has this address; `None` for every other address.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn name(&self, address: IpAddr) -> Result<Option<String>, NameTableError> {
        let Some(number) = number_of(address) else {
            return Ok(None);
        };
        if let Some(host) = recent::host(&self.path, number) {
            return Ok(Some(host));
        }
        if let Some(at) = usize::from(number).checked_sub(LASTING_MAX) {
            let temporary = self.temporary();
            let version = Version::of(temporary.path());
            let name = temporary.name(at).map_err(|error| self.failed(error))?;
            if let Some(name) = &name {
                recent::note(self.place(temporary.path(), version), name, number);
            }
            return Ok(name);
        }
        let version = Version::of(&self.path);
        let names = self.read()?;
        let name = names.lines().nth(number.into());
        let name = name.filter(|name| is_host(name));
        if let Some(name) = name {
            recent::note(self.place(&self.path, version), name, number);
        }
        Ok(name.map(str::to_owned))
    }

    fn read(&self) -> Result<String, NameTableError> {
        let read = self.open(false).and_then(|mut file| read_all(&mut file));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(|error| self.failed(error)),
        }
    }

    fn open(&self, to_write: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(to_write).create(to_write);
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        options.mode(0o600).custom_flags(no_link).open(&self.path)
    }

    fn failed(&self, error: io::Error) -> NameTableError {
        NameTableError::File {
            path: self.path.clone(),
            error,
        }
    }
}

/// Returns the IPv4 address of the name with this number.
pub fn address_v4(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST_V4) + u32::from(number))
}

/// Returns the IPv6 address of the name with this number.
pub fn address_v6(number: u16) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(FIRST_V6) + u128::from(number))
}

/// Returns the number of the name for which an address of the table stands; `None` for every other
/// address.
pub fn number_of(address: IpAddr) -> Option<u16> {
    let offset = match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address).checked_sub(u32::from(FIRST_V4))?),
        IpAddr::V6(address) => u128::from(address).checked_sub(u128::from(FIRST_V6))?,
    };
    u16::try_from(offset)
        .ok()
        .filter(|number| usize::from(*number) < NAMES_MAX)
}

fn addresses_of(number: u16) -> [IpAddr; 2] {
    [address_v4(number).into(), address_v6(number).into()]
}

/// The number of the temporary name at this place.
fn number_at(place: usize) -> u16 {
    (LASTING_MAX + place) as u16
}

/// A name of a host as the table has it: in lower case, without a dot at its end.
fn canonical(host: &str) -> Result<String, NameTableError> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if is_host(&host) {
        Ok(host)
    } else {
        Err(NameTableError::Name(host))
    }
}

fn position(names: &str, host: &str) -> Option<u16> {
    let position = names
        .lines()
        .take(LASTING_MAX)
        .position(|name| name == host);
    position.and_then(|number| u16::try_from(number).ok())
}

fn read_all(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    Read::by_ref(file)
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a text can be the name of a host in the table: it has 1 to 253 letters, digits, `.`, `-`
/// and `_`.
pub fn is_host(host: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=253).contains(&host.len()) && host.bytes().all(is_allowed)
}

/// IPv4 address of the first name. The range 198.18.0.0/15 is set aside for tests of devices (RFC
/// 2544), and no network routes it.
const FIRST_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// IPv6 address of the first name, from the unique local range fd00::/8 (RFC 4193).
const FIRST_V6: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6172, 0x696e, 0x6100, 0, 0, 0, 1);

/// Name of the table's file in its directory.
const FILE: &str = "names";

/// Largest number of names in a table.
const NAMES_MAX: usize = LASTING_MAX + PLACES;

/// Largest number of names that keep their numbers.
const LASTING_MAX: usize = 49_000;

/// Largest number of bytes of the file that are read: enough for the largest number of names of the
/// greatest length.
const FILE_BYTES_MAX: u64 = LASTING_MAX as u64 * 254;

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (tempfile::TempDir, NameTable) {
        let directory = tempfile::tempdir().unwrap();
        let table = NameTable::new(directory.path().join("names"));
        (directory, table)
    }

    #[test]
    fn name_keeps_its_number_and_its_address_leads_back() {
        let (_directory, table) = table();
        assert_eq!(table.name(address_v4(0).into()).unwrap(), None);
        assert_eq!(table.number("web.vm").unwrap(), 0);
        assert_eq!(table.number("db.vm.").unwrap(), 1);
        assert_eq!(table.number("WEB.vm").unwrap(), 0);
        let again = NameTable::new(table.path());
        assert_eq!(again.number("db.vm").unwrap(), 1);
        for address in [IpAddr::from(address_v4(1)), address_v6(1).into()] {
            assert_eq!(again.name(address).unwrap().as_deref(), Some("db.vm"));
        }
        let mapped = IpAddr::from(address_v4(0).to_ipv6_mapped());
        assert_eq!(again.name(mapped).unwrap().as_deref(), Some("web.vm"));
        assert_eq!(again.name(address_v4(2).into()).unwrap(), None);
    }

    #[test]
    fn names_that_are_not_registered_leave_room_for_those_that_are() {
        let (_directory, table) = table();
        assert_eq!(table.known("peer.vm").unwrap(), None);
        assert_eq!(table.known_addresses("peer.vm").unwrap(), None);
        assert!(!table.path().exists(), "a look-up adds nothing");
        let [four, six] = table.addresses("Peer.vm", false).unwrap();
        assert_eq!(usize::from(number_of(four).unwrap()), LASTING_MAX);
        for address in [four, six] {
            assert_eq!(table.name(address).unwrap().as_deref(), Some("peer.vm"));
        }
        assert!(!table.path().exists(), "nothing that lasts is added");
        assert_eq!(table.number("web.vm").unwrap(), 0);
        // A name keeps its number when it is registered later.
        assert_eq!(table.addresses("peer.vm", true).unwrap(), [four, six]);
        assert_eq!(
            table.known_addresses("peer.vm.").unwrap(),
            Some([four, six])
        );
    }

    #[test]
    fn another_table_at_the_path_counts_from_the_next_look_up() {
        let (_directory, table) = table();
        let address = IpAddr::from(address_v4(0));
        assert_eq!(table.number("web.vm").unwrap(), 0);
        for _ in 0..3 {
            assert_eq!(table.known("web.vm").unwrap(), Some(0));
            assert_eq!(table.name(address).unwrap().as_deref(), Some("web.vm"));
        }
        std::fs::remove_file(table.path()).unwrap();
        assert_eq!(table.known("web.vm").unwrap(), None);
        assert_eq!(table.name(address).unwrap(), None);
        std::fs::write(table.path(), "db.vm\nweb.vm\n").unwrap();
        for _ in 0..3 {
            assert_eq!(table.known("web.vm").unwrap(), Some(1));
            assert_eq!(table.name(address).unwrap().as_deref(), Some("db.vm"));
        }
        // A name that another process has added is found at once.
        std::fs::write(table.path(), "db.vm\nweb.vm\nnew.vm\n").unwrap();
        assert_eq!(table.known("new.vm").unwrap(), Some(2));
    }

    #[test]
    fn writers_at_once_agree() {
        let (_directory, table) = table();
        let numbers = |from: usize| {
            let table = table.clone();
            std::thread::spawn(move || {
                let name = |n: usize| format!("host{}.vm", (n + from) % 50);
                (0..50)
                    .map(|n| (name(n), table.number(&name(n)).unwrap()))
                    .collect::<std::collections::BTreeMap<_, _>>()
            })
        };
        let found: Vec<_> = [0, 10, 20].map(numbers).into_iter().collect();
        let found: Vec<_> = found
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(found.iter().all(|numbers| *numbers == found[0]));
        let different: std::collections::BTreeSet<_> = found[0].values().collect();
        assert_eq!(different.len(), 50);
    }

    #[test]
    fn names_that_would_break_the_file_are_refused() {
        let (_directory, table) = table();
        for name in ["", "a\nb", "a b", "ä.vm", &"a".repeat(254)] {
            let error = table.number(name).unwrap_err();
            assert!(matches!(error, NameTableError::Name(_)), "{name}: {error}");
        }
        assert!(!table.path().exists());
    }

    #[test]
    fn garbage_in_the_file_gives_no_name() {
        let (_directory, table) = table();
        std::fs::write(table.path(), b"\xff\xfe\0\n\nok.vm\n").unwrap();
        assert_eq!(table.name(address_v4(0).into()).unwrap(), None);
        assert_eq!(table.name(address_v4(1).into()).unwrap(), None);
        assert_eq!(table.number("ok.vm").unwrap(), 2);
    }

    #[test]
    fn addresses_of_others_have_no_number() {
        for address in [
            "198.18.0.0",
            "198.18.253.233",
            "10.0.0.1",
            "::1",
            "fd63:6172:696e:6100::",
        ] {
            assert_eq!(number_of(address.parse().unwrap()), None, "{address}");
        }
    }
}
