//! The keys of a host with access points, and keys as text.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use boringtun::x25519;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// A public key: 32 bytes. Its text form is base64url (RFC 4648, section 5) without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(pub [u8; 32]);

/// A private key. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; 32]);

/// The keys of a host: one for signing tokens, and one for the tunnels of its access points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeys {
    signing: PrivateKey,
    tunnel: PrivateKey,
}

/// Why keys are not available, or cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file of the keys cannot be read or written.
    #[error("reading or writing the keys of access points in {}: {source}", path.display())]
    File {
        /// Path of the file of the keys.
        path: PathBuf,
        /// Why the operating system could not read or write the file.
        source: io::Error,
    },
    /// The file does not contain valid keys.
    #[error("{}: the file does not contain keys of access points; remove it (tokens that were \
         issued with its keys become invalid)", .0.display())]
    Content(PathBuf),
    /// The token would have this many characters, more than allowed.
    #[error(
        "the token would have {0} characters, but at most 1200 are possible: use shorter names of \
         user and host"
    )]
    Long(usize),
    /// The system provides no random bytes.
    #[error("drawing random bytes: {0}")]
    Random(io::Error),
    /// The cryptography library refuses a key.
    #[error("the cryptographic library refuses the key")]
    Refused,
}

impl PublicKey {
    /// Whether the Ed25519 key with this public half has made `signature` over `text`.
    #[must_use]
    pub fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(text, signature).is_ok()
    }

    /// The key as a type of the tunnel library.
    pub(crate) fn x25519(self) -> x25519::PublicKey {
        x25519::PublicKey::from(self.0)
    }
}

impl PrivateKey {
    /// Generates a new private key.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn generate() -> Result<PrivateKey, KeyError> {
        Ok(PrivateKey(random_bytes().map_err(KeyError::Random)?))
    }

    /// The private key with these bytes.
    #[must_use]
    pub const fn of(bytes: [u8; 32]) -> PrivateKey {
        PrivateKey(bytes)
    }

    /// The public key (X25519).
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.x25519()).to_bytes())
    }

    pub(crate) fn x25519(&self) -> x25519::StaticSecret {
        x25519::StaticSecret::from(self.0)
    }
}

impl HostKeys {
    /// Reads the keys from a file, or creates the file with new keys.
    ///
    /// # Errors
    /// The file cannot be read or written, or does not contain valid keys.
    pub fn at(path: &Path) -> Result<HostKeys, KeyError> {
        let failed = |source| KeyError::File {
            path: path.to_owned(),
            source,
        };
        match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            text => {
                let keys = text.map_err(failed)?;
                return HostKeys::read(&keys).ok_or_else(|| KeyError::Content(path.to_owned()));
            }
        }
        let keys = HostKeys {
            signing: PrivateKey::generate()?,
            tunnel: PrivateKey::generate()?,
        };
        let part = path.with_extension("part");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let text = [&keys.signing.0, &keys.tunnel.0].map(|key| encode(key));
        options
            .open(&part)
            .and_then(|mut file| {
                file.write_all(format!("{}\n{}\n", text[0], text[1]).as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&part, path))
            .map_err(failed)?;
        Ok(keys)
    }

    fn read(text: &str) -> Option<HostKeys> {
        let mut lines = text.lines();
        let mut key = || Some(PrivateKey(decode(lines.next()?)?.try_into().ok()?));
        let (signing, tunnel) = (key()?, key()?);
        // A key of zeros protects nothing, and the two uses need different keys.
        let is_right = signing != tunnel && ![&signing, &tunnel].contains(&&PrivateKey([0; 32]));
        is_right.then_some(HostKeys { signing, tunnel })
    }

    /// The private key (X25519) of the tunnels of the host's access points.
    #[must_use]
    pub fn tunnel(&self) -> &PrivateKey {
        &self.tunnel
    }

    /// The public key (Ed25519) that verifies the host's tokens.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn signer(&self) -> Result<PublicKey, KeyError> {
        let public = self.pair()?.public_key().as_ref().try_into();
        public.map(PublicKey).map_err(|_| KeyError::Refused)
    }

    /// Signs a text with the host's key for tokens (Ed25519), and returns the signature.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn sign(&self, text: &[u8]) -> Result<Vec<u8>, KeyError> {
        Ok(self.pair()?.sign(text).as_ref().to_vec())
    }

    fn pair(&self) -> Result<Ed25519KeyPair, KeyError> {
        Ed25519KeyPair::from_seed_unchecked(&self.signing.0).map_err(|_| KeyError::Refused)
    }
}

/// Encodes bytes as base64url without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes the output of [`encode`]; `None` for any other text.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Reads `N` random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl TryFrom<String> for PublicKey {
    type Error = String;

    fn try_from(text: String) -> Result<PublicKey, String> {
        let bytes = decode(&text).and_then(|bytes| bytes.try_into().ok());
        let Some(bytes) = bytes else {
            let beginning: String = text.chars().take(60).collect();
            return Err(format!(
                "{beginning:?}: a key must be 43 characters of URL-safe base64"
            ));
        };
        match bytes == [0; 32] {
            true => Err("a key of zeros protects nothing: use a random key".to_owned()),
            false => Ok(PublicKey(bytes)),
        }
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_made_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let keys = HostKeys::at(&path).unwrap();
        assert_eq!(HostKeys::at(&path).unwrap(), keys);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let signature = keys.sign(b"text").unwrap();
        let signer = keys.signer().unwrap();
        assert!(signer.has_signed(b"text", &signature));
        assert!(!signer.has_signed(b"Text", &signature));
        let [zeros, one, two] = [0, 1, 2].map(|byte| encode(&[byte; 32]));
        for text in [
            "something\n".to_owned(),
            format!("{zeros}\n{one}\n"),
            format!("{one}\n{zeros}\n"),
            format!("{one}\n{one}\n"),
        ] {
            fs::write(&path, text).unwrap();
            let error = HostKeys::at(&path).unwrap_err().to_string();
            assert!(error.contains("remove it"), "{error}");
        }
        fs::write(&path, format!("{one}\n{two}\n")).unwrap();
        HostKeys::at(&path).unwrap();
    }

    #[test]
    fn public_keys_of_zeros_are_refused() {
        let read = |byte: u8| PublicKey::try_from(encode(&[byte; 32]));
        assert!(read(1).is_ok());
        assert!(read(0).unwrap_err().contains("zeros"));
    }

    #[test]
    fn private_keys_are_not_printed() {
        let key = PrivateKey::of([7; 32]);
        assert_eq!(format!("{key:?}"), "PrivateKey");
    }
}
