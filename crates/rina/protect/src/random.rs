//! Sources of random bytes for nonces and ephemeral keys.

use aws_lc_rs::digest;

use crate::crypto_error::CryptoError;

/// A source of random bytes.
pub trait Random: Send {
    /// Fills `out` with random bytes.
    ///
    /// # Errors
    /// No random bytes are available.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError>;
}

/// A source of the random bytes of the operating system.
#[derive(Debug, Default)]
pub struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        aws_lc_rs::rand::fill(out).map_err(|_| CryptoError::NoRandomBytes)
    }
}

/// A source of pseudo-random bytes that depend only on the seed, for simulations. They are not
/// secret.
#[derive(Debug)]
pub struct Seeded {
    seed: u64,
    drawn: u64,
}

impl Seeded {
    /// Makes a source whose bytes depend on `seed` only.
    pub fn new(seed: u64) -> Seeded {
        Seeded { seed, drawn: 0 }
    }
}

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        for chunk in out.chunks_mut(32) {
            let mut input = [0; 16];
            input[..8].copy_from_slice(&self.seed.to_be_bytes());
            input[8..].copy_from_slice(&self.drawn.to_be_bytes());
            self.drawn += 1;
            let block = digest::digest(&digest::SHA256, &input);
            chunk.copy_from_slice(&block.as_ref()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_decides_all_and_nothing_repeats() {
        let draw = |source: &mut dyn Random| {
            let mut out = [0; 40];
            source.fill(&mut out).expect("random bytes");
            out
        };
        let (mut a, mut b) = (Seeded::new(1), Seeded::new(1));
        let first = draw(&mut a);
        assert_eq!(first, draw(&mut b));
        assert_ne!(first, draw(&mut a));
        assert_ne!(first, draw(&mut Seeded::new(2)));
        assert_ne!(draw(&mut System), draw(&mut System));
    }
}
