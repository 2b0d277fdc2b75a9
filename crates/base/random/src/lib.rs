//! Seeded random numbers for simulations, tests and protocol machines.
//!
//! The same seed gives the same numbers on every machine. This crate is not fit for secrets: keys
//! and signatures use random numbers of the operating system (`carina-protect`).
//!
//! The crate `rand_xoshiro` implements the generators. It never changes the algorithm behind a
//! name, so a seed that once showed a fault shows it again.
#![no_std]
#![forbid(unsafe_code)]

use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256StarStar};

/// A seeded generator: xoshiro256** (Blackman and Vigna, *Scrambled Linear Pseudorandom Number
/// Generators*, 2018), seeded through SplitMix64, so that neighbouring seeds give unrelated
/// numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256StarStar);

impl Random {
    /// Makes a generator; the same `seed` always gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// Splits off an independent generator for one purpose. How many numbers are drawn from it does
    /// not affect this generator.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a product. Below 2^32 choices the bias is negligible.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a random number from `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns a random index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with a probability of `share` in 10,000.
    pub fn chance(&mut self, share: u32) -> bool {
        self.below(10_000) < u64::from(share)
    }

    /// Returns one of the elements of `of`, chosen at random.
    ///
    /// # Panics
    /// `of` is empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Puts the elements of `of` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for end in (1..of.len()).rev() {
            of.swap(end, self.index(end + 1));
        }
    }
}

/// A small generator with eight bytes of state: SplitMix64 (Steele, Lea and Flood, *Fast Splittable
/// Pseudorandom Number Generators*, 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(SplitMix64);

impl SplitMix {
    /// Makes a generator; the same `seed` always gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(SplitMix64::seed_from_u64(seed))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number below `end`; 0 when `end` is 0. It is uniform enough if `end` is far
    /// below 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// Returns a random index below `len`; 0 when `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a random number from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills all of `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Combines two numbers into one number that serves as a seed.
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    let seed = a ^ b.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    SplitMix::new(seed).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_give_the_published_numbers() {
        let mut splitmix = SplitMix::new(1_234_567);
        assert_eq!(splitmix.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(splitmix.next_u64(), 3_203_168_211_198_807_973);
        // The published sequence of xoshiro256** for the state that SplitMix64 makes of 0.
        let mut random = Random::new(0);
        assert_eq!(random.next_u64(), 0x99ec_5f36_cb75_f2b4);
        assert_eq!(random.next_u64(), 0xbf6e_1f78_4956_452a);
    }

    #[test]
    fn same_seed_same_choices_and_another_seed_others() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.next_u64())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(3);
        let mut seen = [0; 4];
        for _ in 0..400 {
            seen[random.within(10, 13) as usize - 10] += 1;
        }
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.within(5, 5), 5);
        assert_eq!(SplitMix::new(1).below(0), 0);
    }

    #[test]
    fn shuffling_keeps_every_element() {
        let mut cards: [u32; 52] = core::array::from_fn(|card| card as u32);
        let sorted = cards;
        Random::new(1).shuffle(&mut cards);
        assert_ne!(cards, sorted);
        cards.sort_unstable();
        assert_eq!(cards, sorted);
    }
}
