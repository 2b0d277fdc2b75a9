//! Keys and certificates of roles: an authority, the certificates that it issues, and TLS with
//! both.
//!
//! ```text
//!   DIR/ca.pem  ca.key               the authority; its key stays where certificates are made
//!   DIR/NAME.ROLE.pem  NAME.ROLE.key a party's certificate and key
//!   DIR/revoked.pem                  the authority's revocation list, if it has revoked any
//! ```
//!
//! A party needs its own two files and `ca.pem`. Keys are ECDSA keys on P-256; their files have
//! mode 0600, so that only the owner reads them. A certificate is valid until its validity period
//! ends, or until the authority revokes it ([`revocation`]).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::identity::{Identity, IdentityError, Role};

pub use self::tls::Tls;
pub use self::tls::party_of;

pub mod revocation;
mod tls;

/// A directory with the keys and certificates of parties, or those of an authority.
#[derive(Clone, Debug)]
pub struct KeyDir(PathBuf);

/// Why a key or certificate cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file that cannot be read or written.
        path: PathBuf,
        /// Why the operating system could not read or write the file.
        source: io::Error,
    },
    /// A file already exists and would be overwritten.
    #[error("{} already exists; remove it first to create a new one", .0.display())]
    Exists(PathBuf),
    /// A file does not contain a valid key or certificate, or the two do not match.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file with the invalid key or certificate.
        path: PathBuf,
        /// What is wrong with the content of the file.
        what: String,
    },
    /// A certificate cannot be made.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// A certificate does not name a party.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The directory has no certificate for a role, or several.
    #[error(
        "{} has {} of role {role}; exactly one is needed",
        path.display(),
        if *.several { "several certificates" } else { "no certificate" }
    )]
    Which {
        /// Path of the directory of keys and certificates.
        path: PathBuf,
        /// The role for which a certificate was sought.
        role: Role,
        /// True if the directory has several certificates of the role; false if it has none.
        several: bool,
    },
    /// The authority has not issued a certificate for the party.
    #[error("{}: this authority has issued no certificate to {party}", path.display())]
    Unknown {
        /// Directory of the certificate authority (`ca.key`, `ca.pem`).
        path: PathBuf,
        /// The party that has no certificate of this authority.
        party: Identity,
    },
    /// The certificate is revoked.
    #[error("{}: the certificate is revoked; have another one issued", .0.display())]
    Revoked(PathBuf),
    /// The requested validity period of a certificate is too long; holds it in days.
    #[error("a certificate is valid for {DAYS_MAX} days at most, not {0}")]
    Days(i64),
}

impl KeyDir {
    /// The key directory at this path. Nothing is read or created; the directory need not exist.
    pub fn new(path: impl Into<PathBuf>) -> KeyDir {
        KeyDir(path.into())
    }

    /// Path of the directory of keys and certificates.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates an authority: `ca.pem` and `ca.key`.
    ///
    /// # Errors
    /// An authority exists already, or the files cannot be written.
    pub fn create_authority(&self) -> Result<(), KeyError> {
        self.create()?;
        let key = KeyPair::generate()?;
        let mut params = authority();
        set_validity(&mut params, DAYS_MAX);
        let certificate = params.self_signed(&key)?;
        write_new(&self.0.join("ca.key"), &key.serialize_pem())?;
        write_new(&self.authority(), &certificate.pem())
    }

    /// Issues a certificate and a key for a party, valid from yesterday until `days` days from now,
    /// and writes them to `to` together with `ca.pem`. If `days` is 0 or negative, the certificate
    /// has already expired.
    ///
    /// # Errors
    /// There is no authority here, the party already has files in `to`, or the validity period is
    /// too long.
    pub fn issue(&self, party: &Identity, days: i64, to: &KeyDir) -> Result<PathBuf, KeyError> {
        if days > DAYS_MAX {
            return Err(KeyError::Days(days));
        }
        let path = self.0.join("ca.key");
        let pem = read(&path)?;
        let key = KeyPair::from_pem(&pem).map_err(|error| KeyError::Content {
            path,
            what: format!("the file is not a key: {error}"),
        })?;
        let issuer = Issuer::new(authority(), key);
        let mut params = CertificateParams::new(vec![party.domain()])?;
        set_validity(&mut params, days);
        let serial = revocation::new_serial()?;
        params.serial_number = Some(serial.clone());
        params.distinguished_name = called(&party.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        if to.0 != self.0 {
            to.create()?;
            if !to.authority().exists() {
                write_new(&to.authority(), &read(&self.authority())?)?;
            }
        }
        write_new(&to.key(party), &key.serialize_pem())?;
        self.note_issued(serial.as_ref(), party)?;
        write_new(&to.certificate(party), &certificate.pem())?;
        Ok(to.certificate(party))
    }

    /// Whether this directory of keys has a certificate of the party.
    #[must_use]
    pub fn has(&self, party: &Identity) -> bool {
        self.certificate(party).exists()
    }

    /// The only party of a role that has a certificate in this directory of keys.
    ///
    /// # Errors
    /// There is no such party, or there are several.
    pub fn only(&self, role: Role) -> Result<Identity, KeyError> {
        let entries = fs::read_dir(&self.0).map_err(|source| KeyError::File {
            path: self.0.clone(),
            source,
        })?;
        let ending = format!(".{role}.pem");
        let mut names = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            names.extend(
                name.to_string_lossy()
                    .strip_suffix(&ending)
                    .map(str::to_owned),
            );
        }
        match &names[..] {
            [name] => Ok(Identity::new(role, name)?),
            _ => Err(KeyError::Which {
                path: self.0.clone(),
                role,
                several: !names.is_empty(),
            }),
        }
    }

    fn create(&self) -> Result<(), KeyError> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.0);
        made.map_err(|source| KeyError::File {
            path: self.0.clone(),
            source,
        })
    }

    fn authority(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    fn certificate(&self, party: &Identity) -> PathBuf {
        self.0.join(format!("{}.{}.pem", party.name, party.role))
    }

    fn key(&self, party: &Identity) -> PathBuf {
        self.0.join(format!("{}.{}.key", party.name, party.role))
    }
}

/// The contents of an authority's certificate. All authorities have the same subject; their keys
/// distinguish them.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called("authority of Carina's virtual networks");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// Sets the validity from the beginning of yesterday, for hosts whose clock is slow, until `days`
/// days from now.
fn set_validity(params: &mut CertificateParams, days: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let until = now.saturating_add_signed(days * DAY_SECONDS as i64);
    let yesterday = (now - now % DAY_SECONDS).saturating_sub(DAY_SECONDS);
    let date = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = date(yesterday.min(until));
    params.not_after = date(until);
}

fn read(path: &Path) -> Result<String, KeyError> {
    fs::read_to_string(path).map_err(|source| KeyError::File {
        path: path.to_owned(),
        source,
    })
}

fn write_new(path: &Path, text: &str) -> Result<(), KeyError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::File {
            path: path.to_owned(),
            source,
        },
    })
}

const DAY_SECONDS: u64 = 24 * 3600;
/// Longest validity period of a certificate, days.
pub const DAYS_MAX: i64 = 3650;

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| content(path, error))?;
    if all.is_empty() {
        Err(content(path, "the file has no certificate"))
    } else {
        Ok(all)
    }
}

fn content(path: &Path, what: impl ToString) -> KeyError {
    KeyError::Content {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_for_their_owner_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyDir::new(directory.path().join("keys"));
        let uk = Identity::new(Role::Pip, "uk").unwrap();
        let missing = keys.issue(&uk, 1, &keys).unwrap_err().to_string();
        assert!(missing.contains("ca.key"), "{missing}");
        keys.create_authority().unwrap();
        assert!(matches!(keys.create_authority(), Err(KeyError::Exists(_))));
        let made = keys.issue(&uk, 1, &keys).unwrap();
        assert!(made.ends_with("uk.pip.pem"));
        assert!(matches!(
            keys.issue(&uk, 1, &keys),
            Err(KeyError::Exists(_))
        ));
        for entry in fs::read_dir(keys.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert!(matches!(
            keys.issue(&uk, DAYS_MAX + 1, &keys),
            Err(KeyError::Days(_))
        ));
    }

    #[test]
    fn what_a_role_needs_is_written_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyDir::new(directory.path().join("keys"));
        keys.create_authority().unwrap();
        let host = KeyDir::new(directory.path().join("host"));
        let h1 = Identity::new(Role::Agent, "h1").unwrap();
        keys.issue(&h1, 1, &host).unwrap();
        assert_eq!(host.only(Role::Agent).unwrap(), h1);
        assert_eq!(Tls::of(&host, &h1).unwrap().party(), &h1);
        assert!(!host.path().join("ca.key").exists());
        // A certificate of another party under this name is detected.
        let h2 = Identity::new(Role::Agent, "h2").unwrap();
        fs::rename(host.certificate(&h1), host.certificate(&h2)).unwrap();
        fs::rename(host.key(&h1), host.key(&h2)).unwrap();
        let error = Tls::of(&host, &h2).unwrap_err().to_string();
        assert!(error.contains("is not that of agent h2"), "{error}");
        let error = host.only(Role::Vno).unwrap_err().to_string();
        assert!(error.contains("no certificate of role vno"), "{error}");
    }
}
