//! Routes: which members can be reached through which N-1 flows; updates data transfer, flows and
//! the directory.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_routing::compute::Paths;
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::Rlite;

/// Largest number of next hops of a route.
const NEXT_HOPS_MAX: usize = 4;

/// Shortest time between two computations of routes.
const ROUTES_PAUSE: Duration = Duration::from_millis(100);

impl Rlite {
    /// True when the member with this address can be reached.
    pub(super) fn can_reach(&self, address: u64) -> bool {
        self.own_address() == Some(address) || self.reachable.contains(&address)
    }

    /// Reports applications that became reachable or unreachable.
    pub(super) fn directory_changes(&mut self) {
        let own_address = self.own_address();
        let is_reachable = |holder: &String| {
            let known = self.members.get(holder).map(|member| member.address);
            let address = if *holder == self.own {
                own_address
            } else {
                known
            };
            address.is_some_and(|at| Some(at) == own_address || self.reachable.contains(&at))
        };
        for event in self.directory.changes(&is_reachable) {
            self.log.push(event);
        }
    }

    /// Tells data transfer which N-1 flows lead to which neighbours, if that has changed.
    pub(super) fn update_neighbours(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let mut reached: BTreeMap<u64, Vec<(u32, N1Port)>> = BTreeMap::new();
        for (n1, flow) in &self.n1s {
            let Some(address) = flow.neighbour().and_then(|name| self.address_of(name)) else {
                continue;
            };
            if self.own_address() == Some(address) {
                continue;
            }
            let ports = reached.entry(address).or_default();
            ports.push((flow.props.cost, *n1));
        }
        let reached: BTreeMap<u64, Vec<N1Port>> = reached
            .into_iter()
            .map(|(address, mut ports)| {
                ports.sort();
                (address, ports.into_iter().map(|(_, n1)| n1).collect())
            })
            .collect();
        if reached == self.neighbour_ports {
            return;
        }
        for address in self.neighbour_ports.keys() {
            if !reached.contains_key(address) {
                dt.set_neighbour(now, Address(*address), &[]);
            }
        }
        for (address, ports) in &reached {
            if self.neighbour_ports.get(address) != Some(ports) {
                dt.set_neighbour(now, Address(*address), ports);
            }
        }
        self.neighbour_ports = reached;
        self.are_routes_stale = true;
    }

    /// Recomputes the routes if links or addresses have changed, but not more often than every
    /// [`ROUTES_PAUSE`].
    pub(super) fn update_routes(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.are_routes_stale |= self.links.take_changed();
        if !self.are_routes_stale || now < self.routes_at {
            return;
        }
        self.are_routes_stale = false;
        self.routes_at = now + ROUTES_PAUSE;
        let paths = Paths {
            max: NEXT_HOPS_MAX,
            has_alternates: self.policies.has_alternates(),
        };
        let routes = match self.member {
            // A member with this member's own address cannot be reached until one of them changes
            // its address.
            Some(_) => self.links.routes(paths, &|name| {
                let address = self.address_of(name);
                address.filter(|address| name == self.own || Some(*address) != self.own_address())
            }),
            None => Vec::new(),
        };
        if routes != self.routes {
            let table: Vec<_> = routes.iter().map(|reach| reach.route.clone()).collect();
            dt.set_forwarding(&table);
            self.routes = routes;
            self.reachable = table.iter().map(|route| route.dst.0).collect();
            let (own, reachable) = (self.own_address(), &self.reachable);
            let can_reach = |address| own == Some(address) || reachable.contains(&address);
            self.flows.set_reachability(now, &can_reach);
            self.directory.touch_all();
        }
    }
}
