//! A routing table that finds prefixes of up to 24 bits with one memory access, and longer ones
//! with two: DIR-24-8 of P. Gupta, S. Lin and N. McKeown, *Routing Lookups in Hardware at Memory
//! Access Speeds* (1998).
//!
//! ```text
//!   base:   2^24 words, one for each first 24 bits      word: 0 ... no route
//!   blocks: 256 words, one for each last 8 bits               n ... output n - 1
//!                                                             b | 0x8000 ... block b (base only)
//! ```

use crate::prefix::Prefix4;
use crate::route_outputs::NO_ROUTE;

/// An IPv4 routing table: maps each address to the number of an output.
pub struct Table4 {
    base: Vec<u16>,
    blocks: Vec<[u16; 256]>,
}

/// Why no routing table for IPv4 can be built from a list of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Table4Error {
    /// The number of an output is too large.
    #[error("a route has output number {0}: at most {NUMBERS_MAX} outputs are possible")]
    Outputs(u16),
    /// Prefixes longer than 24 bits have too many different first 24 bits.
    #[error(
        "the prefixes longer than 24 bits lie in too many different /24 networks: at most \
         {BLOCKS_MAX} are possible"
    )]
    Blocks,
}

impl Table4 {
    /// Builds the table of these prefixes with their numbers. Of equal prefixes, the last one is
    /// used.
    ///
    /// # Errors
    /// A number is too large, or long prefixes need too many blocks.
    pub fn new(routes: impl IntoIterator<Item = (Prefix4, u16)>) -> Result<Table4, Table4Error> {
        let mut routes: Vec<(Prefix4, u16)> = routes.into_iter().collect();
        // Longer prefixes overwrite shorter ones. The sort is stable, so equal prefixes stay in
        // order.
        routes.sort_by_key(|(prefix, _)| prefix.bits());
        let mut table = Table4 {
            base: vec![0; 1 << 24],
            blocks: Vec::new(),
        };
        for (prefix, number) in routes {
            if number >= NUMBERS_MAX {
                return Err(Table4Error::Outputs(number));
            }
            table.insert(prefix, number + 1)?;
        }
        Ok(table)
    }

    fn insert(&mut self, prefix: Prefix4, word: u16) -> Result<(), Table4Error> {
        let (address, bits) = (prefix.address().to_bits(), u32::from(prefix.bits()));
        let first = (address >> 8) as usize;
        if let Some(free) = 24u32.checked_sub(bits) {
            self.base[first..first + (1 << free)].fill(word);
            return Ok(());
        }
        let entry = &mut self.base[first];
        if *entry & BLOCK == 0 {
            let number = self.blocks.len();
            if number >= BLOCKS_MAX {
                return Err(Table4Error::Blocks);
            }
            self.blocks.push([*entry; 256]);
            *entry = BLOCK | number as u16;
        }
        let low = (address & 0xff) as usize;
        let block = &mut self.blocks[usize::from(*entry & !BLOCK)];
        block[low..low + (1 << (32 - bits))].fill(word);
        Ok(())
    }

    /// The number (of an output) that was given to the longest prefix that matches `address`;
    /// [`NO_ROUTE`] if no prefix matches.
    #[must_use]
    #[inline]
    pub fn find(&self, address: u32) -> u16 {
        let mut word = self.base[(address >> 8) as usize];
        if word & BLOCK != 0 {
            word = self.blocks[usize::from(word & !BLOCK)][(address & 0xff) as usize];
        }
        match word {
            0 => NO_ROUTE,
            word => word - 1,
        }
    }
}

const BLOCK: u16 = 0x8000;
const BLOCKS_MAX: usize = 0x8000;
const NUMBERS_MAX: u16 = 0x7fff;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn prefix(text: &str) -> Prefix4 {
        text.parse().unwrap()
    }

    /// A small random number generator, so that the routes are the same in each run.
    fn next(state: &mut u64) -> u32 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) as u32
    }

    #[test]
    fn table_agrees_with_a_search_through_all_routes() {
        let mut state = 1;
        let mut routes = vec![(prefix("0.0.0.0/1"), 0)];
        for number in 1..2000 {
            let bits = 4 + (next(&mut state) % 29) as u8;
            // Addresses close to each other, so that prefixes contain one another.
            let address = next(&mut state) << 1 & 0x0303_ffff;
            routes.push((Prefix4::new(Ipv4Addr::from_bits(address), bits), number));
        }
        let table = Table4::new(routes.clone()).unwrap();
        for _ in 0..5000 {
            let address = next(&mut state) << 1 & 0x8303_ffff;
            let has = |prefix: &Prefix4| {
                Prefix4::new(Ipv4Addr::from_bits(address), prefix.bits()) == *prefix
            };
            let longest = routes.iter().filter(|(prefix, _)| has(prefix));
            let longest = longest.max_by_key(|(prefix, _)| prefix.bits());
            let expected = longest.map_or(NO_ROUTE, |(_, number)| *number);
            assert_eq!(
                table.find(address),
                expected,
                "{}",
                Ipv4Addr::from_bits(address)
            );
        }
    }

    #[test]
    fn last_of_equal_prefixes_holds_and_single_addresses_count() {
        let routes = [("0.0.0.0/0", 1), ("10.0.0.255/32", 2), ("10.0.0.255/32", 3)];
        let table = Table4::new(routes.map(|(text, number)| (prefix(text), number))).unwrap();
        assert_eq!(table.find(0x0a00_00ff), 3);
        assert_eq!(table.find(0x0a00_00fe), 1);
        assert_eq!(table.find(u32::MAX), 1);
        let error = Table4::new([(prefix("0.0.0.0/0"), 0x7fff)]).err();
        assert_eq!(error, Some(Table4Error::Outputs(0x7fff)));
    }
}
