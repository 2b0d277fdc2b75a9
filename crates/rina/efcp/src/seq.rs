//! Sequence numbers: 64 bits internally, fewer on the wire; and a small seeded generator of initial
//! numbers.

use carina_random::SplitMix;

/// The number of sequence numbers of `bits` bits; for 64 bits, the highest one.
pub(crate) fn space(bits: u8) -> u64 {
    1_u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX)
}

/// Truncates `value` to its low `bits` bits.
pub(crate) fn truncate(value: u64, bits: u8) -> u64 {
    value & mask(bits)
}

/// Extends a number of the wire to 64 bits: the number closest to `reference` whose low `bits` bits
/// equal `wire`. `None` if it would be negative or exceed 64 bits.
pub(crate) fn extend(wire: u64, reference: u64, bits: u8) -> Option<u64> {
    let shift = 64 - u32::from(bits);
    let ahead = (wire.wrapping_sub(reference) << shift).cast_signed() >> shift;
    reference.checked_add_signed(ahead)
}

fn mask(bits: u8) -> u64 {
    u64::MAX >> (64 - u32::from(bits))
}

/// Generator of initial sequence numbers. They must differ between runs but need not be secret.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(SplitMix::new(seed))
    }

    /// A random initial sequence number. It is not 0 and lies in the first quarter of the number
    /// space, so that a run has at least half of the space before the rollover threshold.
    pub(crate) fn initial(&mut self, bits: u8) -> u64 {
        1 + self.0.next_u64() % (space(bits) / 4 - 1)
    }

    /// The successor of a random number other than 0.
    pub(crate) fn after(&mut self, bits: u8) -> u64 {
        let random = 1 + self.0.next_u64() % (space(bits) - 1);
        truncate(random.wrapping_add(1), bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_extend_to_the_closest() {
        assert_eq!(extend(5, 3, 16), Some(5));
        assert_eq!(extend(0xffff, 0x1_0002, 16), Some(0xffff));
        assert_eq!(extend(1, 0xfffe, 16), Some(0x1_0001));
        assert_eq!(extend(0xffff, 1, 16), None);
        assert_eq!(extend(u64::MAX, 1, 64), None);
        assert_eq!(extend(77, 70, 64), Some(77));
    }

    #[test]
    fn initial_numbers_leave_room() {
        let mut random = Random::new(1);
        for bits in [8, 16, 32, 64] {
            for _ in 0..1000 {
                let initial = random.initial(bits);
                assert!(initial > 0 && initial < space(bits) / 4);
                assert_eq!(truncate(initial, bits), initial);
            }
        }
    }
}
