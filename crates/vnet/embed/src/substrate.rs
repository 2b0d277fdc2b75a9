//! The substrate: hosts, the links between them, and the providers that own them.

use carina_time::Duration;

use crate::id::{HostId, Label, LinkId, Location, ProviderId};

/// A host that can carry nodes of virtual networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Processor capacity, in any unit that all hosts and requests share.
    pub cpu: u64,
    /// Memory, in any unit that all hosts and requests share.
    pub memory: u64,
    /// Number of physical network cards that nodes can have exclusively.
    pub nics: u64,
    /// Location of the host.
    pub location: Location,
    /// Labels of the host.
    pub labels: Vec<Label>,
    /// Provider that owns the host.
    pub provider: ProviderId,
}

/// A link between two hosts. Both directions share its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The hosts at the ends of the link.
    pub ends: [HostId; 2],
    /// Capacity, in any unit that all links and requests share.
    pub rate: u64,
    /// Delay from one end to the other.
    pub delay: Duration,
    /// Price of a unit of rate, 1 to [`PRICE_MAX`].
    pub price: u32,
}

impl Link {
    /// A link without delay, with price 1.
    #[must_use]
    pub fn new(a: HostId, b: HostId, rate: u64) -> Link {
        Link {
            ends: [a, b],
            rate,
            delay: Duration::ZERO,
            price: 1,
        }
    }
}

/// The hosts and links of a substrate, with an index of each host's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substrate {
    hosts: Vec<Host>,
    links: Vec<Link>,
    /// For each host, the index in `beside` where its entries begin; with one more element at the
    /// end.
    first: Vec<u32>,
    beside: Vec<Beside>,
    prices: [u32; 2],
}

/// A neighbour of a host: a link, and the host at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) host: u32,
    pub(crate) link: u32,
    pub(crate) price: u32,
}

impl Substrate {
    /// Creates a substrate from hosts and links. The price of a link between two providers is
    /// raised by `provider_price`.
    ///
    /// # Errors
    /// A link names a missing host, or the same host twice, or its price is out of range; or there
    /// are too many hosts. Only the first fault is reported.
    pub fn new(
        hosts: Vec<Host>,
        mut links: Vec<Link>,
        provider_price: u32,
    ) -> Result<Substrate, SubstrateError> {
        if hosts.len() > HOSTS_MAX {
            return Err(SubstrateError::Hosts { hosts: hosts.len() });
        }
        for (index, link) in links.iter_mut().enumerate() {
            let id = LinkId::of(index);
            check_ends(id, link, hosts.len())?;
            let [a, b] = link.ends.map(|host| hosts[host.index()].provider);
            if a != b {
                link.price = link.price.saturating_add(provider_price);
            }
            if !(1..=PRICE_MAX).contains(&link.price) {
                let price = link.price;
                return Err(SubstrateError::Price { link: id, price });
            }
        }
        let (first, beside) = adjacency(hosts.len(), &links);
        let prices = links.iter().map(|link| link.price);
        let prices = [prices.clone().min().unwrap_or(1), prices.max().unwrap_or(1)];
        Ok(Substrate {
            hosts,
            links,
            first,
            beside,
            prices,
        })
    }

    /// The hosts, by [`HostId`].
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The links, by [`LinkId`]. Prices include the surcharge for links between providers.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The end of a link that is not `from`.
    #[must_use]
    pub fn other_end(&self, link: LinkId, from: HostId) -> HostId {
        let [a, b] = self.links[link.index()].ends;
        if a == from { b } else { a }
    }

    pub(crate) fn beside(&self, host: u32) -> &[Beside] {
        let at = host as usize;
        &self.beside[self.first[at] as usize..self.first[at + 1] as usize]
    }

    /// The lowest price of a link; 1 if there are no links.
    pub(crate) fn price_min(&self) -> u32 {
        self.prices[0]
    }

    /// The highest price of a link; 1 if there are no links.
    pub(crate) fn price_max(&self) -> u32 {
        self.prices[1]
    }
}

fn check_ends(id: LinkId, link: &Link, hosts: usize) -> Result<(), SubstrateError> {
    if let Some(host) = link.ends.iter().find(|host| host.index() >= hosts) {
        let (link, host) = (id, *host);
        return Err(SubstrateError::NoSuchHost { link, host, hosts });
    }
    if link.ends[0] == link.ends[1] {
        let (link, host) = (id, link.ends[0]);
        return Err(SubstrateError::ToItself { link, host });
    }
    Ok(())
}

fn adjacency(hosts: usize, links: &[Link]) -> (Vec<u32>, Vec<Beside>) {
    let mut first = vec![0_u32; hosts + 1];
    for host in links.iter().flat_map(|link| link.ends) {
        first[host.index() + 1] += 1;
    }
    for at in 0..hosts {
        first[at + 1] += first[at];
    }
    let mut next = first.clone();
    let nothing = Beside {
        host: 0,
        link: 0,
        price: 0,
    };
    let mut beside = vec![nothing; links.len() * 2];
    for (index, link) in links.iter().enumerate() {
        let [a, b] = link.ends;
        for (from, to) in [(a, b), (b, a)] {
            let place = &mut next[from.index()];
            beside[*place as usize] = Beside {
                host: to.0,
                link: index as u32,
                price: link.price,
            };
            *place += 1;
        }
    }
    (first, beside)
}

/// Why a list of hosts and links is not a valid substrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubstrateError {
    /// There are too many hosts.
    #[error("{hosts} hosts; must be at most {HOSTS_MAX}")]
    Hosts {
        /// Number of hosts that the substrate was to have.
        hosts: usize,
    },
    /// A link ends at a host that is not in the list.
    #[error("link {}: it ends at host {}, but there are only {hosts} hosts", link.0, host.0)]
    NoSuchHost {
        /// The link that ends at the missing host.
        link: LinkId,
        /// The host at an end of the link that is not in the list.
        host: HostId,
        /// Number of hosts that the substrate has.
        hosts: usize,
    },
    /// Both ends of a link are the same host.
    #[error("link {}: both ends are host {}; give two different hosts", link.0, host.0)]
    ToItself {
        /// The link with the same host at both ends.
        link: LinkId,
        /// The host at both ends.
        host: HostId,
    },
    /// The price of a link is out of range.
    #[error("link {}: price {price}; must be 1 to {PRICE_MAX}, including the price between \
         providers",
        link.0)]
    Price {
        /// The link whose price is out of range.
        link: LinkId,
        /// The price of a unit of rate on the link.
        price: u32,
    },
}

/// The highest price of a link; prices of paths then stay far below 2^32.
pub const PRICE_MAX: u32 = 10_000;

/// The largest number of hosts.
pub const HOSTS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(provider: u32) -> Host {
        Host {
            provider: ProviderId(provider),
            ..Host::default()
        }
    }

    #[test]
    fn link_between_providers_is_dearer() {
        let links = vec![
            Link::new(HostId(0), HostId(1), 5),
            Link::new(HostId(1), HostId(2), 5),
        ];
        let hosts = vec![host(0), host(0), host(1)];
        let substrate = Substrate::new(hosts, links, 9).unwrap();
        assert_eq!(substrate.links()[0].price, 1);
        assert_eq!(substrate.links()[1].price, 10);
        assert_eq!(substrate.other_end(LinkId(1), HostId(2)), HostId(1));
    }

    #[test]
    fn impossible_links_are_named() {
        let new = |a, b| Substrate::new(vec![host(0), host(1)], vec![Link::new(a, b, 1)], 0);
        let error = new(HostId(0), HostId(7)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 0: it ends at host 7, but there are only 2 hosts"
        );
        let error = new(HostId(1), HostId(1)).unwrap_err();
        assert!(matches!(error, SubstrateError::ToItself { .. }), "{error}");
        let free = Link {
            price: 0,
            ..Link::new(HostId(0), HostId(1), 1)
        };
        let hosts = vec![host(0), host(0)];
        let error = Substrate::new(hosts, vec![free], 5).unwrap_err();
        assert!(
            error.to_string().contains("price 0; must be 1 to 10000"),
            "{error}"
        );
    }
}
