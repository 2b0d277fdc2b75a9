//! The filtering database: stores the port at which each address was last seen.

use std::hash::{BuildHasher, RandomState};

use carina_time::{Duration, Instant};

/// A table of addresses in sets of [`WAYS`]. The hash of an address selects its set, so a look-up
/// reads one set only. A flood of addresses replaces others, but needs no more memory.
pub(super) struct MacTable {
    sets: Vec<[Entry; WAYS]>,
    /// A random number that senders cannot know, so that they cannot choose addresses of one set.
    seed: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The address; [`EMPTY`] if the place is free.
    address: u64,
    seen: Instant,
    port: u16,
}

const WAYS: usize = 4;
const EMPTY: u64 = u64::MAX;

impl MacTable {
    /// A table for at least `addresses` addresses.
    pub(super) fn new(addresses: usize) -> MacTable {
        let free = Entry {
            address: EMPTY,
            seen: Instant::ZERO,
            port: 0,
        };
        MacTable {
            sets: vec![[free; WAYS]; addresses.div_ceil(WAYS).next_power_of_two()],
            seed: RandomState::new().hash_one(0),
        }
    }

    fn set(&self, address: u64) -> usize {
        let mixed = (address ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29 ^ self.seed >> 7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as usize & (self.sets.len() - 1)
    }

    /// The port of an address, if it was seen within the last `age`.
    pub(super) fn find(&self, address: u64, now: Instant, age: Duration) -> Option<u16> {
        let set = &self.sets[self.set(address)];
        let entry = set.iter().find(|entry| entry.address == address)?;
        (now.since(entry.seen) <= age).then_some(entry.port)
    }

    /// Records that an address was seen at a port. Returns `true` if this replaced another address
    /// that was seen within the last `age`.
    pub(super) fn learn(&mut self, address: u64, port: u16, now: Instant, age: Duration) -> bool {
        let index = self.set(address);
        let set = &mut self.sets[index];
        let new = Entry {
            address,
            seen: now,
            port,
        };
        if let Some(entry) = set.iter_mut().find(|entry| entry.address == address) {
            *entry = new;
            return false;
        }
        let oldest = set.iter_mut().min_by_key(|entry| match entry.address {
            EMPTY => (false, Instant::ZERO),
            _ => (true, entry.seen),
        });
        let Some(place) = oldest else { return false };
        let displaced = std::mem::replace(place, new);
        displaced.address != EMPTY && now.since(displaced.seen) <= age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(300);

    #[test]
    fn addresses_move_and_are_forgotten() {
        let mut table = MacTable::new(16);
        let later = Instant::from_secs(301);
        assert!(!table.learn(7, 1, Instant::ZERO, AGE));
        assert_eq!(table.find(7, Instant::from_secs(300), AGE), Some(1));
        assert_eq!(table.find(7, later, AGE), None);
        table.learn(7, 2, later, AGE);
        assert_eq!(table.find(7, later, AGE), Some(2));
        assert_eq!(table.find(8, later, AGE), None);
    }

    #[test]
    fn flood_of_addresses_displaces_and_does_not_grow() {
        let mut table = MacTable::new(64);
        let displaced = (0..10_000u64)
            .filter(|n| table.learn(n * 2, 1, Instant::from_millis(*n), AGE))
            .count();
        assert_eq!(table.sets.len() * WAYS, 64);
        assert_eq!(displaced, 10_000 - 64);
        assert_eq!(table.find(2 * 9_999, Instant::from_secs(10), AGE), Some(1));
    }

    #[test]
    fn addresses_that_differ_little_spread_over_the_sets() {
        let table = MacTable::new(4096);
        let mut counts = vec![0; table.sets.len()];
        for n in 0..4096u64 {
            counts[table.set(0x02 | n << 32)] += 1;
        }
        assert!(counts.iter().all(|count| *count < 20));
    }
}
