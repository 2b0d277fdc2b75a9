//! The binding table: maps IPv4 addresses and ports to B4s. (RFC 7596 §6.1)
//!
//! ```text
//!   (address, port) --ranges--> (a, k) of the address --> PSID --slots--> B4 and BR address
//!
//!   port:  | a offset bits | k bits of PSID | m = 16 - a - k bits |      (RFC 7597 §5.1)
//! ```
//!
//! The slots are a hash table with linear probing, at most half full, so that most look-ups touch
//! one cache line. Consecutive addresses with equal parameters form one range.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A softwire: a port set of an IPv4 address, and the tunnel to the B4 that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softwire {
    /// The IPv4 address that the softwire's customer uses, alone or shared.
    pub ipv4: Ipv4Addr,
    /// The PSID of the port set.
    pub psid: u16,
    /// How the ports of the address are divided into sets.
    pub ports: PortSets,
    /// IPv6 address of the B4: the customer's end.
    pub b4: Ipv6Addr,
    /// IPv6 address of the BR: the AFTR's end of the tunnel.
    pub br: Ipv6Addr,
}

/// How the ports of an IPv4 address are divided into port sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSets {
    /// Number of offset bits in front of the PSID, a. If a > 0, the lowest ports belong to no set.
    pub offset_bits: u8,
    /// Number of bits of the PSID, k; 0 for an address that is not shared.
    pub psid_bits: u8,
}

impl PortSets {
    /// Whether offset bits and PSID together fit into the 16 bits of a port.
    #[must_use]
    pub fn is_valid(self) -> bool {
        u32::from(self.offset_bits) + u32::from(self.psid_bits) <= 16
    }

    /// Number of bits behind the PSID, m.
    fn low_bits(self) -> u32 {
        16 - u32::from(self.offset_bits) - u32::from(self.psid_bits)
    }

    /// The lowest port that belongs to a set. `as_snabb`: see
    /// [`Rules`](crate::config::Rules::reserves_two_to_the_bits).
    #[must_use]
    pub fn first_port(self, as_snabb: bool) -> u32 {
        match self.offset_bits {
            0 => 0,
            bits if as_snabb => 1 << bits,
            bits => 1 << (16 - bits),
        }
    }

    /// The PSID of a port. Does not check whether the port is one of the lowest, which belong to no
    /// set.
    #[must_use]
    pub fn psid_of(self, port: u16) -> u16 {
        let mask = (1_u32 << self.psid_bits) - 1;
        (u32::from(port) >> self.low_bits() & mask) as u16
    }
}

/// Why a softwire cannot be added to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Offset bits and PSID have more than 16 bits together.
    #[error(
        "port set of {ipv4}: reserved-ports-bit-count {} and psid-length {} must be at most 16 \
         together",
        .ports.offset_bits,
        .ports.psid_bits
    )]
    Bits {
        /// IPv4 address of the softwire.
        ipv4: Ipv4Addr,
        /// How the softwire would divide the ports of its address; its bits are too many.
        ports: PortSets,
    },
    /// Two softwires of an address divide its ports differently, so that their sets can overlap.
    #[error(
        "port sets of {ipv4} overlap: psid-length {} and reserved-ports-bit-count {} here, {} and \
         {} on line {other}",
        .ports.psid_bits,
        .ports.offset_bits,
        .others.psid_bits,
        .others.offset_bits
    )]
    Overlap {
        /// IPv4 address that both softwires have.
        ipv4: Ipv4Addr,
        /// How the later softwire divides the ports of the address among customers.
        ports: PortSets,
        /// How the earlier softwire divides the ports of the address among customers.
        others: PortSets,
        /// Number of the line with the earlier softwire.
        other: u32,
    },
    /// Two softwires have the same address and PSID.
    #[error("softwire {ipv4} psid {psid} is already on line {other}")]
    Twice {
        /// IPv4 address that both softwires have.
        ipv4: Ipv4Addr,
        /// PSID that both softwires have.
        psid: u16,
        /// Number of the line with the earlier softwire.
        other: u32,
    },
    /// The table cannot hold so many softwires.
    #[error("the table has more than {SOFTWIRES_MAX} softwires, which is the limit")]
    TooMany,
}

/// Largest number of softwires of a table.
pub const SOFTWIRES_MAX: usize = 1 << 26;

/// A binding table: finds the softwire of an IPv4 address and port.
#[derive(Clone, Debug)]
pub struct Table {
    ranges: Vec<Range>,
    slots: Vec<Slot>,
    /// Right shift that turns a hash into the number of a slot.
    shift: u32,
    brs: Vec<[u8; 16]>,
    len: usize,
}

/// Consecutive addresses that divide their ports in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    ports: PortSets,
    first_port: u32,
}

/// Two slots fill a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot {
    b4: [u8; 16],
    /// Address and PSID; [`EMPTY`] if the slot is empty.
    key: u64,
    /// Index of the BR address in `Table::brs`.
    br: u32,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// The key of an empty slot, which no address and PSID have.
const EMPTY: u64 = u64::MAX;

/// The two ends of a softwire's tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// IPv6 address of the B4: the customer's end.
    pub b4: [u8; 16],
    /// IPv6 address of the BR: the AFTR's end.
    pub br: [u8; 16],
}

impl Table {
    /// A table without softwires.
    #[must_use]
    pub fn empty() -> Table {
        TableBuilder::default().build_unordered(false)
    }

    /// Number of softwires.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no softwire.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the table has a softwire with this address.
    #[must_use]
    #[inline]
    pub fn has_address(&self, ipv4: [u8; 4]) -> bool {
        self.range(u32::from_be_bytes(ipv4)).is_some()
    }

    /// The tunnel to the owner of an address and port. A packet without a port (`None`) matches
    /// only an address that is not shared.
    #[must_use]
    #[inline]
    pub fn find(&self, ipv4: [u8; 4], port: Option<u16>) -> Option<Tunnel> {
        let address = u32::from_be_bytes(ipv4);
        let key = self.key(address, port)?;
        let slot = self.slots.get(self.slot_of(key)?)?;
        Some(Tunnel {
            b4: slot.b4,
            br: *self.brs.get(slot.br as usize)?,
        })
    }

    /// Prefetches the memory that a look-up will need, so that the cache misses of a burst overlap.
    /// The result has no meaning; it keeps the compiler from removing the read.
    #[must_use]
    #[inline]
    pub fn touch(&self, ipv4: [u8; 4], port: u16) -> u64 {
        let address = u32::from_be_bytes(ipv4);
        let Some(key) = self.key(address, Some(port)) else {
            return 0;
        };
        self.slots[self.home_slot(key)].key
    }

    #[inline]
    fn key(&self, address: u32, port: Option<u16>) -> Option<u64> {
        let range = self.range(address)?;
        let psid = match port {
            Some(port) if u32::from(port) >= range.first_port => range.ports.psid_of(port),
            None if range.ports == PortSets::default() => 0,
            _ => return None,
        };
        Some(u64::from(address) << 16 | u64::from(psid))
    }

    #[inline]
    fn range(&self, address: u32) -> Option<&Range> {
        let at = self.ranges.partition_point(|range| range.last < address);
        self.ranges.get(at).filter(|range| range.first <= address)
    }

    #[inline]
    fn home_slot(&self, key: u64) -> usize {
        (hash(key) >> self.shift) as usize
    }

    #[inline]
    fn slot_of(&self, key: u64) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = self.home_slot(key);
        // At least half of the slots are empty, so the loop ends.
        loop {
            match self.slots[at].key {
                found if found == key => return Some(at),
                EMPTY => return None,
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// All softwires, in the order of their slots. Building a table in this order fills it from
    /// beginning to end.
    pub fn softwires(&self) -> impl Iterator<Item = Softwire> {
        let taken = self.slots.iter().filter(|slot| slot.key != EMPTY);
        taken.filter_map(|slot| {
            let address = (slot.key >> 16) as u32;
            Some(Softwire {
                ipv4: Ipv4Addr::from(address),
                psid: slot.key as u16,
                ports: self.range(address)?.ports,
                b4: Ipv6Addr::from(slot.b4),
                br: Ipv6Addr::from(*self.brs.get(slot.br as usize)?),
            })
        })
    }
}

/// Hashes a key by multiplication, which spreads consecutive keys. The upper bits are the
/// well-mixed ones. (Knuth, *The Art of Computer Programming* 3, §6.4)
#[inline]
fn hash(key: u64) -> u64 {
    let key = key ^ key >> 23;
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Collects softwires, and builds a table of them.
#[derive(Clone, Debug, Default)]
pub struct TableBuilder {
    entries: Vec<Entry>,
    brs: Vec<[u8; 16]>,
    /// Index of the BR address that was used last: most tables have only one.
    last_br: u32,
    by_br: std::collections::HashMap<[u8; 16], u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    b4: [u8; 16],
    address: u32,
    br: u32,
    line: u32,
    psid: u16,
    ports: PortSets,
}

impl TableBuilder {
    /// A builder with room for this many softwires.
    #[must_use]
    pub fn with_capacity(softwires: usize) -> TableBuilder {
        TableBuilder {
            entries: Vec::with_capacity(softwires.min(SOFTWIRES_MAX)),
            ..TableBuilder::default()
        }
    }

    /// Adds a softwire. `line` is its line in the file, for error messages.
    ///
    /// # Errors
    /// The port set is invalid, or there are too many softwires.
    pub fn add(&mut self, softwire: &Softwire, line: u32) -> Result<(), TableError> {
        let &Softwire { ipv4, ports, .. } = softwire;
        if !ports.is_valid() {
            return Err(TableError::Bits { ipv4, ports });
        }
        if self.entries.len() >= SOFTWIRES_MAX {
            return Err(TableError::TooMany);
        }
        let br = self.br(softwire.br.octets());
        self.entries.push(Entry {
            b4: softwire.b4.octets(),
            address: ipv4.to_bits(),
            br,
            line,
            psid: softwire.psid,
            ports,
        });
        Ok(())
    }

    fn br(&mut self, br: [u8; 16]) -> u32 {
        if self.brs.get(self.last_br as usize) != Some(&br) {
            let next = self.brs.len() as u32;
            self.last_br = *self.by_br.entry(br).or_insert(next);
            if self.last_br == next {
                self.brs.push(br);
            }
        }
        self.last_br
    }

    /// Builds the table. `as_snabb`: see [`PortSets::first_port`].
    ///
    /// # Errors
    /// Two port sets overlap. The line of the later softwire comes with the error.
    pub fn build(mut self, as_snabb: bool) -> Result<Table, (u32, TableError)> {
        let place = |entry: &Entry| (entry.address, entry.psid, entry.line);
        if !self.entries.is_sorted_by_key(place) {
            self.entries.sort_unstable_by_key(place);
        }
        self.check_neighbours()?;
        Ok(self.build_unordered(as_snabb))
    }

    /// Checks that no port sets overlap. The entries must be sorted by address.
    fn check_neighbours(&self) -> Result<(), (u32, TableError)> {
        for pair in self.entries.windows(2) {
            let [one, two] = pair else { continue };
            if one.address != two.address {
                continue;
            }
            let (earlier, later) = if one.line <= two.line {
                (one, two)
            } else {
                (two, one)
            };
            let ipv4 = Ipv4Addr::from(one.address);
            if one.ports != two.ports {
                let error = TableError::Overlap {
                    ipv4,
                    ports: later.ports,
                    others: earlier.ports,
                    other: earlier.line,
                };
                return Err((later.line, error));
            }
            if one.psid == two.psid {
                let error = TableError::Twice {
                    ipv4,
                    psid: one.psid,
                    other: earlier.line,
                };
                return Err((later.line, error));
            }
        }
        Ok(())
    }

    fn build_unordered(self, as_snabb: bool) -> Table {
        let mut ranges: Vec<Range> = Vec::new();
        for &Entry { address, ports, .. } in &self.entries {
            match ranges.last_mut() {
                Some(last) if last.last == address => {}
                Some(last) if last.last.checked_add(1) == Some(address) && last.ports == ports => {
                    last.last = address;
                }
                _ => ranges.push(Range {
                    first: address,
                    last: address,
                    ports,
                    first_port: ports.first_port(as_snabb),
                }),
            }
        }
        let mut table = Table::with_room(self.entries.len(), ranges, self.brs);
        for entry in &self.entries {
            let key = u64::from(entry.address) << 16 | u64::from(entry.psid);
            table.put(key, entry.b4, entry.br);
        }
        table
    }
}

impl Table {
    fn with_room(softwires: usize, ranges: Vec<Range>, brs: Vec<[u8; 16]>) -> Table {
        let slots = (softwires * 2).next_power_of_two().max(16);
        let empty = Slot {
            b4: [0; 16],
            key: EMPTY,
            br: 0,
        };
        Table {
            ranges,
            slots: vec![empty; slots],
            shift: 64 - slots.trailing_zeros(),
            brs,
            len: 0,
        }
    }

    /// Stores an entry; returns `false` if its key is already in the table.
    fn put(&mut self, key: u64, b4: [u8; 16], br: u32) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = self.home_slot(key);
        while self.slots[at].key != EMPTY {
            if self.slots[at].key == key {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = Slot { b4, key, br };
        self.len += 1;
        true
    }
}

mod change;
mod compiled;

pub use change::{Change, ChangeError};
pub use compiled::CompiledError;

#[cfg(test)]
mod tests;
