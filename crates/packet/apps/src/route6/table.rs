//! An IPv6 routing table: a trie of nodes with 64 slots, which stores no empty slots. H. Asai and
//! Y. Ohara, *Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP
//! Routing Table Lookup* (2015).
//!
//! ```text
//!   roots: 2^16 words, one for each first 16 bits    word: 0 ... no route, n ... output n - 1
//!                                                         i | 2^31 ... node i
//!   node, of the next 6 bits:
//!     children: bit set where the place has a node      which one: number of set bits up to it
//!     leaves:   bit set where a word differs from the one before      likewise
//! ```

use crate::prefix::Prefix6;
use crate::route_outputs::NO_ROUTE;

/// An IPv6 routing table: maps each address to the number of an output.
pub struct Table6 {
    roots: Vec<u32>,
    nodes: Vec<Node>,
    leaves: Vec<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    children: u64,
    leaves: u64,
    first_child: u32,
    first_leaf: u32,
}

/// Why no routing table for IPv6 can be built from a list of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Table6Error {
    /// The number of an output is too large.
    #[error("a route has output number {0}: at most {NUMBERS_MAX} outputs are possible")]
    Outputs(u16),
    /// There are too many routes.
    #[error("{0} routes: at most {ROUTES_MAX} are possible")]
    Routes(usize),
}

const ROOT_BITS: u32 = 16;
const BITS: u32 = 6;
const IS_NODE: u32 = 1 << 31;
const NUMBERS_MAX: u16 = 0x7fff;
/// Largest number of routes: each needs up to 19 nodes.
const ROUTES_MAX: usize = 50_000_000;

/// A route while the table is being built; `word` is the route's number plus 1.
#[derive(Clone, Copy)]
struct Entry {
    address: u128,
    bits: u32,
    word: u16,
}

impl Table6 {
    /// Builds the table of these prefixes with their numbers. Of equal prefixes, the last one is
    /// used.
    ///
    /// # Errors
    /// A number is too large, or there are too many routes.
    pub fn new(routes: impl IntoIterator<Item = (Prefix6, u16)>) -> Result<Table6, Table6Error> {
        let mut entries = Vec::new();
        for (prefix, number) in routes {
            if number >= NUMBERS_MAX {
                return Err(Table6Error::Outputs(number));
            }
            let address = prefix.address().to_bits();
            let (bits, word) = (prefix.bits().into(), number + 1);
            entries.push(Entry {
                address,
                bits,
                word,
            });
        }
        if entries.len() > ROUTES_MAX {
            return Err(Table6Error::Routes(entries.len()));
        }
        // Longer prefixes overwrite shorter ones. The sort is stable, so equal prefixes stay in
        // order.
        entries.sort_by_key(|entry| entry.bits);
        let mut words = vec![0; 1 << ROOT_BITS];
        let mut longer: Vec<Entry> = Vec::new();
        for entry in entries {
            let first = (entry.address >> (128 - ROOT_BITS)) as usize;
            match ROOT_BITS.checked_sub(entry.bits) {
                Some(free) => words[first..first + (1 << free)].fill(entry.word),
                None => longer.push(entry),
            }
        }
        // Sorts by root; within a root the order by length stays.
        longer.sort_by_key(|entry| entry.address >> (128 - ROOT_BITS));
        let mut table = Table6 {
            roots: words.iter().map(|word| u32::from(*word)).collect(),
            nodes: Vec::new(),
            leaves: Vec::new(),
        };
        for group in longer.chunk_by(|a, b| a.address >> 112 == b.address >> 112) {
            let place = (group[0].address >> (128 - ROOT_BITS)) as usize;
            let node = table.nodes.len();
            table.nodes.push(Node::default());
            table.fill(node, ROOT_BITS, group, words[place]);
            table.roots[place] = IS_NODE | node as u32;
        }
        Ok(table)
    }

    /// Fills the node of the bits from `at` on with routes that agree in the first `at` bits and
    /// have more bits than `at`. `word` is the word of the longest shorter route. The recursion is
    /// at most 19 deep.
    fn fill(&mut self, node: usize, at: u32, entries: &[Entry], word: u16) {
        let mut words = [word; 64];
        let mut longer: Vec<(usize, Entry)> = Vec::new();
        for entry in entries {
            let place = slot(entry.address, at);
            match (at + BITS).checked_sub(entry.bits) {
                Some(free) => words[place..place + (1 << free)].fill(entry.word),
                None => longer.push((place, *entry)),
            }
        }
        longer.sort_by_key(|(place, _)| *place);
        let mut made = Node {
            first_leaf: self.leaves.len() as u32,
            first_child: self.nodes.len() as u32,
            ..Node::default()
        };
        for (place, word) in words.iter().enumerate() {
            if place == 0 || words[place - 1] != *word {
                made.leaves |= 1 << place;
                self.leaves.push(*word);
            }
        }
        let groups = longer.chunk_by(|a, b| a.0 == b.0);
        for group in groups.clone() {
            made.children |= 1 << group[0].0;
            self.nodes.push(Node::default());
        }
        self.nodes[node] = made;
        for (number, group) in groups.enumerate() {
            let entries: Vec<Entry> = group.iter().map(|(_, entry)| *entry).collect();
            let child = made.first_child as usize + number;
            self.fill(child, at + BITS, &entries, words[group[0].0]);
        }
    }

    /// The number (of an output) that was given to the longest prefix that matches `address`;
    /// [`NO_ROUTE`] if no prefix matches.
    #[must_use]
    #[inline]
    pub fn find(&self, address: u128) -> u16 {
        let root = self.roots[(address >> (128 - ROOT_BITS)) as usize];
        let word = match root & IS_NODE {
            0 => root as u16,
            _ => self.descend(root & !IS_NODE, address),
        };
        match word {
            0 => NO_ROUTE,
            word => word - 1,
        }
    }

    #[inline]
    fn descend(&self, root: u32, address: u128) -> u16 {
        let (mut node, mut at) = (&self.nodes[root as usize], ROOT_BITS);
        loop {
            let place = slot(address, at);
            let up_to = u64::MAX >> (63 - place);
            if node.children >> place & 1 == 0 {
                let before = (node.leaves & up_to).count_ones() - 1;
                return self.leaves[(node.first_leaf + before) as usize];
            }
            let before = (node.children & up_to).count_ones() - 1;
            node = &self.nodes[(node.first_child + before) as usize];
            at += BITS;
        }
    }

    /// Size of the table in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.roots[..]) + size_of_val(&self.nodes[..]) + size_of_val(&self.leaves[..])
    }
}

/// The six bits of an address from bit `at` on, with zeros behind its last bit.
#[inline]
fn slot(address: u128, at: u32) -> usize {
    (address << at >> (128 - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// SplitMix64, a small random number generator, so that the routes are the same in each run.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A random address close to the others, so that prefixes contain one another.
    fn address(state: &mut u64) -> u128 {
        let random = u128::from(next(state)) << 64 | u128::from(next(state));
        let mask = 0x0000_0003_0003_0003_0003_0003_0003_0003;
        random & mask | 0x2001 << 112
    }

    #[test]
    fn table_agrees_with_a_search_through_all_routes() {
        let mut state = 1;
        let mut routes = vec![(Prefix6::new(Ipv6Addr::from_bits(0x2000 << 112), 4), 0)];
        for number in 1..2000 {
            let bits = 10 + (next(&mut state) % 119) as u8;
            let address = Ipv6Addr::from_bits(address(&mut state));
            routes.push((Prefix6::new(address, bits), number));
        }
        let table = Table6::new(routes.clone()).unwrap();
        let mut hits = 0;
        for round in 0..5000 {
            let of_a_route = routes[round % routes.len()].0.address().to_bits();
            let address = match round % 3 {
                0 => of_a_route,
                1 => of_a_route | u128::from(next(&mut state) & 3),
                _ => address(&mut state),
            };
            let has = |prefix: &Prefix6| {
                Prefix6::new(Ipv6Addr::from_bits(address), prefix.bits()) == *prefix
            };
            let longest = routes.iter().filter(|(prefix, _)| has(prefix));
            let longest = longest.max_by_key(|(prefix, _)| prefix.bits());
            let expected = longest.map_or(NO_ROUTE, |(_, number)| *number);
            hits += usize::from(expected != 0);
            assert_eq!(
                table.find(address),
                expected,
                "{}",
                Ipv6Addr::from_bits(address)
            );
        }
        assert!(hits > 3000, "{hits}");
    }

    #[test]
    fn last_of_equal_prefixes_holds_and_single_addresses_count() {
        let routes = [
            ("::/0", 1),
            ("fd00::ff/128", 2),
            ("fd00::ff/128", 3),
            ("fd00::/16", 4),
        ];
        let routes = routes.map(|(text, number)| (text.parse().unwrap(), number));
        let table = Table6::new(routes).unwrap();
        let find = |text: &str| table.find(text.parse::<Ipv6Addr>().unwrap().to_bits());
        assert_eq!(
            (find("fd00::ff"), find("fd00::fe"), find("fe00::")),
            (3, 4, 1)
        );
        assert_eq!(Table6::new([]).unwrap().find(5), NO_ROUTE);
        let error = Table6::new([("::/0".parse().unwrap(), 0x7fff)]).err();
        assert_eq!(error, Some(Table6Error::Outputs(0x7fff)));
    }
}
