//! Checks the addresses that a document gives its links.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::limits::{MTU, MTU6_MIN};
use super::{Carrier, Document, Fault, InterfaceAddress, InterfaceAddress6, Link};

impl Link {
    /// Checks the addresses and the MTU of the link by themselves.
    ///
    /// # Errors
    /// The first value that no link can have.
    pub fn check_addresses(&self) -> Result<(), Fault> {
        if let Some(pair) = self.addresses {
            check_pair(pair.map(InterfaceAddress::prefix), pair, is_of_host)?;
        }
        if let Some(pair) = self.addresses6 {
            check_pair(pair.map(InterfaceAddress6::prefix), pair, is_of_host6)?;
            if self.carrier == Carrier::Ipip {
                return Err(Fault::NoIpv6);
            }
        }
        self.check_mtu()
    }

    fn check_mtu(&self) -> Result<(), Fault> {
        let Some(mtu) = self.mtu else {
            return Ok(());
        };
        let min = match self.addresses6 {
            Some(_) => MTU6_MIN,
            None => *MTU.start(),
        };
        let max = match self.carrier {
            Carrier::Dif => Carrier::Dif.mtu(),
            Carrier::Ipip | Carrier::Gre | Carrier::Vxlan => *MTU.end(),
        };
        if (min..=max).contains(&mtu) {
            return Ok(());
        }
        Err(Fault::Range {
            what: "mtu",
            value: mtu.into(),
            min: min.into(),
            max: max.into(),
        })
    }
}

fn check_pair<T: Copy + PartialEq + ToString>(
    prefixes: [T; 2],
    pair: [T; 2],
    is_of_host: fn(T) -> bool,
) -> Result<(), Fault> {
    if let Some(address) = pair.into_iter().find(|candidate| !is_of_host(*candidate)) {
        return Err(Fault::NoHostAddress(address.to_string()));
    }
    if prefixes[0] != prefixes[1] || pair[0] == pair[1] {
        let addresses = pair.map(|pair| pair.to_string());
        return Err(Fault::NotOnePrefix(addresses));
    }
    Ok(())
}

/// Whether an interface can have this address: a unicast address that is not the first or the last
/// of its prefix.
fn is_of_host(interface: InterfaceAddress) -> bool {
    let address = interface.address();
    let is_unicast = !(address.is_multicast()
        || address.is_loopback()
        || address.octets()[0] == 0
        || address.octets()[0] >= 240);
    let host_bits = u32::MAX
        .checked_shr(interface.bits().into())
        .unwrap_or_default();
    let host = address.to_bits() & host_bits;
    is_unicast
        && interface.bits() > 0
        && (interface.bits() >= 31 || (host != 0 && host != host_bits))
}

fn is_of_host6(interface: InterfaceAddress6) -> bool {
    let address = interface.address();
    let is_unicast = !(address.is_multicast()
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_unicast_link_local());
    is_unicast && interface.bits() > 0
}

impl Document {
    /// Links whose prefixes overlap those of other links, or ranges from which other addresses of
    /// the network are taken: the number of the link, from 0, and the fault.
    #[must_use]
    pub fn check_prefixes(&self) -> Vec<(usize, Fault)> {
        overlaps(self)
    }
}

fn overlaps(document: &Document) -> Vec<(usize, Fault)> {
    // The links of a segment share a prefix, which the first of them stands for.
    let segments = document.segments().into_iter();
    let others: BTreeSet<usize> = segments
        .flat_map(|segment| segment.links.into_iter().skip(1))
        .collect();
    let links = || {
        let all = document.link.iter().enumerate();
        all.filter(|(number, _)| !others.contains(number))
    };
    let prefixes = links().filter_map(|(number, link)| {
        let prefix = link.addresses?[0].prefix();
        let first = u128::from(prefix.address().to_bits());
        let size = 1_u128 << (32 - u32::from(prefix.bits()));
        Some((first, first + size - 1, number))
    });
    let mut faults = overlapping(prefixes.collect());
    let prefixes6 = links().filter_map(|(number, link)| {
        let prefix = link.addresses6?[0].prefix();
        let first = prefix.address().to_bits();
        let host_bits = u128::MAX
            .checked_shr(prefix.bits().into())
            .unwrap_or_default();
        Some((first, first | host_bits, number))
    });
    faults.extend(overlapping(prefixes6.collect()));
    faults.extend(of_layout(document));
    faults.sort_by_key(|(number, _)| *number);
    faults
}

/// Overlaps among ranges of addresses, each with the number of its link. Of two prefixes that
/// overlap one contains the other.
fn overlapping(mut ranges: Vec<(u128, u128, usize)>) -> Vec<(usize, Fault)> {
    ranges.sort_by_key(|(first, last, number)| (*first, u128::MAX - last, *number));
    let mut outer: Option<(u128, usize)> = None;
    let mut faults = Vec::new();
    for (first, last, number) in ranges {
        match outer {
            Some((end, other)) if first <= end => {
                let (later, earlier) = (number.max(other), number.min(other));
                faults.push((later, Fault::PrefixTaken(earlier + 1)));
            }
            _ => outer = Some((last, number)),
        }
    }
    faults
}

/// Links with addresses in a prefix from which the layout of the network takes addresses itself.
fn of_layout(document: &Document) -> Vec<(usize, Fault)> {
    let has_cards = |name: &String| {
        document
            .resolved(name)
            .is_some_and(|node| node.nics.count > 0)
    };
    let reserved = [
        (
            document
                .link
                .iter()
                .any(|candidate| candidate.addresses.is_none()),
            [10, 0, 0, 0],
            17,
            "links without addresses",
        ),
        (
            document.node.keys().any(|name| document.is_bridge(name)),
            [10, 64, 0, 0],
            10,
            "links of bridges",
        ),
        (
            !document.access.is_empty(),
            [10, 128, 0, 0],
            12,
            "access points",
        ),
        (
            document.node.keys().any(has_cards),
            [10, 160, 0, 0],
            14,
            "cards",
        ),
    ];
    let mut faults = Vec::new();
    for (_, first, bits, of) in reserved.into_iter().filter(|candidate| candidate.0) {
        let range = InterfaceAddress::new(Ipv4Addr::from(first), bits).expect("it is a prefix");
        for (number, link) in document.link.iter().enumerate() {
            let Some([address, _]) = link.addresses else {
                continue;
            };
            if range.has(address.address()) || address.has(range.address()) {
                let range = range.to_string();
                faults.push((number, Fault::PrefixOfLayout { range, of }));
            }
        }
    }
    faults
}
