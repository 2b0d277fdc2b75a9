//! Advertisements: what a provider discloses about its free resources.

use std::collections::{BTreeMap, BTreeSet};

use carina_embed::Residual;

use crate::message::{AdvertisedBorder, AdvertisedHost, AdvertisedLink, Advertisement};

use super::inventory::{Discovery, Ground, label_texts};

/// The advertisement for VNPs, made from the free resources.
pub(super) fn advertise(ground: &Ground, free: &Residual) -> Advertisement {
    let inventory = &ground.inventory;
    let exact = inventory.discovery == Discovery::Vnp;
    let groups = groups(ground, exact);
    let count = groups.values().max().map_or(0, |last| last + 1);
    let mut hosts = vec![None; count];
    for (number, host) in inventory.hosts.iter().enumerate() {
        let amounts = free.hosts()[number];
        let seen = hosts[groups[&host.name]].get_or_insert_with(|| AdvertisedHost {
            cpus: 0,
            memory_mib: 0,
            nics: 0,
            location: host.location.clone(),
            labels: BTreeSet::new(),
        });
        seen.cpus += amounts.cpu;
        seen.memory_mib += amounts.memory;
        seen.nics += amounts.nics;
        seen.labels.extend(label_texts(host));
    }
    let mut rates: BTreeMap<[usize; 2], AdvertisedLink> = BTreeMap::new();
    for (number, link) in inventory.links.iter().enumerate() {
        let mut ends = [0, 1].map(|side| groups[&link.ends[side]]);
        ends.sort_unstable();
        if ends[0] == ends[1] {
            continue;
        }
        let rate_bps = free.rates()[number];
        let seen = AdvertisedLink {
            ends: ends.map(|end| end as u32),
            rate_bps,
            delay_us: link.delay_us,
        };
        match rates.get_mut(&ends) {
            // A link of a network is never split over several links between two hosts, so that only
            // the best of them counts.
            Some(known) if exact && known.rate_bps < rate_bps => *known = seen,
            Some(_) if exact => {}
            Some(known) => {
                known.rate_bps = known.rate_bps.saturating_add(rate_bps);
                known.delay_us = known.delay_us.min(link.delay_us);
            }
            None => drop(rates.insert(ends, seen)),
        }
    }
    let borders = inventory.borders.iter().map(|border| {
        let link = ground.link(&border.name);
        AdvertisedBorder {
            name: border.name.clone(),
            host: groups[&border.host] as u32,
            rate_bps: link.map_or(0, |link| free.rates()[link.index()]),
            delay_us: border.delay_us,
        }
    });
    let mut seen = Advertisement {
        is_exact: exact,
        hosts: hosts.into_iter().flatten().collect(),
        links: rates.into_values().collect(),
        borders: borders.collect(),
    };
    if inventory.discovery == Discovery::Pip {
        hide_amounts(&mut seen, free);
    }
    seen
}

/// The number of the advertised host that represents each host: its own, or one for its location.
fn groups(ground: &Ground, exact: bool) -> BTreeMap<String, usize> {
    let mut locations: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups = BTreeMap::new();
    for (number, host) in ground.inventory.hosts.iter().enumerate() {
        let next = locations.len();
        let group = if exact {
            number
        } else {
            *locations.entry(&host.location).or_insert(next)
        };
        groups.insert(host.name.clone(), group);
    }
    groups
}

/// Replaces all amounts by "more than any request": the advertisement then shows only that each
/// location has hosts, and that all locations are connected.
fn hide_amounts(seen: &mut Advertisement, free: &Residual) {
    let all = free.substrate().hosts().iter();
    let cards = all.map(|host| host.nics).sum();
    for host in &mut seen.hosts {
        host.cpus = HIDDEN;
        host.memory_mib = HIDDEN;
        host.nics = cards;
    }
    seen.links.clear();
    for b in 0..seen.hosts.len() as u32 {
        for a in 0..b {
            seen.links.push(AdvertisedLink {
                ends: [a, b],
                rate_bps: HIDDEN,
                delay_us: 0,
            });
        }
    }
}

/// An amount that no request exceeds.
const HIDDEN: u64 = carina_embed::request::AMOUNT_MAX;
