//! The forwarding table: from a destination to the N-1 flow that a PDU takes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use carina_wire::dif::{Address, CepId};

use crate::data_transfer::api::Route;

/// Forwarding entries and neighbours. What changes rarely (which neighbour has N-1 flows, which
/// next hops are available) is computed when it changes, so a lookup takes two array accesses for
/// addresses below [`SMALL`]. A change of some routes recomputes only these routes: in a large DIF
/// each member that joins or leaves changes a few routes at all others.
#[derive(Debug, Default)]
pub(super) struct ForwardingTable {
    neighbours: BTreeMap<Address, Vec<u32>>,
    entries: Vec<Entry>,
    /// Numbers of unused entries.
    free: Vec<u32>,
    /// Entry number plus one, indexed by address, for addresses below [`SMALL`]; 0 for none.
    small: Vec<u32>,
    large: BTreeMap<Address, u32>,
}

/// The forwarding entry of one destination.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The destination; [`Address::NONE`] in an unused entry.
    dst: Address,
    /// The route; `None` for a neighbour that has no route yet.
    route: Option<Route>,
    /// N-1 flows of each usable next hop: of the hops on shortest paths, or of the alternates if no
    /// such hop has an N-1 flow.
    pub(super) next_hops: Vec<Vec<u32>>,
}

/// Addresses below this are looked up in an array.
const SMALL: u64 = 65_536;

impl ForwardingTable {
    /// Replaces the routes.
    pub(super) fn set_routes(&mut self, routes: &[Route]) {
        let wanted: BTreeSet<Address> = routes.iter().map(|route| route.dst).collect();
        let entries = self.entries.iter();
        let gone: Vec<Address> = entries
            .filter(|entry| entry.route.is_some() && !wanted.contains(&entry.dst))
            .map(|entry| entry.dst)
            .collect();
        self.change_routes(routes, &gone);
    }

    /// Replaces the routes to the destinations in `changed`, and removes the routes to `removed`.
    pub(super) fn change_routes(&mut self, changed: &[Route], removed: &[Address]) {
        for dst in removed {
            if let Some(number) = self.number(*dst) {
                self.entries[number].route = None;
                self.work_out(number);
            }
        }
        for route in changed.iter().filter(|route| route.dst != Address::NONE) {
            let number = self.number_or_new(route.dst);
            self.entries[number].route = Some(route.clone());
            self.work_out(number);
        }
    }

    /// Sets the N-1 flows of a neighbour; an empty list removes the neighbour.
    pub(super) fn set_neighbour(&mut self, neighbour: Address, ports: Vec<u32>) {
        if neighbour == Address::NONE {
            return;
        }
        if ports.is_empty() {
            self.neighbours.remove(&neighbour);
        } else {
            self.neighbours.insert(neighbour, ports);
            self.number_or_new(neighbour);
        }
        self.work_out_all();
    }

    /// Removes an N-1 flow from its neighbour.
    pub(super) fn remove_port(&mut self, port: u32) {
        for ports in self.neighbours.values_mut() {
            ports.retain(|other| *other != port);
        }
        self.neighbours.retain(|_, ports| !ports.is_empty());
        self.work_out_all();
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
        self.entries.get(self.number(dst)?)
    }

    /// The routes ordered by destination, each with the entry that holds the N-1 flows used now.
    pub(super) fn in_order(&self) -> Vec<(Address, Option<&Route>, &Entry)> {
        let used = self.entries.iter().filter(|e| e.dst != Address::NONE);
        let mut all: Vec<_> = used.map(|e| (e.dst, e.route.as_ref(), e)).collect();
        all.sort_unstable_by_key(|(dst, ..)| *dst);
        all
    }

    #[inline]
    fn number(&self, dst: Address) -> Option<usize> {
        let number = if dst.0 < SMALL {
            *self.small.get(dst.0 as usize)?
        } else {
            *self.large.get(&dst)?
        };
        (number as usize).checked_sub(1)
    }

    fn number_or_new(&mut self, dst: Address) -> usize {
        if let Some(number) = self.number(dst) {
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => number as usize,
            None => {
                self.entries.push(Entry::default());
                self.entries.len() - 1
            }
        };
        self.entries[number].dst = dst;
        self.note(dst, number as u32 + 1);
        number
    }

    /// Sets the entry number (plus one) of an address; 0 removes it.
    fn note(&mut self, dst: Address, number: u32) {
        if dst.0 < SMALL {
            let at = dst.0 as usize;
            if self.small.len() <= at {
                self.small.resize(at + 1, 0);
            }
            self.small[at] = number;
        } else if number == 0 {
            self.large.remove(&dst);
        } else {
            self.large.insert(dst, number);
        }
    }

    fn work_out_all(&mut self) {
        for number in 0..self.entries.len() {
            if self.entries[number].dst != Address::NONE {
                self.work_out(number);
            }
        }
    }

    /// Recomputes the N-1 flows of an entry. An entry without route and neighbour becomes unused.
    fn work_out(&mut self, number: usize) {
        let neighbours = &self.neighbours;
        let entry = &mut self.entries[number];
        let live = |next_hops: &[Address]| -> Vec<Vec<u32>> {
            let ports = next_hops
                .iter()
                .filter_map(|hop| neighbours.get(hop).cloned());
            ports.collect()
        };
        match &entry.route {
            Some(route) => {
                entry.next_hops = live(&route.next);
                if entry.next_hops.is_empty() {
                    entry.next_hops = live(&route.alternates);
                }
            }
            // A neighbour can be reached before routing has heard of it.
            None => {
                entry.next_hops = live(&[entry.dst]);
                if entry.next_hops.is_empty() {
                    let dst = core::mem::replace(&mut entry.dst, Address::NONE);
                    self.free.push(number as u32);
                    self.note(dst, 0);
                }
            }
        }
    }
}

/// Hashes what identifies one direction of a connection to 32 bits. `salt` differs between members:
/// with the same salt, all members would split the connections alike, and those that arrive at the
/// second hop would all take the same branch there.
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

    fn next_hops(table: &ForwardingTable, dst: u64) -> Option<Vec<Vec<u32>>> {
        table
            .lookup(Address(dst))
            .map(|entry| entry.next_hops.clone())
    }

    #[test]
    fn alternates_are_used_only_when_all_next_hops_are_gone() {
        let mut table = ForwardingTable::default();
        table.set_routes(&[route(9, &[2, 3], &[4]), route(1 << 40, &[3], &[])]);
        assert_eq!(next_hops(&table, 9), Some(vec![]));
        table.set_neighbour(Address(2), vec![20, 21]);
        table.set_neighbour(Address(3), vec![30]);
        table.set_neighbour(Address(4), vec![40]);
        assert_eq!(next_hops(&table, 9), Some(vec![vec![20, 21], vec![30]]));
        assert_eq!(next_hops(&table, 1 << 40), Some(vec![vec![30]]));
        table.remove_port(30);
        table.remove_port(20);
        assert_eq!(next_hops(&table, 9), Some(vec![vec![21]]));
        assert_eq!(table.neighbour_of(21), Some(Address(2)));
        table.set_neighbour(Address(2), vec![]);
        assert_eq!(next_hops(&table, 9), Some(vec![vec![40]]));
        assert_eq!(next_hops(&table, 1 << 40), Some(vec![]));
        assert_eq!(next_hops(&table, 8), None);
        assert_eq!(next_hops(&table, 1 << 41), None);
    }

    #[test]
    fn a_neighbour_needs_no_route() {
        let mut table = ForwardingTable::default();
        table.set_neighbour(Address(7), vec![1]);
        assert_eq!(next_hops(&table, 7), Some(vec![vec![1]]));
        table.set_routes(&[route(7, &[8], &[])]);
        assert_eq!(next_hops(&table, 7), Some(vec![]));
        assert_eq!(table.in_order().len(), 1);
    }

    #[test]
    fn changed_routes_give_the_same_table_as_replaced_ones() {
        let routes = |dsts: &[(u64, u64)]| -> Vec<Route> {
            dsts.iter()
                .map(|(dst, hop)| route(*dst, &[*hop], &[]))
                .collect()
        };
        let mut changed = ForwardingTable::default();
        for hop in [2, 3] {
            changed.set_neighbour(Address(hop), vec![hop as u32 * 10]);
        }
        changed.change_routes(&routes(&[(2, 2), (5, 2), (1 << 20, 2), (6, 3)]), &[]);
        changed.change_routes(&routes(&[(5, 3), (7, 2)]), &[Address(1 << 20), Address(2)]);
        changed.change_routes(&routes(&[(1 << 21, 3)]), &[Address(6), Address(99)]);
        let mut replaced = ForwardingTable::default();
        replaced.set_routes(&routes(&[(6, 3), (9, 2)]));
        for hop in [2, 3] {
            replaced.set_neighbour(Address(hop), vec![hop as u32 * 10]);
        }
        replaced.set_routes(&routes(&[(5, 3), (7, 2), (1 << 21, 3)]));
        let shown = |table: &ForwardingTable| -> Vec<(Address, Option<Route>, Vec<Vec<u32>>)> {
            let all = table.in_order().into_iter();
            all.map(|(dst, route, entry)| (dst, route.cloned(), entry.next_hops.clone()))
                .collect()
        };
        assert_eq!(shown(&changed), shown(&replaced));
        assert_eq!(
            next_hops(&changed, 2),
            Some(vec![vec![20]]),
            "a neighbour still"
        );
        for gone in [6, 1 << 20] {
            assert_eq!(next_hops(&changed, gone), None);
        }
        assert_eq!(changed.entries.len(), 5, "places are used again");
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
