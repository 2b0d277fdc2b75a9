//! Random numbers of sessions, which are practically unique.

use std::sync::{Mutex, PoisonError};

use carina_random::Random;

/// Draws the random numbers that identify sessions, commands and captures at hosts.
#[derive(Debug)]
pub struct Numbers(Mutex<Random>);

impl Numbers {
    /// Creates a source from a random generator.
    #[must_use]
    pub fn new(random: Random) -> Numbers {
        Numbers(Mutex::new(random))
    }

    /// Draws the next random number.
    pub fn next(&self) -> u64 {
        // The generator is consistent even after a panic.
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        random.next_u64()
    }
}
