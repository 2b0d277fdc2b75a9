//! The binding table: which B4 has which ports of which IPv4 address. (RFC 7596 §6.1)
//!
//! ```text
//!   (address, port) --ranges--> (a, k) of the address --> PSID --slots--> B4 and BR address
//!
//!   port:  | a offset bits | k bits of PSID | m = 16 - a - k bits |      (RFC 7597 §5.1)
//! ```
//!
//! Slots are a hash table with linear probing, at most half full, so that a look-up takes one cache
//! line mostly. Addresses with the same parameters that follow one another are one range.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A softwire: a port set of an address, and the tunnel of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softwire {
    /// The address.
    pub ipv4: Ipv4Addr,
    /// Which of its port sets.
    pub psid: u16,
    /// How many there are.
    pub ports: PortSets,
    /// Address of the customer's end of the tunnel.
    pub b4: Ipv6Addr,
    /// Address of this end.
    pub br: Ipv6Addr,
}

/// How the ports of an address are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSets {
    /// Bits in front of the PSID, a; with a > 0 the lowest ports belong to no set.
    pub offset_bits: u8,
    /// Bits of the PSID, k; 0 for an address that is not shared.
    pub psid_bits: u8,
}

impl PortSets {
    /// Whether they fit into a port.
    #[must_use]
    pub fn is_valid(self) -> bool {
        u32::from(self.offset_bits) + u32::from(self.psid_bits) <= 16
    }

    /// Bits behind the PSID, m.
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

    /// The port set that a port belongs to, without a look at those that belong to none.
    #[must_use]
    pub fn psid_of(self, port: u16) -> u16 {
        let mask = (1_u32 << self.psid_bits) - 1;
        (u32::from(port) >> self.low_bits() & mask) as u16
    }
}

/// Why a softwire cannot be in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// More bits than a port has.
    #[error(
        "port set of {ipv4}: reserved-ports-bit-count {} and psid-length {} are more than 16",
        .ports.offset_bits,
        .ports.psid_bits
    )]
    Bits {
        /// The address.
        ipv4: Ipv4Addr,
        /// The parameters.
        ports: PortSets,
    },
    /// Two softwires of an address divide its ports differently, so that their sets can overlap.
    #[error(
        "port sets of {ipv4} overlap: psid-length {} and reserved-ports-bit-count {} here, {} and \
         {} in line {other}",
        .ports.psid_bits,
        .ports.offset_bits,
        .others.psid_bits,
        .others.offset_bits
    )]
    Overlap {
        /// The address.
        ipv4: Ipv4Addr,
        /// The parameters of the one.
        ports: PortSets,
        /// Those of the other.
        others: PortSets,
        /// Where the other stands.
        other: u32,
    },
    /// Two softwires have the same port set.
    #[error("softwire {ipv4} psid {psid} is in line {other} already")]
    Twice {
        /// The address.
        ipv4: Ipv4Addr,
        /// The port set.
        psid: u16,
        /// Where the other stands.
        other: u32,
    },
    /// More than the table can hold.
    #[error("more than {SOFTWIRES_MAX} softwires")]
    TooMany,
}

/// The most softwires of a table.
pub const SOFTWIRES_MAX: usize = 1 << 26;

/// A binding table.
#[derive(Clone, Debug)]
pub struct Table {
    ranges: Vec<Range>,
    slots: Vec<Slot>,
    /// The hash is shifted by this to the number of a slot.
    shift: u32,
    brs: Vec<[u8; 16]>,
    len: usize,
}

/// Addresses that follow one another and divide their ports in the same way.
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
    /// Address and PSID; [`EMPTY`] for none.
    key: u64,
    /// Number of the BR address.
    br: u32,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// No address and PSID make this.
const EMPTY: u64 = u64::MAX;

/// The tunnel of a softwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Address of the customer's end.
    pub b4: [u8; 16],
    /// Address of this end.
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

    /// True without a softwire.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether some softwire has a part of the address.
    #[must_use]
    #[inline]
    pub fn has_address(&self, ipv4: [u8; 4]) -> bool {
        self.range(u32::from_be_bytes(ipv4)).is_some()
    }

    /// The tunnel to the owner of a port. Packets without a port (`None`) belong to the owner of
    /// an address that is not shared.
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

    /// Asks for the memory of a look-up that is to come: the look-ups of a burst then wait for
    /// memory at the same time. What it returns means nothing.
    #[must_use]
    #[inline]
    pub fn touch(&self, ipv4: [u8; 4], port: u16) -> u64 {
        let address = u32::from_be_bytes(ipv4);
        let Some(key) = self.key(address, Some(port)) else {
            return 0;
        };
        self.slots[self.home(key)].key
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
    fn home(&self, key: u64) -> usize {
        (hash(key) >> self.shift) as usize
    }

    #[inline]
    fn slot_of(&self, key: u64) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        // At least half of the slots are empty: this ends.
        loop {
            match self.slots[at].key {
                found if found == key => return Some(at),
                EMPTY => return None,
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// All softwires, in the order of the slots: a table that is built again in this order is
    /// filled from its beginning to its end.
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

/// Multiplication spreads keys that follow one another; the upper bits are the good ones.
/// (Knuth, *The Art of Computer Programming* 3, §6.4)
#[inline]
fn hash(key: u64) -> u64 {
    let key = key ^ key >> 23;
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Collects softwires for a table.
#[derive(Clone, Debug, Default)]
pub struct TableBuilder {
    entries: Vec<Entry>,
    brs: Vec<[u8; 16]>,
    /// The BR address that was found last: most tables have one.
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
    /// Room for so many softwires.
    #[must_use]
    pub fn with_capacity(softwires: usize) -> TableBuilder {
        TableBuilder {
            entries: Vec::with_capacity(softwires.min(SOFTWIRES_MAX)),
            ..TableBuilder::default()
        }
    }

    /// Puts one in; `line` says where it stands, for errors.
    ///
    /// # Errors
    /// Its port set is impossible, or there are too many.
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

    /// The table. `as_snabb`: see [`PortSets::first_port`].
    ///
    /// # Errors
    /// Port sets overlap; the line is that of the later softwire.
    pub fn build(mut self, as_snabb: bool) -> Result<Table, (u32, TableError)> {
        let place = |entry: &Entry| (entry.address, entry.psid, entry.line);
        if !self.entries.is_sorted_by_key(place) {
            self.entries.sort_unstable_by_key(place);
        }
        self.check_neighbours()?;
        Ok(self.build_unordered(as_snabb))
    }

    /// The entries are in the order of their addresses.
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

    /// Puts an entry in; false when its key is there already.
    fn put(&mut self, key: u64, b4: [u8; 16], br: u32) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
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
