//! Compares a network that is ready with its document.

use std::collections::BTreeMap;

use carina_vnet::document::Document;
use carina_vnet::host_part::{Far, HostPart, VnetId};

use super::host::{PlayedHost, is_whole};

/// The first difference between what hosts have of a network and its document; `None` if there is
/// none.
pub(super) fn difference(
    document: &Document,
    vnet: VnetId,
    hosts: &[PlayedHost],
) -> Option<String> {
    let parts = hosts.iter();
    let parts = parts.filter_map(|host| Some((host, &host.parts.get(&vnet)?.0)));
    let parts: Vec<(&PlayedHost, &HostPart)> = parts.collect();
    let difference = nodes(document, &parts).or_else(|| links(document, &parts, hosts));
    difference.map(|what| format!("{} is ready, but {what}", document.vnet.name))
}

type Parts<'a> = [(&'a PlayedHost, &'a HostPart)];

fn nodes(document: &Document, parts: &Parts<'_>) -> Option<String> {
    let mut places: BTreeMap<&str, &PlayedHost> = BTreeMap::new();
    for (host, part) in parts {
        for node in &part.nodes {
            let name = node.name.as_str();
            let Some(wanted) = document.resolved(name) else {
                return Some(format!("no operator wants its node {name}"));
            };
            let owns = &host.owns;
            let is_right = (node.cpus, node.memory_mib, node.kind)
                == (wanted.cpus, wanted.memory, wanted.kind);
            let is_located = wanted.location.is_empty() || wanted.location.contains(&owns.location);
            let mut labels = wanted.labels.iter();
            let is_fit = labels.all(|(key, value)| owns.labels.get(key) == Some(value));
            if places.insert(name, host).is_some() || !(is_right && is_located && is_fit) {
                return Some(format!("{node:?} on {owns:?} should be {wanted:?}"));
            }
        }
    }
    document.node.iter().find_map(|(name, node)| {
        let Some(host) = places.get(name.as_str()) else {
            return Some(format!("node {name} is nowhere"));
        };
        let mut others = node.apart_from.iter();
        let is_shared = |other: &&String| {
            let other_host = places.get(other.as_str());
            other_host.is_some_and(|other_host| other_host.name == host.name)
        };
        let other = others.find(is_shared)?;
        Some(format!("nodes {name} and {other} share {}", host.name))
    })
}

/// Checks that each link exists once, between the right nodes, with its rate and carrier, and that
/// its two ends name each other. Returns the difference; `None` if the two agree.
fn links(document: &Document, parts: &Parts<'_>, hosts: &[PlayedHost]) -> Option<String> {
    let find = |name: &str| hosts.iter().find(|host| host.name == name);
    let mut found: BTreeMap<u32, (Vec<&str>, String)> = BTreeMap::new();
    for (host, part) in parts {
        // A network card of a host is not a link of the document.
        let links = part.links.iter();
        for link in links.filter(|link| !matches!(link.far, Far::Nic(_))) {
            let kind = format!("{:?} {:?}", link.rate, link.carrier);
            let (ends, _) = found.entry(link.number).or_insert((Vec::new(), kind));
            ends.push(&link.near.node);
            match &link.far {
                Far::Here(far) => ends.push(&far.node),
                // The simulated operators request no access points.
                Far::Users(_) | Far::Nic(_) => {
                    return Some(format!("link {} has users", link.number));
                }
                Far::Host(_) if is_whole(find, &host.name, part.vnet, link) => {}
                Far::Host(_) => return Some(format!("link {} is not whole", link.number)),
            }
        }
    }
    let found = found.into_values();
    let mut found: Vec<(Vec<&str>, String)> = found
        .map(|(mut ends, kind)| {
            ends.sort_unstable();
            (ends, kind)
        })
        .collect();
    let wanted = document.link.iter().map(|link| {
        let mut ends = link.ends.each_ref().map(|end| end.node.as_str());
        ends.sort_unstable();
        let kind = format!("{:?} {:?}", link.rate, link.carrier);
        (ends.to_vec(), kind)
    });
    let mut wanted: Vec<(Vec<&str>, String)> = wanted.collect();
    found.sort_unstable();
    wanted.sort_unstable();
    (found != wanted).then(|| format!("its links are {found:?}, and should be {wanted:?}"))
}
