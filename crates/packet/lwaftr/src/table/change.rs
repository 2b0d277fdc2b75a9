//! Adds and removes single softwires of a table.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{EMPTY, PortSets, Range, SOFTWIRES_MAX, Slot, Softwire, Table};

/// Why a change of the table is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Offset bits and PSID have more than 16 bits together.
    #[error(
        "psid-length {psid_bits} and reserved-ports-bit-count {offset_bits} must be at most 16 \
         together"
    )]
    Bits {
        /// Number of offset bits.
        offset_bits: u8,
        /// Number of bits of the PSID.
        psid_bits: u8,
    },
    /// The PSID does not fit into its number of bits.
    #[error("psid {psid} does not fit into psid-length {psid_bits}")]
    Psid {
        /// PSID of the softwire.
        psid: u16,
        /// Number of bits that a PSID may have in this division of ports.
        psid_bits: u8,
    },
    /// Another softwire of the same address divides its ports differently.
    #[error(
        "port sets of {ipv4} overlap: the other softwires of this address have psid-length {} and \
         reserved-ports-bit-count {}",
        .others.psid_bits,
        .others.offset_bits
    )]
    Overlap {
        /// IPv4 address of the softwire to add.
        ipv4: Ipv4Addr,
        /// How its other softwires divide the ports.
        others: PortSets,
    },
    /// The softwire to add exists already.
    #[error("softwire {ipv4} psid {psid} already exists")]
    AlreadyExists {
        /// IPv4 address of the softwire to add.
        ipv4: Ipv4Addr,
        /// PSID of the softwire to add.
        psid: u16,
    },
    /// The softwire to replace or remove does not exist.
    #[error("softwire {ipv4} psid {psid} does not exist")]
    DoesNotExist {
        /// IPv4 address of the missing softwire.
        ipv4: Ipv4Addr,
        /// PSID of the missing softwire.
        psid: u16,
    },
    /// The table cannot hold more softwires.
    #[error("the table is full: it holds {SOFTWIRES_MAX} softwires")]
    TooMany,
}

/// A change of one softwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add a softwire with a new address and PSID.
    Add(Softwire),
    /// Give an existing softwire another B4 or BR address.
    Replace(Softwire),
    /// Remove a softwire.
    Remove {
        /// The IPv4 address of the softwire to remove.
        ipv4: Ipv4Addr,
        /// The port set identifier (PSID) of the softwire to remove.
        psid: u16,
    },
}

impl Table {
    /// Makes one change. A change that is refused leaves the table as it was. `as_snabb`: see
    /// [`PortSets::first_port`].
    ///
    /// # Errors
    /// The change is refused.
    pub fn change(&mut self, change: &Change, as_snabb: bool) -> Result<(), ChangeError> {
        match change {
            Change::Add(softwire) => self.insert(softwire, false, as_snabb),
            Change::Replace(softwire) => self.insert(softwire, true, as_snabb),
            Change::Remove { ipv4, psid } => self.remove(*ipv4, *psid),
        }
    }

    /// The softwire with this address and PSID; `None` if the table does not have it.
    #[must_use]
    pub fn softwire(&self, ipv4: Ipv4Addr, psid: u16) -> Option<Softwire> {
        let ports = self.range(ipv4.to_bits())?.ports;
        let slot = self.slots[self.slot_of(key_of(ipv4, psid))?];
        Some(Softwire {
            ipv4,
            psid,
            ports,
            b4: Ipv6Addr::from(slot.b4),
            br: Ipv6Addr::from(*self.brs.get(slot.br as usize)?),
        })
    }

    fn insert(
        &mut self,
        softwire: &Softwire,
        replaces: bool,
        as_snabb: bool,
    ) -> Result<(), ChangeError> {
        let &Softwire {
            ipv4, psid, ports, ..
        } = softwire;
        let PortSets {
            offset_bits,
            psid_bits,
        } = ports;
        if !ports.is_valid() {
            return Err(ChangeError::Bits {
                offset_bits,
                psid_bits,
            });
        }
        if u32::from(psid) >= 1 << psid_bits {
            return Err(ChangeError::Psid { psid, psid_bits });
        }
        let found = self.slot_of(key_of(ipv4, psid));
        match (found.is_some(), replaces) {
            (true, false) => return Err(ChangeError::AlreadyExists { ipv4, psid }),
            (false, true) => return Err(ChangeError::DoesNotExist { ipv4, psid }),
            _ => {}
        }
        let others = self.range(ipv4.to_bits()).map(|range| range.ports);
        if let Some(others) = others.filter(|others| *others != ports) {
            return Err(ChangeError::Overlap { ipv4, others });
        }
        if found.is_none() && self.len >= SOFTWIRES_MAX {
            return Err(ChangeError::TooMany);
        }
        let br = self.number_of_br(softwire.br.octets());
        let b4 = softwire.b4.octets();
        if let Some(at) = found {
            (self.slots[at].b4, self.slots[at].br) = (b4, br);
            return Ok(());
        }
        if others.is_none() {
            self.take_address(ipv4.to_bits(), ports, as_snabb);
        }
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.put(key_of(ipv4, psid), b4, br);
        Ok(())
    }

    fn remove(&mut self, ipv4: Ipv4Addr, psid: u16) -> Result<(), ChangeError> {
        let at = self.slot_of(key_of(ipv4, psid));
        let at = at.ok_or(ChangeError::DoesNotExist { ipv4, psid })?;
        self.empty_slot(at);
        self.len -= 1;
        let sets = 1_u32
            << self
                .range(ipv4.to_bits())
                .map_or(0, |softwire| softwire.ports.psid_bits);
        let exists = |psid| self.slot_of(key_of(ipv4, psid as u16)).is_some();
        if !(0..sets).any(exists) {
            self.give_up_address(ipv4.to_bits());
        }
        Ok(())
    }

    /// Empties a slot. Entries behind it that were displaced by it move up. (Knuth, *The Art of
    /// Computer Programming* 3, §6.4, algorithm R)
    fn empty_slot(&mut self, at: usize) {
        let mask = self.slots.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & mask);
        while self.slots[next].key != EMPTY {
            let home_slot = self.home_slot(self.slots[next].key);
            let displacement = next.wrapping_sub(home_slot) & mask;
            if displacement >= next.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = Slot {
            b4: [0; 16],
            key: EMPTY,
            br: 0,
        };
    }

    fn grow(&mut self) {
        let room = self.slots.len();
        let (ranges, brs) = (
            std::mem::take(&mut self.ranges),
            std::mem::take(&mut self.brs),
        );
        let old = std::mem::replace(self, Table::with_room(room, ranges, brs));
        for slot in old.slots.iter().filter(|slot| slot.key != EMPTY) {
            self.put(slot.key, slot.b4, slot.br);
        }
    }

    /// The index of a BR address; adds the address if it is new.
    fn number_of_br(&mut self, br: [u8; 16]) -> u32 {
        if let Some(at) = self.brs.iter().position(|other| *other == br) {
            return at as u32;
        }
        if self.brs.len() > 2 * self.len + 16 {
            self.forget_unused_brs();
        }
        self.brs.push(br);
        (self.brs.len() - 1) as u32
    }

    fn forget_unused_brs(&mut self) {
        let mut numbers = vec![None; self.brs.len()];
        let mut kept = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| slot.key != EMPTY) {
            let old = slot.br as usize;
            slot.br = *numbers[old].get_or_insert_with(|| {
                kept.push(self.brs[old]);
                (kept.len() - 1) as u32
            });
        }
        self.brs = kept;
    }

    /// Adds an address, which must not be in any range yet, to the ranges.
    fn take_address(&mut self, address: u32, ports: PortSets, as_snabb: bool) {
        let at = self.ranges.partition_point(|range| range.last < address);
        if let Some(before) = at.checked_sub(1).and_then(|at| self.ranges.get_mut(at))
            && before.ports == ports
            && before.last.checked_add(1) == Some(address)
        {
            before.last = address;
            return;
        }
        if let Some(behind) = self.ranges.get_mut(at)
            && behind.ports == ports
            && address.checked_add(1) == Some(behind.first)
        {
            behind.first = address;
            return;
        }
        let range = Range {
            first: address,
            last: address,
            ports,
            first_port: ports.first_port(as_snabb),
        };
        self.ranges.insert(at, range);
    }

    /// Removes an address from the ranges.
    fn give_up_address(&mut self, address: u32) {
        let at = self.ranges.partition_point(|range| range.last < address);
        let Some(range) = self.ranges.get_mut(at) else {
            return;
        };
        let Range { first, last, .. } = *range;
        if first == last {
            self.ranges.remove(at);
        } else if first == address {
            range.first += 1;
        } else if last == address {
            range.last -= 1;
        } else {
            range.last = address - 1;
            let behind = Range {
                first: address + 1,
                last,
                ..*range
            };
            self.ranges.insert(at + 1, behind);
        }
    }
}

fn key_of(ipv4: Ipv4Addr, psid: u16) -> u64 {
    u64::from(ipv4.to_bits()) << 16 | u64::from(psid)
}
