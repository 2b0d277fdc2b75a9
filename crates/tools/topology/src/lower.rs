//! Adapts DIFs to the links below them: the longest PDU, and the member with which each member
//! enrolls.

use std::collections::{BTreeMap, BTreeSet};

use carina_api::control::Dialect;

use super::token::error_at;
use super::{Dif, Link, Member, Topology, TopologyError};

/// Adapts the DIFs to the links below them.
///
/// # Errors
/// A UDP link cannot carry the DIFs above it.
pub(crate) fn fit_to_links(topology: &mut Topology) -> Result<(), TopologyError> {
    let longest = topology.links.iter().map(longest_sdu).collect();
    let over_udp = topology.links.iter().filter(|link| link.is_udp());
    let over_udp: BTreeSet<String> = over_udp.map(|link| link.name.clone()).collect();
    for dif in &mut topology.difs {
        fit_pdus(dif, &longest);
        find_admitters(dif, &over_udp);
    }
    check_framing(topology, &over_udp)
}

/// The name of a link, and the longest SDU that its shim accepts, in bytes.
fn longest_sdu(link: &Link) -> (String, u32) {
    let heads = if link.is_udp() { UDP_HEADS } else { 0 };
    (link.name.clone(), link.mtu.unwrap_or(MTU) - heads)
}

/// For each member that shares only UDP links with earlier ones: sets the member with which it
/// enrolls.
fn find_admitters(dif: &mut Dif, over_udp: &BTreeSet<String>) {
    for place in 1..dif.members.len() {
        let (before, rest) = dif.members.split_at_mut(place);
        let member = &mut rest[0];
        let meets = |other: &Member, udp: bool| {
            let mut shared = other.over.iter().filter(|dif| member.over.contains(dif));
            shared.any(|dif| over_udp.contains(dif) == udp)
        };
        if before.iter().any(|other| meets(other, false)) {
            continue;
        }
        let admitter = before.iter().find(|other| meets(other, true));
        member.via = admitter.map(|other| other.system.clone());
    }
}

/// Refuses DIFs of different dialects on one UDP link, because a datagram does not name its DIF.
fn check_framing(topology: &Topology, over_udp: &BTreeSet<String>) -> Result<(), TopologyError> {
    for link in over_udp {
        let above = topology.difs.iter().filter(|dif| dif.stands_on(link));
        let above: Vec<&Dif> = above.collect();
        if let [first, second, ..] = &above[..]
            && above.iter().any(|dif| dif.dialect != Dialect::Native)
        {
            return Err(error_at(
                second.at,
                format!(
                    "{} uses link {link}, which {} uses too; a link over UDP can carry only one \
                     DIF if a DIF has dialect rlite or irati",
                    second.name, first.name
                ),
            ));
        }
    }
    Ok(())
}

/// Limits the PDUs of a DIF that is above both links and DIFs that carry longer PDUs. Without this
/// limit the DIF would use that of the N-1 flow to its first neighbour.
fn fit_pdus(dif: &mut Dif, longest: &BTreeMap<String, u32>) {
    let lowers = dif.members.iter().flat_map(|member| &member.over);
    let bounds: BTreeSet<Option<u32>> = lowers.map(|name| longest.get(name).copied()).collect();
    let Some(least) = bounds.iter().flatten().min() else {
        return;
    };
    if dif.dialect == Dialect::Irati && dif.config.max_pdu == 0 {
        // Members of this dialect do not learn the limit when they enroll; each has a fixed one.
        if *least < IRATI_PDU {
            dif.config.max_pdu = *least;
        }
        return;
    }
    if dif.config.max_pdu == 0 && bounds.len() > 1 {
        let is_protected = dif.config.policies.contains_key("sdu-protection");
        dif.config.max_pdu = least - if is_protected { PROTECTION_BYTES } else { 0 };
    }
}

/// Default length of the longest PDU in a DIF of dialect irati, in bytes.
const IRATI_PDU: u32 = 1470;

/// Bytes by which SDU protection may lengthen a PDU.
const PROTECTION_BYTES: u32 = 64;

/// Default MTU of an Ethernet interface in the kernel.
pub(crate) const MTU: u32 = 1500;
/// Bytes of headers that IP, UDP and the shim may add to an SDU.
pub(crate) const UDP_HEADS: u32 = 48;
