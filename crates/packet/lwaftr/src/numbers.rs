//! Identifications for fragments: random ones, which are unpredictable (RFC 7739), and consecutive
//! ones.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A source of identifications.
#[derive(Debug)]
pub struct Numbers {
    key: RandomState,
    count: u64,
    /// The last consecutive identification.
    last: u16,
}

impl Numbers {
    /// A source with a random key, and a random start of the consecutive identifications.
    #[must_use]
    pub fn new() -> Numbers {
        let key = RandomState::new();
        let last = key.hash_one("identification") as u16;
        Numbers {
            key,
            count: 0,
            last,
        }
    }

    /// Sets the last consecutive identification; the next one follows it.
    pub fn number_from(&mut self, last: u16) {
        self.last = last;
    }

    /// The next consecutive identification.
    pub fn next_in_row(&mut self) -> u16 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// The next unpredictable number, of 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.count += 1;
        self.key.hash_one(self.count)
    }
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::new()
    }
}
