//! Numbers that cannot be predicted from outside. (RFC 7739)

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A source of such numbers.
#[derive(Debug)]
pub struct Numbers {
    key: RandomState,
    count: u64,
}

impl Numbers {
    /// A source with a key of its own.
    #[must_use]
    pub fn new() -> Numbers {
        Numbers {
            key: RandomState::new(),
            count: 0,
        }
    }

    /// The next number.
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
