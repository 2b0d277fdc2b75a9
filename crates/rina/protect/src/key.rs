//! Files with identity keys and lists of allowed keys.
//!
//! A private key is a file with one line, `ed25519-private BASE64 NAME`, which only its owner may
//! read. A public key is a line `ed25519 BASE64 NAME`. A list of allowed keys is a file with such
//! lines; it may have empty lines and comments after `#`. A name is one word and comes last.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use crate::base64;
use crate::crypto_error::CryptoError;
use crate::random::Random;

/// An error in a key or a file of keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path of the key file that could not be read or written.
        path: PathBuf,
        /// Why the operating system could not read or write the file.
        source: std::io::Error,
    },
    /// Users other than the owner may read or write a private key.
    #[error(
        "{path}: users other than the owner have access to this key (mode {mode:04o}); run \
        `chmod 600` on it"
    )]
    Exposed {
        /// Path of the key file that other users can read.
        path: PathBuf,
        /// Permission bits of the key file.
        mode: u32,
    },
    /// A line is not a valid key.
    #[error("{place}: {problem}")]
    Line {
        /// File and line, or another place that the text comes from.
        place: String,
        /// What is wrong with the line.
        problem: &'static str,
    },
    /// The name of a key is not well formed.
    #[error(
        "`{}` is no name for a key: one word of at most {NAME_MAX} bytes without `;`",
        name.escape_debug()
    )]
    Name {
        /// The invalid name, as it was given.
        name: String,
    },
    /// The cryptographic library refused the key.
    #[error("the key is refused")]
    Refused,
    /// A cryptographic operation failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// The private key by which a member proves its identity, with the key's name.
pub struct Identity {
    name: String,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
    public: [u8; 32],
}

impl std::fmt::Debug for Identity {
    /// Shows the public half only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.public_line())
    }
}

/// Generates a new identity.
///
/// # Errors
/// The name is invalid, or no random bytes are available.
pub fn generate(name: &str, random: &mut dyn Random) -> Result<Identity, KeyError> {
    let mut seed = [0; 32];
    random.fill(&mut seed)?;
    Identity::new(name, seed)
}

/// Reads a private key from a file.
///
/// # Errors
/// The file cannot be read, other users may read it, or it does not contain a private key.
pub fn load(path: &Path) -> Result<Identity, KeyError> {
    let failed = |source| KeyError::File {
        path: path.into(),
        source,
    };
    let mut file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed {
            path: path.into(),
            mode,
        });
    }
    let text = read_text(&mut file).map_err(failed)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let place = path.display().to_string();
    let (bytes, name) = parse_line(line, PRIVATE, &place)?;
    Identity::new(name, bytes)
}

/// Writes a private key to a new file that only its owner may read.
///
/// # Errors
/// The file exists already or cannot be written.
pub fn store(identity: &Identity, path: &Path) -> Result<(), KeyError> {
    let failed = |source| KeyError::File {
        path: path.into(),
        source,
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let line = format!(
        "{PRIVATE} {} {}\n",
        base64::encode(&identity.seed),
        identity.name
    );
    let written = file.write_all(line.as_bytes());
    written.and_then(|()| file.sync_all()).map_err(failed)
}

impl Identity {
    fn new(name: &str, seed: [u8; 32]) -> Result<Identity, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Name { name: name.into() });
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Refused)?;
        let public = pair.public_key().as_ref().try_into();
        let public = public.map_err(|_| KeyError::Refused)?;
        Ok(Identity {
            name: name.into(),
            seed,
            pair,
            public,
        })
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the public key that belongs to the private key.
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Returns the public key as a line of a list of allowed keys, without a line end.
    pub fn public_line(&self) -> String {
        format!("{} {}", public_text(&self.public), self.name)
    }

    pub(crate) fn sign(&self, text: &[u8]) -> [u8; 64] {
        let signature = self.pair.sign(text);
        let mut out = [0; 64];
        out.copy_from_slice(signature.as_ref());
        out
    }
}

/// Returns a public key as text, without name.
pub fn public_text(public: &[u8]) -> String {
    format!("{PUBLIC} {}", base64::encode(public))
}

/// The public keys of the peers that a member accepts, each with its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    keys: BTreeMap<[u8; 32], String>,
}

impl Allowed {
    /// Parses a list of lines. Errors name `place` as the origin of the lines.
    ///
    /// # Errors
    /// A line is not a public key, or a key occurs twice.
    pub fn parse(text: &str, place: &str) -> Result<Allowed, KeyError> {
        let mut allowed = Allowed::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                allowed.add(line, &format!("{place}:{}", index + 1))?;
            }
        }
        Ok(allowed)
    }

    /// Reads a list from a file.
    ///
    /// # Errors
    /// The file cannot be read; or as for [`Allowed::parse`].
    pub fn load(path: &Path) -> Result<Allowed, KeyError> {
        let failed = |source| KeyError::File {
            path: path.into(),
            source,
        };
        let mut file = fs::File::open(path).map_err(failed)?;
        let text = read_text(&mut file).map_err(failed)?;
        Allowed::parse(&text, &path.display().to_string())
    }

    /// Adds the key on one line.
    ///
    /// # Errors
    /// The line is not a public key, or the key is in the list already.
    pub fn add(&mut self, line: &str, place: &str) -> Result<(), KeyError> {
        let (key, name) = parse_line(line, PUBLIC, place)?;
        match self.keys.insert(key, name.into()) {
            None => Ok(()),
            Some(_) => Err(line_error(place, "this key appears twice")),
        }
    }

    /// Returns the name of a key, if the key is allowed, otherwise `None`.
    pub fn name(&self, public: &[u8]) -> Option<&str> {
        let key: &[u8; 32] = public.try_into().ok()?;
        self.keys.get(key).map(String::as_str)
    }

    /// Whether no key is allowed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn parse_line<'a>(line: &'a str, kind: &str, place: &str) -> Result<([u8; 32], &'a str), KeyError> {
    let fail = |problem| Err(line_error(place, problem));
    let mut words = line.split_whitespace();
    let (given, key, name) = (words.next(), words.next(), words.next());
    if given == Some(PRIVATE) && kind == PUBLIC {
        return fail("this is a private key; a public key is expected");
    }
    if given != Some(kind) {
        return match kind {
            PRIVATE => fail("`ed25519-private KEY NAME` is expected"),
            _ => fail("`ed25519 KEY NAME` is expected"),
        };
    }
    let bytes = key.and_then(base64::decode);
    let Some(bytes) = bytes.and_then(|bytes| bytes.try_into().ok()) else {
        return fail("the key is not 32 bytes in base 64");
    };
    if bytes == [0; 32] {
        return fail("the key is all zeros; `carina key generate` makes one");
    }
    match name {
        Some(name) if is_name(name) && words.next().is_none() => Ok((bytes, name)),
        Some(_) => fail("the name of a key is one word"),
        None => fail("the key has no name"),
    }
}

fn line_error(place: &str, problem: &'static str) -> KeyError {
    KeyError::Line {
        place: place.into(),
        problem,
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '#' | ';');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

fn read_text(file: &mut fs::File) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

const PRIVATE: &str = "ed25519-private";
const PUBLIC: &str = "ed25519";

/// Longest name of a key in bytes.
const NAME_MAX: usize = 255;

/// Longest key file, in bytes: enough for a hundred thousand keys.
const FILE_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests;
