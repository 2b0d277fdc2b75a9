//! The substrate: hosts, the links between them, and the providers that own both.

use carina_time::Duration;

use crate::id::{HostId, Label, LinkId, Location, ProviderId};

/// A machine that can carry nodes of virtual networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Processor capacity; any unit, the same in all hosts and requests.
    pub cpu: u64,
    /// Memory; any unit, the same in all hosts and requests.
    pub memory: u64,
    /// Physical network cards that a node can have for itself.
    pub nics: u64,
    /// Where it is.
    pub location: Location,
    /// What else it has.
    pub labels: Vec<Label>,
    /// Who owns it.
    pub provider: ProviderId,
}

/// A link between two hosts; both directions share its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its two ends.
    pub ends: [HostId; 2],
    /// Its capacity; any unit, the same in all links and requests.
    pub rate: u64,
    /// How long it takes from one end to the other.
    pub delay: Duration,
    /// What a unit of rate costs on it, 1 to [`PRICE_MAX`].
    pub price: u32,
}

impl Link {
    /// A link without delay, of price 1.
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

/// Hosts and links, with what leads where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substrate {
    hosts: Vec<Host>,
    links: Vec<Link>,
    /// Of each host, where its part of `beside` begins; one more at the end.
    first: Vec<u32>,
    beside: Vec<Beside>,
    prices: [u32; 2],
}

/// What lies beside a host: a link, and the host at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) host: u32,
    pub(crate) link: u32,
    pub(crate) price: u32,
}

impl Substrate {
    /// A substrate of these hosts and links. A link between two providers costs
    /// `provider_price` a unit of rate beside its own price.
    ///
    /// # Errors
    /// The first link that has no host at an end, the same host at both, or an impossible price;
    /// or too many hosts.
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

    /// The links, by [`LinkId`], with the price that they have between providers.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The end of a link that `from` is not.
    #[must_use]
    pub fn other_end(&self, link: LinkId, from: HostId) -> HostId {
        let [a, b] = self.links[link.index()].ends;
        if a == from { b } else { a }
    }

    pub(crate) fn beside(&self, host: u32) -> &[Beside] {
        let at = host as usize;
        &self.beside[self.first[at] as usize..self.first[at + 1] as usize]
    }

    /// The lowest price of a link; 1 where there is no link.
    pub(crate) fn price_min(&self) -> u32 {
        self.prices[0]
    }

    /// The highest price of a link; 1 where there is no link.
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

/// What is wrong with a list of hosts and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubstrateError {
    /// More hosts than are possible.
    #[error("{hosts} hosts; at most {HOSTS_MAX} are possible")]
    Hosts {
        /// How many.
        hosts: usize,
    },
    /// An end that is not in the list.
    #[error("link {}: its end is host {}, and there are {hosts} hosts", link.0, host.0)]
    NoSuchHost {
        /// The link.
        link: LinkId,
        /// Its end.
        host: HostId,
        /// How many hosts there are.
        hosts: usize,
    },
    /// Both ends are the same host.
    #[error("link {}: both its ends are host {}", link.0, host.0)]
    ToItself {
        /// The link.
        link: LinkId,
        /// The host.
        host: HostId,
    },
    /// A price that is not possible.
    #[error("link {}: price {price}; 1 to {PRICE_MAX} is possible, with that between providers",
        link.0)]
    Price {
        /// The link.
        link: LinkId,
        /// Its price.
        price: u32,
    },
}

/// The highest price of a link: prices of paths stay far below 2^32.
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
            "link 0: its end is host 7, and there are 2 hosts"
        );
        let error = new(HostId(1), HostId(1)).unwrap_err();
        assert!(matches!(error, SubstrateError::ToItself { .. }), "{error}");
        let free = Link {
            price: 0,
            ..Link::new(HostId(0), HostId(1), 1)
        };
        let hosts = vec![host(0), host(0)];
        let error = Substrate::new(hosts, vec![free], 5).unwrap_err();
        assert!(error.to_string().contains("price 0; 1 to 10000"), "{error}");
    }
}
