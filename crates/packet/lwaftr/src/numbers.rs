//! Identifications: those that cannot be predicted from outside (RFC 7739), and those in a row.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A source of them.
#[derive(Debug)]
pub struct Numbers {
    key: RandomState,
    count: u64,
    /// The last one in a row.
    last: u16,
}

impl Numbers {
    /// A source with a key of its own.
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

    /// Lets the numbers in a row go on behind this one.
    pub fn number_from(&mut self, last: u16) {
        self.last = last;
    }

    /// The next one in a row, which began at random.
    pub fn next_in_row(&mut self) -> u16 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// The next number that cannot be predicted.
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
