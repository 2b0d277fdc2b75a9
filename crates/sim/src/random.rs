//! The generator that every choice of a simulation comes from.
//!
//! xoshiro256** (Blackman and Vigna, 2018), seeded through splitmix64 so that neighbouring seeds
//! have nothing in common. The same on every machine; nothing here is fit for secrets.

/// A seeded source of choices.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut at = seed;
        Random {
            state: core::array::from_fn(|_| splitmix(&mut at)),
        }
    }

    /// A generator of its own for one purpose: what it is asked changes nothing elsewhere.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        out
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a product: no bias worth speaking of below 2^32 choices.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number of `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `share` of 10,000 cases.
    pub fn chance(&mut self, share: u32) -> bool {
        self.below(10_000) < u64::from(share)
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Brings them into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for end in (1..of.len()).rev() {
            of.swap(end, self.index(end + 1));
        }
    }
}

/// One step of splitmix64.
fn splitmix(at: &mut u64) -> u64 {
    *at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *at;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes two numbers into a seed.
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    let mut at = a ^ b.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    splitmix(&mut at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_numbers() {
        let mut at = 1_234_567;
        assert_eq!(splitmix(&mut at), 6_457_827_717_110_365_317);
        assert_eq!(splitmix(&mut at), 3_203_168_211_198_807_973);
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
    }

    #[test]
    fn shuffling_keeps_every_element() {
        let mut cards: Vec<u32> = (0..52).collect();
        Random::new(1).shuffle(&mut cards);
        assert_ne!(cards, (0..52).collect::<Vec<_>>());
        cards.sort_unstable();
        assert_eq!(cards, (0..52).collect::<Vec<_>>());
    }
}
