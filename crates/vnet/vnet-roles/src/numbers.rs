//! Numbers of sessions: each is another one than all before.

use std::sync::{Mutex, PoisonError};

use carina_random::Random;

/// A place where numbers are drawn.
#[derive(Debug)]
pub struct Numbers(Mutex<Random>);

impl Numbers {
    /// Of a generator.
    #[must_use]
    pub fn new(random: Random) -> Numbers {
        Numbers(Mutex::new(random))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        // The generator is whole at all times.
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        random.next_u64()
    }
}
