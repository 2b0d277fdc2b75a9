//! Aggregates the prefixes of a network into few routes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use carina_vnet::host_part::InterfaceAddress;

/// Aggregates prefixes: two halves of a prefix become that prefix. If more than `count_max` remain,
/// the longest ones are widened until there are only `count_max`. The result contains all addresses
/// of the network; after widening, also addresses that the network does not have.
pub(crate) fn aggregate(
    prefixes: impl Iterator<Item = InterfaceAddress>,
    count_max: usize,
) -> Vec<InterfaceAddress> {
    let mut all: BTreeSet<(u8, u32)> = prefixes
        .map(|prefix| (prefix.bits(), prefix.prefix().address().to_bits()))
        .collect();
    for bits in (1..=32).rev() {
        let here: Vec<u32> = all
            .iter()
            .filter(|candidate| candidate.0 == bits)
            .map(|entry| entry.1)
            .collect();
        for prefix in here {
            let half = 1 << (32 - u32::from(bits));
            let is_whole = all.contains(&(bits, prefix ^ half));
            if is_whole || all.len() > count_max {
                all.remove(&(bits, prefix));
                all.remove(&(bits, prefix ^ half));
                all.insert((bits - 1, prefix & !half));
            }
        }
    }
    let found = all
        .iter()
        .filter(|(bits, prefix)| !all.iter().any(|wider| covers(*wider, (*bits, *prefix))));
    let address =
        |(bits, prefix): &(u8, u32)| InterfaceAddress::new(Ipv4Addr::from_bits(*prefix), *bits);
    found.filter_map(address).collect()
}

/// Whether a prefix lies within another one.
fn covers((wide, outer): (u8, u32), (long, inner): (u8, u32)) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(wide)).unwrap_or(0);
    wide < long && inner & mask == outer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prefixes: &[&str], count_max: usize) -> Vec<String> {
        let parsed = prefixes.iter().map(|prefix| prefix.parse().unwrap());
        let few = aggregate(parsed, count_max);
        few.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn halves_become_a_whole() {
        let links = ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.128.0.0/23"];
        let few = ["10.128.0.0/23", "10.0.0.0/29", "10.0.0.8/30"];
        assert_eq!(of(&links, 10), few);
        assert_eq!(of(&["10.0.0.0/30", "10.0.0.0/24"], 10), ["10.0.0.0/24"]);
    }

    #[test]
    fn many_prefixes_are_widened_and_still_reach_all() {
        let links: Vec<String> = (0..400)
            .map(|n| format!("10.0.{}.{}/30", n / 25, n % 25 * 8))
            .collect();
        let words: Vec<&str> = links.iter().map(String::as_str).collect();
        let few = of(&words, 8);
        assert!(few.len() <= 8, "{few:?}");
        let parsed: Vec<InterfaceAddress> = few.iter().map(|text| text.parse().unwrap()).collect();
        let bits = |address: &InterfaceAddress| (address.bits(), address.address().to_bits());
        for link in &links {
            let link: InterfaceAddress = link.parse().unwrap();
            assert!(
                parsed
                    .iter()
                    .any(|candidate| covers(bits(candidate), bits(&link))),
                "{link}"
            );
        }
        assert!(!few.contains(&"0.0.0.0/0".to_owned()));
    }
}
