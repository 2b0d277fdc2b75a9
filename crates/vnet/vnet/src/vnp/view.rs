//! The combined substrate of all providers, as far as they disclose it.

use std::collections::{BTreeMap, BTreeSet};

use carina_embed::request::AMOUNT_MAX;
use carina_embed::substrate::{HOSTS_MAX, Host, Link};
use carina_embed::{HostId, Label, LinkId, Location, ProviderId, Substrate};
use carina_time::Duration;

use crate::message::{AdvertisedBorder, AdvertisedHost, Advertisement};

/// The combined substrate of all providers.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) substrate: Substrate,
    pips: Vec<String>,
    /// For each host, its number in its provider's advertisement; `None` if that is not exact.
    numbers: Vec<Option<u32>>,
    borders: BTreeMap<LinkId, Border>,
    locations: BTreeMap<(String, String), u32>,
    labels: BTreeMap<String, u32>,
    /// Whether each host in the providers' advertisements is one real host, not the sum of a
    /// location.
    pub(super) is_exact: bool,
}

/// A link between two providers.
#[derive(Clone, Debug)]
pub(super) struct Border {
    pub(super) name: String,
    /// Each provider's share of the border's delay, µs, in the order of the link's ends.
    pub(super) delays_us: [u64; 2],
}

/// Whether an advertisement is valid: all host numbers exist, names of borders are unique, and
/// sizes are bounded.
pub(super) fn is_sound(seen: &Advertisement) -> bool {
    let hosts = seen.hosts.len();
    let exists = |host: u32| (host as usize) < hosts;
    let mut links = seen.links.iter().map(|link| link.ends);
    let mut names = BTreeSet::new();
    hosts <= ADVERTISED_MAX
        && seen.links.len() <= ADVERTISED_MAX
        && seen.borders.len() <= ADVERTISED_MAX
        && links.all(|[a, b]| a != b && exists(a) && exists(b))
        && seen
            .borders
            .iter()
            .all(|border| exists(border.host) && names.insert(&border.name))
}

impl View {
    /// Combines the advertisements of several providers. The free resources of providers in `roomy`
    /// count as unlimited: the network already has resources there, which the advertisement does
    /// not show as free.
    pub(super) fn new(seen: &BTreeMap<&str, &Advertisement>, roomy: &BTreeSet<String>) -> View {
        let mut view = View {
            substrate: Substrate::new(vec![], vec![], 0).expect("nothing is sound"),
            pips: seen.keys().map(|pip| (*pip).to_owned()).collect(),
            numbers: vec![],
            borders: BTreeMap::new(),
            locations: BTreeMap::new(),
            labels: BTreeMap::new(),
            is_exact: roomy.is_empty() && seen.values().all(|candidate| candidate.is_exact),
        };
        let (mut hosts, mut links) = (Vec::new(), Vec::new());
        let mut ways: BTreeMap<&str, Vec<(HostId, &AdvertisedBorder)>> = BTreeMap::new();
        for (number, (pip, seen)) in seen.iter().enumerate() {
            // Several very large advertisements exceed what the embedder accepts: the last ones are
            // ignored.
            if hosts.len() + seen.hosts.len() > HOSTS_MAX {
                continue;
            }
            let first = hosts.len() as u32;
            let is_roomy = roomy.contains(*pip);
            let amount = |free: u64| {
                if is_roomy {
                    AMOUNT_MAX
                } else {
                    free.min(AMOUNT_MAX)
                }
            };
            for (own, host) in (0..).zip(&seen.hosts) {
                hosts.push(view.host(number, host, amount));
                view.numbers
                    .push((seen.is_exact && !is_roomy).then_some(own));
            }
            for link in &seen.links {
                let [a, b] = link.ends.map(|end| HostId(first + end));
                links.push(Link {
                    delay: Duration::from_micros(link.delay_us),
                    ..Link::new(a, b, amount(link.rate_bps))
                });
            }
            for border in &seen.borders {
                let end = (HostId(first + border.host), border);
                ways.entry(&border.name).or_default().push(end);
            }
        }
        for (name, ends) in ways {
            // A border with one end leads to a provider without an advertisement; more than two
            // ends are contradictory.
            let [(a, one), (b, other)] = ends[..] else {
                continue;
            };
            let delays_us = [one.delay_us, other.delay_us];
            let delay_us = one.delay_us.saturating_add(other.delay_us);
            let rate = one.rate_bps.min(other.rate_bps).min(AMOUNT_MAX);
            let name = name.to_owned();
            view.borders
                .insert(LinkId::of(links.len()), Border { name, delays_us });
            links.push(Link {
                delay: Duration::from_micros(delay_us),
                ..Link::new(a, b, rate)
            });
        }
        let substrate = Substrate::new(hosts, links, BORDER_PRICE);
        view.substrate = substrate.expect("advertisements are sound");
        view
    }

    fn host(&mut self, pip: usize, seen: &AdvertisedHost, amount: impl Fn(u64) -> u64) -> Host {
        let at = (self.pips[pip].clone(), seen.location.clone());
        let next = self.locations.len() as u32;
        let location = *self.locations.entry(at).or_insert(next);
        let labels = seen.labels.iter().map(|text| {
            let next = self.labels.len() as u32;
            Label(*self.labels.entry(text.clone()).or_insert(next))
        });
        Host {
            cpu: amount(seen.cpus),
            memory: amount(seen.memory_mib),
            nics: seen.nics.min(AMOUNT_MAX),
            location: Location(location),
            labels: labels.collect(),
            provider: ProviderId(pip as u32),
        }
    }

    /// The provider of a host.
    pub(super) fn pip(&self, host: HostId) -> &str {
        &self.pips[self.substrate.hosts()[host.index()].provider.index()]
    }

    /// The number of a host in its provider's advertisement, if that is exact.
    pub(super) fn number(&self, host: HostId) -> Option<u32> {
        self.numbers[host.index()]
    }

    /// The border that a link crosses; `None` for a link within a provider.
    pub(super) fn border(&self, link: LinkId) -> Option<&Border> {
        self.borders.get(&link)
    }

    /// The number of a label; for an unknown text, a label that no host has.
    pub(super) fn label(&self, text: &str) -> Label {
        self.labels
            .get(text)
            .map_or(Label(u32::MAX), |label| Label(*label))
    }

    /// The locations of these names at the providers that `takes` accepts; all their locations if
    /// `names` is empty.
    pub(super) fn locations(
        &self,
        names: &[String],
        takes: impl Fn(&str) -> bool,
    ) -> Vec<Location> {
        let known = self.locations.iter();
        let right = known
            .filter(|((pip, name), _)| takes(pip) && (names.is_empty() || names.contains(name)));
        let right: Vec<Location> = right.map(|(_, number)| Location(*number)).collect();
        if right.is_empty() {
            // An empty list would mean anywhere.
            vec![Location(u32::MAX)]
        } else {
            right
        }
    }
}

/// Additional price of a unit of rate on a link between providers.
const BORDER_PRICE: u32 = 9;

/// Largest number of hosts, links and borders of one advertisement.
const ADVERTISED_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertisements_that_are_too_large_together_are_seen_in_part() {
        let host = AdvertisedHost {
            cpus: 1,
            memory_mib: 1,
            nics: 0,
            location: String::new(),
            labels: [].into(),
        };
        let large = Advertisement {
            is_exact: true,
            hosts: vec![host; ADVERTISED_MAX],
            ..Advertisement::default()
        };
        assert!(is_sound(&large));
        let pips = ["a", "b", "c", "d", "e", "f"].map(|pip| (pip, &large));
        let view = View::new(&BTreeMap::from(pips), &BTreeSet::new());
        assert_eq!(view.substrate.hosts().len(), HOSTS_MAX);
    }
}
