//! A content hash for the names of cached files: XXH3 with 128 bits.
//!
//! It distinguishes versions of Carina's own files. It does not protect against a user who can
//! write to the cache; such a user could replace the files as well.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Context, Result};

/// A hash under construction. `Display` prints 32 hexadecimal digits.
#[derive(Clone)]
pub(crate) struct Hash(Xxh3);

impl Hash {
    pub(crate) fn new() -> Hash {
        Hash(Xxh3::new())
    }

    /// Adds a field. Its length is hashed too, so that adjacent fields cannot be confused.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0.digest128())
    }
}

/// The hash of a file, which is read in parts of 1 MiB.
pub(crate) fn hash_of_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).context("open", path)?;
    let mut hash = Hash::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part).context("read", path)? {
            0 => return Ok(hash.to_string()),
            length => hash.field(&part[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fields: &[&[u8]]) -> String {
        let mut hash = Hash::new();
        fields.iter().for_each(|field| hash.field(field));
        hash.to_string()
    }

    #[test]
    fn every_changed_bit_changes_the_hash() {
        let base = vec![0u8; 40];
        let mut seen = std::collections::HashSet::from([hash(&[&base])]);
        for bit in 0..base.len() * 8 {
            let mut changed = base.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(hash(&[&changed])), "bit {bit}");
        }
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b"a"]), hash(&[b"a\0"]));
    }
}
