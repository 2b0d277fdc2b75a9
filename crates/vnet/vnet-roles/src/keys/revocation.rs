//! Revoked certificates: the authority's revocation list (RFC 5280, section 5), which roles read,
//! and read again when it changes.
//!
//! ```text
//!   DIR/issued.txt     at the authority: serial number, role and name of each certificate
//!   DIR/revoked.txt    at the authority: serial number, role, name, seconds since 1970
//!   DIR/revoked.pem    the signed list, to be copied to the directories with the roles' keys
//! ```

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevocationReason,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use webpki::EndEntityCert;

use super::certificates;
use super::{KeyDir, KeyError, authority, read};
use crate::identity::{Identity, Role};

/// Identifies one version of the list's file: inode, size and modification time.
pub(super) type Stamp = (u64, u64, i64, i64);

impl KeyDir {
    /// Revokes all certificates of a party, and writes a new signed list, `revoked.pem`. Returns
    /// the number of certificates in the list.
    ///
    /// # Errors
    /// The directory has no certificate authority, or this authority has issued no certificate to
    /// the party.
    pub fn revoke(&self, party: &Identity) -> Result<usize, KeyError> {
        let path = self.path().join("ca.key");
        let key = KeyPair::from_pem(&read(&path)?).map_err(|error| KeyError::Content {
            path: path.clone(),
            what: format!("the file is not a key: {error}"),
        })?;
        let serials = self.serials_of(party)?;
        if serials.is_empty() {
            return Err(KeyError::Unknown {
                path: self.path().to_owned(),
                party: party.clone(),
            });
        }
        let mut all = self.revoked()?;
        let known: BTreeSet<String> = all.iter().map(|entry| entry.serial.clone()).collect();
        let now = since_1970();
        let fresh = serials.into_iter().filter(|serial| !known.contains(serial));
        let before = all.len();
        all.extend(fresh.map(|serial| Entry {
            serial,
            party: party.clone(),
            at: now,
        }));
        for entry in &all[before..] {
            append(&self.path().join(REVOKED), &entry.line())?;
        }
        let list = self.signed(&all, &Issuer::new(authority(), key))?;
        replace(&self.list(), &list)?;
        Ok(all.len())
    }

    /// The revoked certificates in the authority's records: serial number, party, and time of
    /// revocation in seconds since 1970.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn revocations(&self) -> Result<Vec<(String, Identity, u64)>, KeyError> {
        let all = self.revoked()?.into_iter();
        Ok(all
            .map(|revoked| (revoked.serial, revoked.party, revoked.at))
            .collect())
    }

    /// Records that a certificate was issued.
    pub(super) fn note_issued(&self, serial: &[u8], party: &Identity) -> Result<(), KeyError> {
        let line = format!("{} {} {}\n", hex(serial), party.role, party.name);
        append(&self.path().join(ISSUED), &line)
    }

    /// Path of the revocation list.
    pub(super) fn list(&self) -> PathBuf {
        self.path().join("revoked.pem")
    }

    /// Identifies the current version of the list; `None` if there is no list.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(self.list()).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    }

    /// Reads the list; `None` if there is no list.
    pub(super) fn read_list(
        &self,
    ) -> Result<Option<CertificateRevocationListDer<'static>>, KeyError> {
        let path = self.list();
        match fs::read(&path) {
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(KeyError::File { path, source }),
            Ok(text) => {
                let list = CertificateRevocationListDer::from_pem_slice(&text);
                list.map(Some).map_err(|error| KeyError::Content {
                    path,
                    what: format!("the file is not a list of revoked certificates: {error}"),
                })
            }
        }
    }

    /// The serial numbers of all certificates of a party: the recorded ones, or else the number of
    /// the certificate in this directory.
    fn serials_of(&self, party: &Identity) -> Result<BTreeSet<String>, KeyError> {
        let mut serials = BTreeSet::new();
        for line in lines(&self.path().join(ISSUED))? {
            let words: Vec<&str> = line.split(' ').collect();
            if let [serial, role, name] = words[..]
                && role == party.role.word()
                && name == party.name
            {
                serials.insert(serial.to_owned());
            }
        }
        let path = self.certificate(party);
        if path.exists() {
            for certificate in certificates(&path)? {
                let parsed = EndEntityCert::try_from(&certificate);
                let parsed = parsed.map_err(|error| KeyError::Content {
                    path: path.clone(),
                    what: error.to_string(),
                })?;
                serials.insert(hex(parsed.serial()));
            }
        }
        Ok(serials)
    }

    fn revoked(&self) -> Result<Vec<Entry>, KeyError> {
        let path = self.path().join(REVOKED);
        let read = lines(&path)?;
        let entries = read.iter().enumerate().map(|(number, line)| {
            Entry::read(line).ok_or_else(|| KeyError::Content {
                path: path.clone(),
                what: format!("line {}: must be SERIAL ROLE NAME SECONDS", number + 1),
            })
        });
        entries.collect()
    }

    fn signed(&self, all: &[Entry], issuer: &Issuer<'_, KeyPair>) -> Result<String, KeyError> {
        let date = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        let now = since_1970();
        let revoked = all.iter().map(|entry| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&bytes(&entry.serial)),
            revocation_time: date(entry.at),
            reason_code: Some(RevocationReason::Unspecified),
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date(now),
            // Roles accept a list until there is a newer one.
            next_update: date(now + LIST_SECONDS),
            // The number grows with each list, because entries are only added.
            crl_number: SerialNumber::from(all.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(issuer)?.pem()?)
    }
}

/// A line of `revoked.txt`: a certificate that the authority has revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Serial number, in hexadecimal digits.
    serial: String,
    party: Identity,
    /// Time of revocation, in seconds since 1970.
    at: u64,
}

impl Entry {
    fn read(line: &str) -> Option<Entry> {
        let words: Vec<&str> = line.split(' ').collect();
        let [serial, role, name, at] = words[..] else {
            return None;
        };
        let is_hex = !serial.is_empty()
            && serial.len().is_multiple_of(2)
            && serial.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then_some(())?;
        Some(Entry {
            serial: serial.to_owned(),
            party: Identity::new(role.parse::<Role>().ok()?, name).ok()?,
            at: at.parse().ok()?,
        })
    }

    fn line(&self) -> String {
        let Identity { role, name } = &self.party;
        format!("{} {role} {name} {}\n", self.serial, self.at)
    }
}

/// A random serial number, unique among certificates: 16 bytes, positive (RFC 5280, section
/// 4.1.2.2).
pub(super) fn new_serial() -> Result<SerialNumber, KeyError> {
    let mut serial = [0; 16];
    let mut filled = 0;
    while filled < serial.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        let drawn = rustix::rand::getrandom(&mut serial[filled..], flags);
        filled += drawn.map_err(|error| KeyError::File {
            path: PathBuf::from("getrandom"),
            source: error.into(),
        })?;
    }
    // The first byte is neither zero nor has its top bit set, so that the DER encoding has exactly
    // these bytes.
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&serial))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a hexadecimal text with an even number of digits.
fn bytes(hex: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).unwrap_or_default();
        u8::from_str_radix(text, 16).unwrap_or_default()
    };
    hex.as_bytes().chunks(2).map(byte).collect()
}

fn lines(path: &Path) -> Result<Vec<String>, KeyError> {
    match read(path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(KeyError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn append(path: &Path, line: &str) -> Result<(), KeyError> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|source| failed(path, source))
}

/// Writes a file atomically, because roles may read it at any moment.
fn replace(path: &Path, text: &str) -> Result<(), KeyError> {
    let part = path.with_extension("part");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part);
    file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    })
    .and_then(|()| fs::rename(&part, path))
    .map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> KeyError {
    KeyError::File {
        path: path.to_owned(),
        source,
    }
}

fn since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

const ISSUED: &str = "issued.txt";
const REVOKED: &str = "revoked.txt";
/// How long a revocation list is valid, in seconds: ten years.
const LIST_SECONDS: u64 = 3650 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Tls;

    fn authority_in(directory: &tempfile::TempDir) -> KeyDir {
        let keys = KeyDir::new(directory.path().join("keys"));
        keys.create_authority().unwrap();
        keys
    }

    #[test]
    fn all_certificates_of_a_party_are_revoked_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let keys = authority_in(&directory);
        let party = |role, name| Identity::new(role, name).unwrap();
        let (uk, de) = (party(Role::Pip, "uk"), party(Role::Pip, "de"));
        let error = keys.revoke(&uk).unwrap_err().to_string();
        assert!(
            error.contains("has issued no certificate to pip uk"),
            "{error}"
        );
        let there = KeyDir::new(directory.path().join("there"));
        keys.issue(&uk, 1, &keys).unwrap();
        keys.issue(&uk, 1, &there).unwrap();
        keys.issue(&de, 1, &keys).unwrap();
        assert_eq!(keys.revoke(&uk).unwrap(), 2);
        assert_eq!(keys.revoke(&uk).unwrap(), 2, "nothing is revoked twice");
        let all = keys.revocations().unwrap();
        assert!(all.iter().all(|(_, party, _)| *party == uk), "{all:?}");
        let error = Tls::of(&keys, &uk).unwrap_err().to_string();
        assert!(error.contains("revoked"), "{error}");
        Tls::of(&keys, &de).unwrap();
        // A copy of the certificate elsewhere is revoked, too, once the list is copied there.
        fs::copy(keys.list(), there.list()).unwrap();
        let error = Tls::of(&there, &uk).unwrap_err().to_string();
        assert!(error.contains("revoked"), "{error}");
    }

    #[test]
    fn lists_that_are_damaged_or_of_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let keys = authority_in(&directory);
        let uk = Identity::new(Role::Pip, "uk").unwrap();
        keys.issue(&uk, 1, &keys).unwrap();
        fs::write(keys.list(), "nothing").unwrap();
        let error = Tls::of(&keys, &uk).unwrap_err().to_string();
        assert!(error.contains("revoked.pem"), "{error}");
        let other = KeyDir::new(directory.path().join("other"));
        other.create_authority().unwrap();
        other.issue(&uk, 1, &other).unwrap();
        other.revoke(&uk).unwrap();
        fs::copy(other.list(), keys.list()).unwrap();
        let error = Tls::of(&keys, &uk).unwrap_err().to_string();
        assert!(error.contains("by this authority"), "{error}");
        fs::write(keys.path().join(REVOKED), "00 pip uk\n").unwrap();
        let error = keys.revoke(&uk).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn serial_numbers_are_positive_and_keep_their_bytes() {
        let serial = new_serial().unwrap();
        assert_eq!(serial.to_bytes().len(), 16);
        assert!((0x40..0x80).contains(&serial.to_bytes()[0]));
        assert_eq!(bytes(&hex(&[0x40, 0, 0xff])), [0x40, 0, 0xff]);
    }
}
