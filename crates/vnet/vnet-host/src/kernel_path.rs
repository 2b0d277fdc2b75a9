//! The kernel's own path for links between two namespaces of this host: filters of `tc` move each
//! frame from the port at one end of a link to the port at the other end, without the engine.
//!
//! ```text
//!   node a                    namespace of ports                    node b
//!   +------+      +-------------------------------------+      +------+
//!   | eth0 |-veth-| l0.0: clsact ingress, u32, mirred --|-veth-| eth0 |
//!   +------+      |                      `--> l0.1: tbf |      +------+
//!                 +-------------------------------------+
//! ```
//!
//! Each filter names one other port, so that frames of a link reach nothing but its two nodes. A
//! port whose filters were made outlasts the agent: the next agent finds them ([`found`]) and
//! leaves them in place.

use std::collections::{BTreeMap, BTreeSet};

use carina_namespaces::NamespaceAccess;
use carina_vnet::document::Rate;
use carina_vnet::host_part::{Far, HostPart, LinkPart};
use carina_vnet::impairment::Impairments;
use serde::Deserialize;

use crate::error::Result;
use crate::impairment;
use crate::names::port;
use crate::namespace::change_existing_ports;
use crate::rtnetlink::{PortChange, PortRequest};

/// The links that can use the kernel's path while nothing impairs them, by number: both ends are
/// namespaces, the rate is at least [`RATE_MIN`], and the document does not want the engine. Both
/// ends must use their first ports, which the requests name.
pub(crate) fn possible(part: &HostPart) -> BTreeSet<u32> {
    let nodes = part.nodes.iter();
    let namespaces = nodes.filter(|node| node.kind.has_namespace());
    let namespaces: BTreeSet<&str> = namespaces.map(|node| node.name.as_str()).collect();
    let is_possible = |link: &&LinkPart| {
        let mut ends = link.ends();
        matches!(link.far, Far::Here(_))
            && link.rate.bps() >= RATE_MIN
            && link.path.is_auto()
            && ends.all(|end| namespaces.contains(end.node.as_str()))
    };
    let links = part.links.iter().filter(is_possible);
    links.map(|link| link.number).collect()
}

/// The links of a part that nothing impairs, by number.
pub(crate) fn plain(part: &HostPart, impairments: &Impairments) -> BTreeSet<u32> {
    let is_plain = |link: &&LinkPart| impairment::of_link(link, impairments).is_none();
    let links = part.links.iter().filter(is_plain);
    links.map(|link| link.number).collect()
}

/// Whether a link of this rate on the kernel's path needs a limit.
pub(crate) fn needs_limit(rate: Rate) -> bool {
    (RATE_MIN..=LIMIT_MAX).contains(&rate.bps())
}

/// The requests that prepare the ports of a link for filters. What they make stays as long as the
/// ports, because Linux drops frames while it is added or removed.
pub(crate) fn preparation(link: u32) -> [PortRequest; 2] {
    [0, 1].map(|side| request(link, side, PortChange::Prepare))
}

/// The requests for the filters that redirect the frames of a link.
pub(crate) fn filters(link: u32) -> [PortRequest; 2] {
    [0, 1].map(|side| {
        let to = port(link, 1 - side);
        request(link, side, PortChange::Redirect { to })
    })
}

/// The requests that limit the frames of a link, or change its limit. A limit is never removed
/// while its port exists, because Linux would drop frames meanwhile: beyond what is limited, it
/// gets the largest rate.
pub(crate) fn limits(link: u32, rate: Rate) -> [PortRequest; 2] {
    let bps = rate.bps().min(LIMIT_MAX);
    let (burst, queue) = bucket_of(bps);
    [0, 1].map(|side| request(link, side, PortChange::Limit { bps, burst, queue }))
}

fn request(link: u32, side: usize, change: PortChange) -> PortRequest {
    PortRequest {
        port: port(link, side),
        change,
    }
}

/// Removes the filters of links. Ports that do not exist any more are skipped.
pub(crate) fn leave(namespace: &str, links: impl Iterator<Item = u32>) -> Result<()> {
    let ends = links.flat_map(|link| [(link, 0), (link, 1)]);
    let requests: Vec<PortRequest> = ends
        .map(|(link, side)| request(link, side, PortChange::RemoveFilters))
        .collect();
    if requests.is_empty() {
        return Ok(());
    }
    // The kernel refuses to remove a filter that does not exist.
    change_existing_ports(namespace, &requests)
}

/// The links of a part whose frames filters redirect, in the namespace of the ports. Removes what
/// a killed agent had begun to make of a link's filters.
pub(crate) fn found(namespace: &str, part: &HostPart) -> Result<BTreeSet<u32>> {
    let links = part.links.iter();
    let links = links.filter(|link| matches!(link.far, Far::Here(_)));
    let ends = links.flat_map(|link| [0, 1].map(|side| port(link.number, side)));
    let lines: Vec<String> = ends
        .map(|port| format!("filter show dev {port} ingress"))
        .collect();
    if lines.is_empty() {
        return Ok(BTreeSet::new());
    }
    let shown = NamespaceAccess::of_root().tc_lines(namespace, &lines)?;
    let redirected = redirected(&shown);
    let is_whole = |(link, sides): (&u32, &usize)| (*sides == 2).then_some(*link);
    let whole: BTreeSet<u32> = redirected.iter().filter_map(is_whole).collect();
    let begun = redirected.into_keys().filter(|link| !whole.contains(link));
    leave(namespace, begun)?;
    Ok(whole)
}

/// The links to whose ports filters redirect frames, with the numbers of these ports, in the output
/// of `tc filter show`.
fn redirected(shown: &str) -> BTreeMap<u32, usize> {
    // A line of output: `action order 1: mirred (Egress Redirect to device l0.1) stolen`
    let of_line = |line: &str| -> Option<u32> {
        let (_, rest) = line.split_once("Redirect to device l")?;
        let (link, _) = rest.split_once('.')?;
        link.parse().ok()
    };
    let mut all = BTreeMap::new();
    for link in shown.lines().filter_map(of_line) {
        *all.entry(link).or_default() += 1;
    }
    all
}

/// The links whose ports have limits, in the namespace of the ports.
pub(crate) fn limited(namespace: &str) -> Result<BTreeSet<u32>> {
    let ports = dropped_by_limits(namespace)?;
    let link = |port: &String| port.strip_prefix('l')?.split('.').next()?.parse().ok();
    Ok(ports.keys().filter_map(link).collect())
}

/// Frames that the limits of ports have dropped, by port. Ports without a limit are left out.
pub(crate) fn dropped_by_limits(namespace: &str) -> Result<BTreeMap<String, u64>> {
    let words = ["-n", namespace, "-s", "-j", "qdisc", "show"];
    let shown = NamespaceAccess::of_root().tc(&words)?;
    let all: Vec<Discipline> = serde_json::from_str(&shown).unwrap_or_default();
    let limits = all.into_iter().filter(|candidate| candidate.kind == "tbf");
    Ok(limits.map(|limit| (limit.dev, limit.drops)).collect())
}

/// A queueing discipline in the output of `tc -s -j qdisc show`.
#[derive(Deserialize)]
struct Discipline {
    kind: String,
    #[serde(default)]
    dev: String,
    #[serde(default)]
    drops: u64,
}

/// The burst and the longest queue of a limit of at most [`LIMIT_MAX`], in bytes.
fn bucket_of(bps: u64) -> (u32, u32) {
    let bytes_per_ms = u32::try_from(bps / 8000).unwrap_or(u32::MAX);
    let burst = BURST_MIN.max(bytes_per_ms / 4);
    let queue = bytes_per_ms.saturating_mul(QUEUE_MS);
    (burst, queue.max(burst.saturating_mul(2)))
}

/// Least rate of a link on the kernel's path, in bits a second. At lower rates the queue of the
/// kernel's token bucket takes longer than that of the engine's shaper.
pub(crate) const RATE_MIN: u64 = 1_000_000_000;
/// Largest rate that is limited on the kernel's path, in bits a second; the kernel reaches no
/// higher one.
const LIMIT_MAX: u64 = 100_000_000_000;
/// Two frames of TCP before its segmentation, so that they pass unsegmented.
const BURST_MIN: u32 = 128 << 10;
/// Longest time that a frame waits in the queue of a limit.
const QUEUE_MS: u32 = 5;

#[cfg(test)]
mod tests {
    use carina_vnet::document::{Kind, PathChoice};
    use carina_vnet::impairment::{Impairment, LinkImpairment};

    use super::*;
    use crate::steps::tests::part;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn only_fast_plain_links_between_namespaces_are_suitable() {
        let mut part = part(&["a b", "b c", "a c", "a b"]);
        let rates = ["1Gbps", "10Gbps", "1000Gbps", "999Mbps"];
        for (link, text) in part.links.iter_mut().zip(rates) {
            link.rate = rate(text);
        }
        assert_eq!(possible(&part), [0, 1, 2].into());
        let limited = part.links.iter().map(|link| needs_limit(link.rate));
        assert_eq!(limited.collect::<Vec<_>>(), [true, true, false, false]);
        let delay = Impairment {
            delay: "1ms".parse().ok(),
            ..Impairment::default()
        };
        let impaired = LinkImpairment {
            there: None,
            back: Some(delay),
        };
        assert_eq!(plain(&part, &[(1, impaired)].into()), [0, 2, 3].into());
        part.nodes[2].kind = Kind::Vm;
        assert_eq!(possible(&part), [0].into());
        part.links[0].path = PathChoice::Engine;
        assert_eq!(possible(&part), BTreeSet::new());
    }

    #[test]
    fn frames_of_a_link_are_redirected_to_its_other_end_alone() {
        let lines = filters(7).map(|request| request.to_string());
        for (side, other) in [(0, 1), (1, 0)] {
            let of_port = format!("dev l7.{side} ingress");
            let mut filters = lines.iter().filter(|line| line.contains(&of_port));
            let filter = filters.next().unwrap();
            assert!(
                filter.ends_with(&format!("redirect dev l7.{other}")),
                "{filter}"
            );
            assert!(filters.next().is_none(), "{lines:?}");
        }
        let limited = limits(7, rate("10Gbps"));
        assert_eq!(
            limited[1].to_string(),
            "qdisc replace dev l7.1 root tbf rate 10000000000bit burst 312500 limit 6250000"
        );
        let highest = limits(7, rate("1000Gbps"));
        assert_eq!(highest, limits(7, rate("100Gbps")));
    }

    #[test]
    fn queue_of_a_limit_is_bounded_in_time() {
        assert_eq!(bucket_of(1_000_000_000), (131_072, 625_000));
        assert_eq!(bucket_of(LIMIT_MAX), (3_125_000, 62_500_000));
    }

    #[test]
    fn links_with_filters_are_read_from_what_tc_shows() {
        let shown = "filter protocol all pref 1 u32 chain 0 fh 800: ht divisor 1 \n  match \
                     00000000/00000000 at 0\n\taction order 1: mirred (Egress Redirect to device \
                     l12.1) stolen\n\tindex 1 ref 1 bind 1\n\taction order 1: mirred (Egress \
                     Redirect to device l3.0) stolen\n\taction order 1: mirred (Egress \
                     Redirect to device l3.1) stolen\n\taction order 1: mirred (Egress Redirect \
                     to device eth0) stolen\n";
        assert_eq!(redirected(shown), [(3, 2), (12, 1)].into());
        assert_eq!(redirected(""), BTreeMap::new());
    }
}
