//! A content hash that names cached files.
//!
//! FNV-1a over two lanes of 64 bits, eight bytes a step. It tells versions of our own files apart;
//! it is no protection against someone who writes into the cache, who could replace the files too.

use std::fmt;

/// A running hash; `Display` gives 32 hexadecimal digits.
#[derive(Debug, Clone)]
pub(crate) struct Hash {
    lanes: [u64; 2],
}

impl Hash {
    pub(crate) fn new() -> Hash {
        Hash {
            lanes: [0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142],
        }
    }

    /// Adds a field. Its length is hashed too, so that fields cannot run into each other.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn word(&mut self, word: u64) {
        self.lanes[0] = (self.lanes[0] ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        // The high half of a product never reaches the low half again; the rotation carries it.
        self.lanes[0] = self.lanes[0].rotate_left(29);
        self.lanes[1] = (self.lanes[1] ^ word.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.lanes[1] = self.lanes[1].rotate_left(31);
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.lanes[0], self.lanes[1])
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
