//! The share of the substrate that a network is charged for.

use std::collections::BTreeMap;

use carina_embed::residual::Amounts;

use crate::message::PartRequest;
use crate::pip::inventory::Ground;
use crate::pip::placing::Placement;

/// The resources of one network on the substrate, by the numbers of hosts and links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) hosts: BTreeMap<usize, Amounts>,
    pub(super) rates: BTreeMap<usize, u64>,
}

impl Charge {
    pub(super) fn of(part: &PartRequest, placement: &Placement, ground: &Ground) -> Charge {
        let mut charge = Charge::default();
        for wanted in &part.nodes {
            let host = placement.hosts.get(&wanted.node.name);
            if let Some(host) = host.and_then(|name| ground.host(name)) {
                let sum = charge.hosts.entry(host.index()).or_default();
                sum.cpu += u64::from(wanted.node.cpus);
                sum.memory += wanted.node.memory_mib;
                sum.nics += u64::from(wanted.nics);
            }
        }
        for (link, path) in part.links.iter().zip(&placement.paths) {
            for hop in path.iter().filter_map(|name| ground.link(name)) {
                *charge.rates.entry(hop.index()).or_default() += link.rate.bps();
            }
        }
        charge
    }

    /// Raises every amount to the larger of the two charges. Two states of one network never exist
    /// at the same time, so that their maximum suffices.
    pub(super) fn cover(&mut self, other: &Charge) {
        for (host, amounts) in &other.hosts {
            let own = self.hosts.entry(*host).or_default();
            own.cpu = own.cpu.max(amounts.cpu);
            own.memory = own.memory.max(amounts.memory);
            own.nics = own.nics.max(amounts.nics);
        }
        for (link, rate) in &other.rates {
            let own = self.rates.entry(*link).or_default();
            *own = (*own).max(*rate);
        }
    }
}
