//! The free resources of a substrate, from which embeddings are taken and to which they are given
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_time::Duration;

use crate::embedding::{self, Embedding};
use crate::id::{HostId, LinkId, NodeId, VirtualLinkId};
use crate::request::{Node, Request};
use crate::substrate::{Host, Substrate};

/// The free resources of a substrate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    substrate: Arc<Substrate>,
    hosts: Vec<Amounts>,
    rates: Vec<u64>,
}

/// An amount of each resource of a host: what the host has, has free, or a node needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Processor capacity, in the unit of the substrate's hosts.
    pub cpu: u64,
    /// Memory, in the unit of the substrate's hosts.
    pub memory: u64,
    /// Number of physical network cards.
    pub nics: u64,
}

impl Amounts {
    /// All resources of a host, as if it had no nodes.
    #[must_use]
    pub fn of_host(host: &Host) -> Amounts {
        Amounts {
            cpu: host.cpu,
            memory: host.memory,
            nics: host.nics,
        }
    }

    /// The resources that a node needs.
    #[must_use]
    pub fn of_node(node: &Node) -> Amounts {
        Amounts {
            cpu: node.cpu,
            memory: node.memory,
            nics: node.nics,
        }
    }

    /// Whether every amount is at least as large as in `part`.
    #[must_use]
    pub fn contains(self, part: Amounts) -> bool {
        self.cpu >= part.cpu && self.memory >= part.memory && self.nics >= part.nics
    }

    fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            nics: self.nics.saturating_add(other.nics),
        }
    }

    fn minus(self, other: Amounts) -> Amounts {
        Amounts {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
            nics: self.nics - other.nics,
        }
    }
}

impl Residual {
    /// The residual of an unused substrate.
    #[must_use]
    pub fn new(substrate: Arc<Substrate>) -> Residual {
        let hosts = substrate.hosts().iter().map(Amounts::of_host).collect();
        let rates = substrate.links().iter().map(|link| link.rate).collect();
        Residual {
            substrate,
            hosts,
            rates,
        }
    }

    /// A residual with the given free amounts, which are capped at what the substrate has.
    ///
    /// # Panics
    /// If the lists do not have one element for each host and link.
    #[must_use]
    pub fn of_free(substrate: Arc<Substrate>, hosts: &[Amounts], rates: &[u64]) -> Residual {
        let mut residual = Residual::new(substrate);
        assert_eq!(hosts.len(), residual.hosts.len(), "one for each host");
        assert_eq!(rates.len(), residual.rates.len(), "one for each link");
        for (all, free) in residual.hosts.iter_mut().zip(hosts) {
            all.cpu = all.cpu.min(free.cpu);
            all.memory = all.memory.min(free.memory);
            all.nics = all.nics.min(free.nics);
        }
        for (all, free) in residual.rates.iter_mut().zip(rates) {
            *all = (*all).min(*free);
        }
        residual
    }

    /// The substrate.
    #[must_use]
    pub fn substrate(&self) -> &Arc<Substrate> {
        &self.substrate
    }

    /// The free resources of each host.
    #[must_use]
    pub fn hosts(&self) -> &[Amounts] {
        &self.hosts
    }

    /// The free rate of each link.
    #[must_use]
    pub fn rates(&self) -> &[u64] {
        &self.rates
    }

    /// Checks an embedding with [`Residual::check`], then takes the resources that it needs.
    ///
    /// # Errors
    /// The embedding does not fit; nothing was taken.
    pub fn take(&mut self, request: &Request, embedding: &Embedding) -> Result<(), Misfit> {
        self.check(request, embedding)?;
        let sums = Sums::of(request, embedding);
        for (host, amounts) in sums.hosts {
            self.take_host(host, amounts);
        }
        for (link, rate) in sums.links {
            self.take_rate(link, rate);
        }
        Ok(())
    }

    /// Makes the resources of an embedding free again, when its request ends.
    ///
    /// # Errors
    /// More would be free than the substrate has: the embedding was not taken, or was already given
    /// back. Nothing was given back.
    pub fn give_back(&mut self, request: &Request, embedding: &Embedding) -> Result<(), NotTaken> {
        self.check_shape(request, embedding).map_err(|_| NotTaken)?;
        let sums = Sums::of(request, embedding);
        for (host, amounts) in &sums.hosts {
            let all = Amounts::of_host(&self.substrate.hosts()[host.index()]);
            let then = self.hosts[host.index()].plus(*amounts);
            if !all.contains(then) {
                return Err(NotTaken);
            }
        }
        for (link, rate) in &sums.links {
            let all = self.substrate.links()[link.index()].rate;
            if self.rates[link.index()].saturating_add(*rate) > all {
                return Err(NotTaken);
            }
        }
        for (host, amounts) in sums.hosts {
            self.give_back_host(host, amounts);
        }
        for (link, rate) in sums.links {
            self.give_back_rate(link, rate);
        }
        Ok(())
    }

    /// Checks that an embedding satisfies every constraint of its request, and that all the
    /// resources it needs are free.
    ///
    /// # Errors
    /// The first violated constraint.
    pub fn check(&self, request: &Request, embedding: &Embedding) -> Result<(), Misfit> {
        self.check_shape(request, embedding)?;
        self.check_nodes(request, embedding)?;
        self.check_paths(request, embedding)?;
        let sums = Sums::of(request, embedding);
        for (host, wanted) in sums.hosts {
            let free = self.hosts[host.index()];
            if !free.contains(wanted) {
                return Err(Misfit::HostFull { host, wanted, free });
            }
        }
        for (link, wanted) in sums.links {
            let free = self.rates[link.index()];
            if free < wanted {
                return Err(Misfit::LinkFull { link, wanted, free });
            }
        }
        Ok(())
    }

    fn check_shape(&self, request: &Request, embedding: &Embedding) -> Result<(), Misfit> {
        let shape = [embedding.hosts.len(), embedding.paths.len()];
        if shape != [request.nodes().len(), request.links().len()] {
            return Err(Misfit::Shape {
                hosts: shape[0],
                paths: shape[1],
            });
        }
        if let Some(host) = embedding
            .hosts
            .iter()
            .find(|host| host.index() >= self.hosts.len())
        {
            return Err(Misfit::NoSuchHost { host: *host });
        }
        let mut links = embedding.paths.iter().flatten();
        match links.find(|link| link.index() >= self.rates.len()) {
            Some(link) => Err(Misfit::NoSuchLink { link: *link }),
            None => Ok(()),
        }
    }

    fn check_nodes(&self, request: &Request, embedding: &Embedding) -> Result<(), Misfit> {
        let mut on_host: BTreeMap<HostId, Vec<NodeId>> = BTreeMap::new();
        for (index, host) in embedding.hosts.iter().enumerate() {
            let node = NodeId::of(index);
            let wanted = &request.nodes()[index];
            let is_right = wanted.accepts(&self.substrate.hosts()[host.index()]);
            if !is_right || wanted.barred.contains(host) {
                return Err(Misfit::WrongHost { node, host: *host });
            }
            let others = on_host.entry(*host).or_default();
            if let Some(other) = others.iter().find(|other| request.are_apart(node, **other)) {
                let nodes = [*other, node];
                return Err(Misfit::NotApart { nodes, host: *host });
            }
            others.push(node);
        }
        Ok(())
    }

    fn check_paths(&self, request: &Request, embedding: &Embedding) -> Result<(), Misfit> {
        for (index, path) in embedding.paths.iter().enumerate() {
            let id = VirtualLinkId::of(index);
            let link = &request.links()[index];
            let [from, to] = link.ends.map(|node| embedding.hosts[node.index()]);
            let mut passed = vec![from];
            for hop in path {
                let at = passed[passed.len() - 1];
                if !self.substrate.links()[hop.index()].ends.contains(&at) {
                    return Err(Misfit::BrokenPath { link: id });
                }
                let next = self.substrate.other_end(*hop, at);
                if passed.contains(&next) {
                    return Err(Misfit::BrokenPath { link: id });
                }
                passed.push(next);
            }
            if passed[passed.len() - 1] != to {
                return Err(Misfit::BrokenPath { link: id });
            }
            let delay = embedding::delay(&self.substrate, path);
            if let Some(delay_max) = link.delay_max.filter(|delay_max| delay > *delay_max) {
                return Err(Misfit::SlowPath {
                    link: id,
                    delay,
                    delay_max,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn has_room(&self, host: u32, amounts: Amounts) -> bool {
        self.hosts[host as usize].contains(amounts)
    }

    pub(crate) fn take_host(&mut self, host: HostId, amounts: Amounts) {
        let free = &mut self.hosts[host.index()];
        *free = free.minus(amounts);
    }

    pub(crate) fn give_back_host(&mut self, host: HostId, amounts: Amounts) {
        let free = &mut self.hosts[host.index()];
        *free = free.plus(amounts);
    }

    pub(crate) fn take_rate(&mut self, link: LinkId, rate: u64) {
        self.rates[link.index()] -= rate;
    }

    pub(crate) fn give_back_rate(&mut self, link: LinkId, rate: u64) {
        self.rates[link.index()] += rate;
    }

    /// Copies `other`, a residual of the same substrate.
    pub(crate) fn reset_to(&mut self, other: &Residual) {
        self.hosts.copy_from_slice(&other.hosts);
        self.rates.copy_from_slice(&other.rates);
    }
}

/// What an embedding takes of each host and link.
struct Sums {
    hosts: BTreeMap<HostId, Amounts>,
    links: BTreeMap<LinkId, u64>,
}

impl Sums {
    fn of(request: &Request, embedding: &Embedding) -> Sums {
        let mut hosts: BTreeMap<HostId, Amounts> = BTreeMap::new();
        for (node, host) in request.nodes().iter().zip(&embedding.hosts) {
            let sum = hosts.entry(*host).or_default();
            *sum = sum.plus(Amounts::of_node(node));
        }
        let mut links: BTreeMap<LinkId, u64> = BTreeMap::new();
        for (link, path) in request.links().iter().zip(&embedding.paths) {
            for hop in path {
                let sum = links.entry(*hop).or_default();
                *sum = sum.saturating_add(link.rate);
            }
        }
        Sums { hosts, links }
    }
}

/// Why an embedding does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The embedding does not have one host for each node and one path for each link.
    #[error(
        "the embedding has {hosts} hosts and {paths} paths: it must have one for each node and link"
    )]
    Shape {
        /// Number of hosts in the embedding.
        hosts: usize,
        /// Number of paths in the embedding.
        paths: usize,
    },
    /// The substrate has no such host.
    #[error("there is no host {}", host.0)]
    NoSuchHost {
        /// The host that the substrate does not have.
        host: HostId,
    },
    /// The substrate has no such link.
    #[error("there is no link {}", link.0)]
    NoSuchLink {
        /// The link that the substrate does not have.
        link: LinkId,
    },
    /// The host's location or labels do not suit the node, or the node is barred from the host.
    #[error(
        "host {} lacks a location or label that node {} needs, or takes no new nodes",
        host.0, node.0
    )]
    WrongHost {
        /// The node of the request that the embedding places on an unsuitable host.
        node: NodeId,
        /// The host that does not suit the node.
        host: HostId,
    },
    /// Two nodes that must not share a host are on one host.
    #[error(
        "nodes {} and {} must be on different hosts, but both are on host {}",
        nodes[0].0,
        nodes[1].0,
        host.0
    )]
    NotApart {
        /// The two nodes that share a host.
        nodes: [NodeId; 2],
        /// The host of both nodes.
        host: HostId,
    },
    /// A path does not lead from one end's host to the other's, or visits a host twice.
    #[error("the path of link {} does not connect the hosts of its two ends", link.0)]
    BrokenPath {
        /// The virtual link of the request whose path is wrong.
        link: VirtualLinkId,
    },
    /// The delay of a path exceeds the limit.
    #[error("the path of link {} has a delay of {delay}; must be at most {delay_max}", link.0)]
    SlowPath {
        /// The virtual link of the request whose path is too slow.
        link: VirtualLinkId,
        /// The delay of the path.
        delay: Duration,
        /// The largest delay that the request allows for this virtual link.
        delay_max: Duration,
    },
    /// The nodes on a host need more than is free.
    #[error("host {} has {free:?} free, but its nodes need {wanted:?}", host.0)]
    HostFull {
        /// The host whose resources do not suffice.
        host: HostId,
        /// Resources that the nodes on this host need together.
        wanted: Amounts,
        /// Resources that are free on the host.
        free: Amounts,
    },
    /// The paths over a link need more rate than is free.
    #[error("link {} has a rate of {free} free, but its paths need {wanted}", link.0)]
    LinkFull {
        /// The link whose rate does not suffice.
        link: LinkId,
        /// The rate that the paths need.
        wanted: u64,
        /// The free rate of the link.
        free: u64,
    },
}

/// The error for giving back an embedding that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the embedding was not taken before: releasing it would free more than the substrate has")]
pub struct NotTaken;

#[cfg(test)]
mod tests;
