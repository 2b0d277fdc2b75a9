//! Checks the far tunnel ends that a VNP names in a commitment.
//!
//! A provider cannot ask the other provider. It makes sure that the ends a VNP names conflict
//! neither with its own hosts nor with the network of another VNP.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::document::{Carrier, is_name};
use crate::host_part::{EndPart, VnetId};
use crate::message::{PartEnd, PartLink, Reason, ReasonCode, TunnelEnd};

use super::books::Books;
use super::inventory::Ground;
use super::placing::{Laid, TAG_MAX};

/// What must be unique among the tunnels of a host: its address, the other end's address, the
/// carrier, and the tag if the carrier has one.
type TunnelKey = (Ipv4Addr, Ipv4Addr, Carrier, Option<u32>);

/// Checks the far ends of a part before this PIP makes it.
///
/// # Errors
/// A far end is invalid. The text names the end of the operator's link, and nothing of the
/// substrate. The code is `Conflict` if another attempt may succeed, else `Impossible`.
pub(super) fn check(
    (ground, books): (&Ground, &Books),
    vnet: VnetId,
    laid: &Laid,
    far: &[(EndPart, TunnelEnd)],
) -> Result<(), Reason> {
    let mut taken: BTreeSet<TunnelKey> = BTreeSet::new();
    let others = books.all_made().filter(|(of, _)| *of != vnet);
    for made in others.map(|(_, made)| made) {
        taken.extend(keys(&made.laid, &made.far));
        taken.extend(made.previous.iter().flat_map(|old| keys(old, &made.far)));
    }
    let mut named = BTreeSet::new();
    for (near, end) in far {
        let impossible = |what: &str| {
            let words = format!("the far end of {near}: {what}");
            Err(Reason::new(ReasonCode::Impossible, words))
        };
        let Some(border) = laid.part.border_of(near) else {
            return impossible("no link leaves the provider there");
        };
        if !named.insert(near) {
            return impossible("it is given twice; a link has one far end");
        }
        if ground.has_address(end.address) {
            return impossible(
                "it is at a host of this provider; it must be at a host of the neighbouring \
                 provider",
            );
        }
        if !is_of_a_host(end.address) || !is_name(&end.host) {
            return impossible("no host has such a name or address");
        }
        if !ground.reaches(border, end.address) {
            return impossible("it is at none of the known addresses of the neighbouring provider");
        }
        if !(1..=TAG_MAX).contains(&end.tag) {
            return impossible("its tag must be 1 to 16777215");
        }
        let key = key(laid, near, end);
        if key.is_some_and(|key| !taken.insert(key)) {
            let words = format!(
                "the far end of {near}: another link has a tunnel with the same end addresses and \
                 tag; try again, which chooses another tag"
            );
            return Err(Reason::new(ReasonCode::Conflict, words));
        }
    }
    Ok(())
}

fn keys<'a>(
    laid: &'a Laid,
    far: &'a [(EndPart, TunnelEnd)],
) -> impl Iterator<Item = TunnelKey> + 'a {
    far.iter().filter_map(|(near, end)| key(laid, near, end))
}

fn key(laid: &Laid, near: &EndPart, end: &TunnelEnd) -> Option<TunnelKey> {
    let is_near = |end: &PartEnd| matches!(end, PartEnd::Node(node) if node == near);
    let links = laid.part.links.iter().zip(&laid.placement.tunnels);
    links.into_iter().find_map(|(link, tunnel)| {
        let side = link.ends.iter().position(is_near)?;
        Some((
            tunnel.outer[side]?,
            end.address,
            link.carrier,
            tag(link, end),
        ))
    })
}

fn tag(link: &PartLink, end: &TunnelEnd) -> Option<u32> {
    (link.carrier != Carrier::Ipip).then_some(end.tag)
}

/// Whether an address can belong to a single host on a network, and is not a loopback address.
fn is_of_a_host(address: Ipv4Addr) -> bool {
    let is_none = address.is_unspecified() || address.is_loopback();
    !is_none && !address.is_multicast() && !address.is_broadcast()
}
