//! A provider's inventory, as its operator writes it and as the embedder uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use carina_embed::substrate::{self, SubstrateError};
use carina_embed::{HostId, Label, LinkId, Location, ProviderId, Substrate};
use carina_time::Duration;
use serde::{Deserialize, Serialize};

use crate::host_part::InterfaceAddress;

/// The hosts and links that a provider owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// How much of the inventory VNPs may see.
    #[serde(default)]
    pub discovery: Discovery,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The links between hosts.
    #[serde(default)]
    pub links: Vec<Link>,
    /// The links to other providers.
    #[serde(default)]
    pub borders: Vec<Border>,
}

/// How much a provider discloses to VNPs. A VNP that sees more can choose better placements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discovery {
    /// Only the names of locations: the provider places nodes itself, and a VNP learns by requests
    /// what fits.
    #[default]
    Pip,
    /// Every host and link, with its free resources.
    Vnp,
    /// The sums of free resources at each location and between locations. (RFC 8453, section 5.2)
    Abstract,
}

/// A host of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name of the host, unique in the inventory.
    pub name: String,
    /// Processors available to networks.
    pub cpus: u64,
    /// Memory available to networks, MiB.
    pub memory_mib: u64,
    /// Physical network cards available to networks.
    #[serde(default)]
    pub nics: u64,
    /// Name of the location.
    #[serde(default)]
    pub location: String,
    /// Labels of the host, with their values.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The host's address on the substrate, where tunnels with a tag end.
    pub address: Ipv4Addr,
    /// Number of addresses that follow `address`; tunnels without a tag (`ipip`) use them.
    #[serde(default)]
    pub tunnel_addresses: u32,
}

/// A link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name of the link.
    pub name: String,
    /// Names of the hosts at its ends.
    pub ends: [String; 2],
    /// Rate available to networks, bits a second.
    pub rate_bps: u64,
    /// Delay, µs.
    #[serde(default)]
    pub delay_us: u64,
}

/// A link to another provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Border {
    /// Name of the border, which both providers use.
    pub name: String,
    /// Name of this provider's host at the border.
    pub host: String,
    /// Rate available to networks, bits a second.
    pub rate_bps: u64,
    /// Half of the border's delay, µs; the other provider counts the other half.
    #[serde(default)]
    pub delay_us: u64,
    /// Prefixes that contain the addresses of the other provider's hosts; tunnels over this border
    /// may end only there. If empty, they may end at any address that no host of this provider has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reaches: Vec<InterfaceAddress>,
}

/// Where an inventory contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    /// Two hosts, links or borders have the same name.
    #[error("{what} `{name}` occurs twice; give each its own name")]
    Twice {
        /// The kind of thing.
        what: &'static str,
        /// The name that occurs twice.
        name: String,
    },
    /// A link or border ends at a host that the inventory does not have.
    #[error("{what} `{name}`: there is no host `{host}`")]
    NoSuchHost {
        /// What ends at the missing host: `link` or `border`.
        what: &'static str,
        /// Name of the link or border.
        name: String,
        /// Name of the missing host.
        host: String,
    },
    /// The tunnel addresses of two hosts overlap.
    #[error(
        "host `{host}`: its addresses overlap those of host `{other}`; give it other addresses"
    )]
    Addresses {
        /// Name of one host.
        host: String,
        /// Name of the second of the two hosts whose addresses overlap.
        other: String,
    },
    /// The embedder refuses the substrate.
    #[error("the links: {0}")]
    Substrate(#[from] SubstrateError),
}

/// An inventory as the embedder uses it. The substrate has one additional host per border, with no
/// resources for nodes, which represents everything beyond the border.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) inventory: Inventory,
    pub(super) substrate: Arc<Substrate>,
    hosts: BTreeMap<String, usize>,
    borders: BTreeMap<String, usize>,
    links: BTreeMap<String, usize>,
    locations: BTreeMap<String, u32>,
    labels: BTreeMap<String, u32>,
}

impl Ground {
    pub(super) fn new(inventory: Inventory) -> Result<Ground, InventoryError> {
        let names = inventory.hosts.iter().map(|host| &host.name);
        let hosts = numbered("host", names)?;
        let names = inventory.borders.iter().map(|border| &border.name);
        let mut borders = numbered("border", names)?;
        borders
            .values_mut()
            .for_each(|number| *number += hosts.len());
        let names = inventory.links.iter().map(|link| &link.name);
        let links = numbered("link", names.chain(borders.keys()))?;
        check_addresses(&inventory.hosts)?;
        let places = inventory.hosts.iter().map(|host| &host.location);
        let locations = (0..).zip(places.collect::<BTreeSet<_>>());
        let locations = locations
            .map(|(number, name)| (name.clone(), number))
            .collect();
        let labels = inventory.hosts.iter().flat_map(label_texts);
        // Labels with smaller numbers pin a node to the host of that number.
        let first = (hosts.len() + borders.len()) as u32;
        let labels = (first..).zip(labels.collect::<BTreeSet<_>>());
        let labels = labels.map(|(number, name)| (name, number)).collect();
        let mut ground = Ground {
            substrate: Arc::new(Substrate::new(vec![], vec![], 0)?),
            inventory,
            hosts,
            borders,
            links,
            locations,
            labels,
        };
        ground.substrate = Arc::new(ground.seen_by_embedder()?);
        Ok(ground)
    }

    fn seen_by_embedder(&self) -> Result<Substrate, InventoryError> {
        let mut hosts = Vec::new();
        for (number, host) in self.inventory.hosts.iter().enumerate() {
            let named = label_texts(host).into_iter().map(|text| self.label(&text));
            hosts.push(substrate::Host {
                cpu: host.cpus,
                memory: host.memory_mib,
                nics: host.nics,
                location: self.location(&host.location),
                labels: named.chain([Label::of(number)]).collect(),
                provider: ProviderId(0),
            });
        }
        for number in self.borders.values() {
            let mut outside = substrate::Host {
                location: UNKNOWN_LOCATION,
                ..substrate::Host::default()
            };
            outside.labels.push(Label::of(*number));
            hosts.push(outside);
        }
        // The order of host numbers: the inventory's hosts, then the borders by name.
        hosts[self.hosts.len()..].sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut links = Vec::new();
        for link in &self.inventory.links {
            let [a, b] = [0, 1].map(|side| self.host_at("link", &link.name, &link.ends[side]));
            links.push(link_between(a?, b?, link.rate_bps, link.delay_us));
        }
        for (name, number) in &self.borders {
            let border = self.border_entry(*number);
            let host = self.host_at("border", name, &border.host)?;
            let outside = HostId::of(*number);
            links.push(link_between(
                host,
                outside,
                border.rate_bps,
                border.delay_us,
            ));
        }
        Ok(Substrate::new(hosts, links, 0)?)
    }

    fn host_at(
        &self,
        what: &'static str,
        name: &str,
        host: &str,
    ) -> Result<HostId, InventoryError> {
        let found = self.hosts.get(host).copied().map(HostId::of);
        found.ok_or_else(|| InventoryError::NoSuchHost {
            what,
            name: name.to_owned(),
            host: host.to_owned(),
        })
    }

    /// The number of a host by its name.
    pub(super) fn host(&self, name: &str) -> Option<HostId> {
        self.hosts.get(name).copied().map(HostId::of)
    }

    /// The inventory's entry of a host; `None` for a host that represents a border.
    pub(super) fn host_entry(&self, host: HostId) -> Option<&Host> {
        self.inventory.hosts.get(host.index())
    }

    /// Whether an address belongs to a host of this provider, for tunnels with or without a tag.
    pub(super) fn has_address(&self, address: Ipv4Addr) -> bool {
        let address = u64::from(address.to_bits());
        let mut hosts = self.inventory.hosts.iter();
        hosts.any(|host| {
            let (first, last) = addresses(host);
            (first..=last).contains(&address)
        })
    }

    /// Whether a host beyond a border may have this address.
    pub(super) fn reaches(&self, border: &str, address: Ipv4Addr) -> bool {
        self.borders.get(border).is_some_and(|number| {
            let reaches = &self.border_entry(*number).reaches;
            reaches.is_empty() || reaches.iter().any(|prefix| prefix.has(address))
        })
    }

    /// The inventory's entry of a border, by the number of the host that represents it.
    fn border_entry(&self, number: usize) -> &Border {
        &self.inventory.borders[number - self.hosts.len()]
    }

    /// The host that represents everything beyond a border.
    pub(super) fn outside(&self, border: &str) -> Option<HostId> {
        self.borders.get(border).copied().map(HostId::of)
    }

    /// The number of a link, or of the link that leads to a border, by name.
    pub(super) fn link(&self, name: &str) -> Option<LinkId> {
        self.links.get(name).copied().map(LinkId::of)
    }

    /// The names of links, indexed by number.
    pub(super) fn link_names(&self) -> Vec<&str> {
        let mut names = vec![""; self.links.len()];
        for (name, number) in &self.links {
            names[*number] = name;
        }
        names
    }

    /// The label that pins a node to this host.
    pub(super) fn pin(&self, host: HostId) -> Label {
        Label(host.0)
    }

    /// The number of a label; for an unknown text, a label that no host has.
    pub(super) fn label(&self, text: &str) -> Label {
        self.labels
            .get(text)
            .map_or(UNKNOWN_LABEL, |label| Label(*label))
    }

    /// The number of a location; for an unknown name, a location that has no hosts.
    pub(super) fn location(&self, name: &str) -> Location {
        self.locations
            .get(name)
            .map_or(UNKNOWN_LOCATION, |location| Location(*location))
    }
}

/// The labels of a host, each as `key=value`.
pub(super) fn label_texts(host: &Host) -> Vec<String> {
    let labels = host.labels.iter();
    labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

fn numbered<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<BTreeMap<String, usize>, InventoryError> {
    let mut numbers = BTreeMap::new();
    for (number, name) in names.enumerate() {
        if numbers.insert(name.clone(), number).is_some() {
            let name = name.clone();
            return Err(InventoryError::Twice { what, name });
        }
    }
    Ok(numbers)
}

fn check_addresses(hosts: &[Host]) -> Result<(), InventoryError> {
    let mut sorted: Vec<&Host> = hosts.iter().collect();
    sorted.sort_by_key(|host| addresses(host));
    let meets = |pair: &&[&Host]| addresses(pair[0]).1 >= addresses(pair[1]).0;
    match sorted.windows(2).find(meets) {
        Some(pair) => Err(InventoryError::Addresses {
            host: pair[1].name.clone(),
            other: pair[0].name.clone(),
        }),
        None => Ok(()),
    }
}

/// The first and the last tunnel address of a host, as numbers.
fn addresses(host: &Host) -> (u64, u64) {
    let first = u64::from(host.address.to_bits());
    (first, first + u64::from(host.tunnel_addresses))
}

fn link_between(a: HostId, b: HostId, rate: u64, delay_us: u64) -> substrate::Link {
    substrate::Link {
        delay: Duration::from_micros(delay_us),
        ..substrate::Link::new(a, b, rate)
    }
}

/// A location that has no hosts.
const UNKNOWN_LOCATION: Location = Location(u32::MAX);

/// A label that no host has.
const UNKNOWN_LABEL: Label = Label(u32::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, address: u32, tunnel_addresses: u32) -> Host {
        Host {
            name: name.to_owned(),
            cpus: 4,
            memory_mib: 1024,
            nics: 0,
            location: "uk".to_owned(),
            labels: BTreeMap::new(),
            address: Ipv4Addr::from_bits(address),
            tunnel_addresses,
        }
    }

    fn border(name: &str, host: &str) -> Border {
        let (name, host) = (name.to_owned(), host.to_owned());
        let (rate_bps, delay_us) = (7, 0);
        Border {
            name,
            host,
            rate_bps,
            delay_us,
            reaches: vec![],
        }
    }

    fn inventory(hosts: Vec<Host>) -> Inventory {
        Inventory {
            discovery: Discovery::Pip,
            hosts,
            links: vec![],
            borders: vec![],
        }
    }

    #[test]
    fn border_leads_to_a_host_outside_that_takes_no_node() {
        let mut wanted = inventory(vec![host("a", 10, 0), host("b", 20, 0)]);
        wanted.borders = vec![border("z", "a"), border("y", "b")];
        let ground = Ground::new(wanted).unwrap();
        for (name, at) in [("z", "a"), ("y", "b")] {
            let outside = ground.outside(name).unwrap();
            let link = &ground.substrate.links()[ground.link(name).unwrap().index()];
            assert_eq!(link.ends, [ground.host(at).unwrap(), outside]);
            let host = &ground.substrate.hosts()[outside.index()];
            assert_eq!((host.cpu, &host.labels), (0, &vec![ground.pin(outside)]));
        }
        assert_eq!(ground.link_names().len(), 2);
    }

    #[test]
    fn impossible_inventories_are_named() {
        let refusal = |wanted| Ground::new(wanted).unwrap_err().to_string();
        let twice = inventory(vec![host("a", 10, 0), host("a", 20, 0)]);
        assert!(refusal(twice).contains("host `a` occurs twice"));
        let close = inventory(vec![host("a", 10, 5), host("b", 15, 0)]);
        assert!(refusal(close).contains("host `b`: its addresses overlap"));
        let mut astray = inventory(vec![host("a", 10, 0)]);
        astray.borders = vec![border("x", "c")];
        assert!(refusal(astray).contains("border `x`: there is no host `c`"));
    }
}
