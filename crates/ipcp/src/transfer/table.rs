//! The forwarding table: from a destination to the N-1 flow that a PDU takes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use carina_wire::dif::{Address, CepId};

use crate::seam::Route;

/// Forwarding entries and neighbours. Whatever changes rarely (which neighbour has N-1 flows,
/// which next hops are left) is worked out when it changes, so that a lookup is two array
/// accesses for addresses below [`SMALL`].
#[derive(Debug, Default)]
pub(super) struct Table {
    routes: Vec<Route>,
    neighbours: BTreeMap<Address, Vec<u32>>,
    entries: Vec<Entry>,
    /// Entry number plus one by address, for small addresses.
    small: Vec<u32>,
    large: BTreeMap<Address, u32>,
}

/// A destination.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// N-1 flows of each next hop that has any: of the best hops, else of the alternates.
    pub(super) hops: Vec<Vec<u32>>,
}

/// Addresses below this have a flat table.
const SMALL: u64 = 65_536;

impl Table {
    /// Replaces the routes.
    pub(super) fn set_routes(&mut self, routes: &[Route]) {
        self.routes = routes.to_vec();
        self.rebuild();
    }

    /// Sets the N-1 flows of a neighbour; none takes it away.
    pub(super) fn set_neighbour(&mut self, neighbour: Address, ports: Vec<u32>) {
        if ports.is_empty() {
            self.neighbours.remove(&neighbour);
        } else {
            self.neighbours.insert(neighbour, ports);
        }
        self.rebuild();
    }

    /// Takes an N-1 flow away from its neighbour.
    pub(super) fn remove_port(&mut self, port: u32) {
        for ports in self.neighbours.values_mut() {
            ports.retain(|other| *other != port);
        }
        self.neighbours.retain(|_, ports| !ports.is_empty());
        self.rebuild();
    }

    /// The neighbour of an N-1 flow.
    pub(super) fn neighbour_of(&self, port: u32) -> Option<Address> {
        let mut all = self.neighbours.iter();
        all.find(|(_, ports)| ports.contains(&port))
            .map(|(address, _)| *address)
    }

    /// The entry of a destination; `None` when there is no route.
    #[inline]
    pub(super) fn lookup(&self, dst: Address) -> Option<&Entry> {
        let number = if dst.0 < SMALL {
            *self.small.get(dst.0 as usize)?
        } else {
            *self.large.get(&dst)?
        };
        self.entries.get((number as usize).wrapping_sub(1))
    }

    /// The routes and, for each, the N-1 flows that it uses now.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Address, Option<&Route>, &Entry)> {
        let implicit = self
            .neighbours
            .keys()
            .filter(|neighbour| !self.is_routed(**neighbour));
        let dsts = self
            .routes
            .iter()
            .map(|route| (route.dst, Some(route)))
            .chain(implicit.map(|neighbour| (*neighbour, None)));
        dsts.zip(&self.entries)
            .map(|((dst, route), entry)| (dst, route, entry))
    }

    fn is_routed(&self, dst: Address) -> bool {
        self.routes.iter().any(|route| route.dst == dst)
    }

    fn rebuild(&mut self) {
        let mut entries = Vec::with_capacity(self.routes.len());
        self.small.clear();
        self.large.clear();
        let live = |hops: &[Address]| -> Vec<Vec<u32>> {
            hops.iter()
                .filter_map(|hop| self.neighbours.get(hop).cloned())
                .collect()
        };
        let mut dsts = Vec::with_capacity(self.routes.len());
        for route in &self.routes {
            let mut hops = live(&route.next);
            if hops.is_empty() {
                hops = live(&route.alternates);
            }
            entries.push(Entry { hops });
            dsts.push(route.dst);
        }
        // A neighbour can be reached before routing has heard of it.
        for (neighbour, ports) in &self.neighbours {
            if !self.is_routed(*neighbour) {
                entries.push(Entry {
                    hops: alloc::vec![ports.clone()],
                });
                dsts.push(*neighbour);
            }
        }
        self.entries = entries;
        for (index, dst) in dsts.into_iter().enumerate() {
            let number = index as u32 + 1;
            if dst.0 < SMALL {
                let at = dst.0 as usize;
                if self.small.len() <= at {
                    self.small.resize(at + 1, 0);
                }
                self.small[at] = number;
            } else {
                self.large.insert(dst, number);
            }
        }
    }
}

/// Mixes what identifies a connection in one direction into 32 bits. `salt` differs between
/// members, or else all would split the same way and the second hop would split nothing.
#[inline]
pub(super) fn mix(salt: u64, dst: Address, src: Address, dst_cep: CepId, src_cep: CepId) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let ceps = u64::from(dst_cep.0) << 32 | u64::from(src_cep.0);
    let mut x = (dst.0 ^ salt).wrapping_mul(ODD) ^ src.0;
    x = (x ^ (x >> 29)).wrapping_mul(ODD) ^ ceps;
    x = (x ^ (x >> 32)).wrapping_mul(ODD);
    (x >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn route(dst: u64, next: &[u64], alternates: &[u64]) -> Route {
        let addresses = |list: &[u64]| list.iter().copied().map(Address).collect();
        Route {
            dst: Address(dst),
            next: addresses(next),
            alternates: addresses(alternates),
        }
    }

    fn hops(table: &Table, dst: u64) -> Option<Vec<Vec<u32>>> {
        table.lookup(Address(dst)).map(|entry| entry.hops.clone())
    }

    #[test]
    fn alternates_are_used_only_when_all_next_hops_are_gone() {
        let mut table = Table::default();
        table.set_routes(&[route(9, &[2, 3], &[4]), route(1 << 40, &[3], &[])]);
        assert_eq!(hops(&table, 9), Some(vec![]));
        table.set_neighbour(Address(2), vec![20, 21]);
        table.set_neighbour(Address(3), vec![30]);
        table.set_neighbour(Address(4), vec![40]);
        assert_eq!(hops(&table, 9), Some(vec![vec![20, 21], vec![30]]));
        assert_eq!(hops(&table, 1 << 40), Some(vec![vec![30]]));
        table.remove_port(30);
        table.remove_port(20);
        assert_eq!(hops(&table, 9), Some(vec![vec![21]]));
        assert_eq!(table.neighbour_of(21), Some(Address(2)));
        table.set_neighbour(Address(2), vec![]);
        assert_eq!(hops(&table, 9), Some(vec![vec![40]]));
        assert_eq!(hops(&table, 1 << 40), Some(vec![]));
        assert_eq!(hops(&table, 8), None);
        assert_eq!(hops(&table, 1 << 41), None);
    }

    #[test]
    fn a_neighbour_needs_no_route() {
        let mut table = Table::default();
        table.set_neighbour(Address(7), vec![1]);
        assert_eq!(hops(&table, 7), Some(vec![vec![1]]));
        table.set_routes(&[route(7, &[8], &[])]);
        assert_eq!(hops(&table, 7), Some(vec![]));
        assert_eq!(table.iter().count(), 1);
    }

    #[test]
    fn connections_spread_evenly() {
        let mut counts = [0; 4];
        for cep in 0..4000 {
            let mixed = mix(5, Address(1), Address(2), CepId(cep), CepId(cep + 7));
            counts[((u64::from(mixed) * 4) >> 32) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }
}
