//! The way from a node to another, hop by hop, and where on it frames are dropped.
//!
//! Echos are sent (RFC 792) while all ports of the network are watched. Where an echo was seen, and
//! where no longer, says who has lost it; the counters of the link say why.

mod dropped;
mod expected;
mod findings;
mod pieces;
mod sightings;
#[cfg(test)]
mod test_part;

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::findings::findings;
use crate::host_part::{HostPart, LinkEnd};

pub use self::dropped::Dropped;
pub use self::expected::{NoRoute, Route, expected, expected_at};
pub use self::pieces::{
    AskedFor, EndDropped, PieceSeen, Refusals, Sight, Sought, Together, spot_of,
};
pub use self::sightings::{Sighting, Sightings};

/// What is wanted of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayQuery {
    /// The node that asks.
    pub from: String,
    /// The node that is asked; or an address of one, which may be on another host.
    pub to: String,
    /// How many echos, 1 to 100.
    pub echoes: u32,
}

/// The way from a node to another and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// The node that asked.
    pub from: String,
    /// The node that was asked.
    pub to: String,
    /// The address at which it was asked.
    pub address: Ipv4Addr,
    /// How often it was asked.
    pub asked: u32,
    /// How many answers came.
    pub answered: u32,
    /// The shortest round trip, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Where echos and answers were looked for, in the order in which they pass.
    pub places: Vec<Place>,
    /// Where they were dropped, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// A place on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// An echo on its way there, or an answer on its way back.
    pub way: Direction,
    /// The end of the link, `NODE:INTERFACE`.
    pub end: String,
    /// Whether the node there sends or receives.
    pub act: Act,
    /// The number of the link.
    pub link: u32,
    /// Which of its ends, 0 or 1.
    pub side: usize,
    /// Frames that were seen.
    pub seen: u64,
    /// From the first echo that the asking node sent until the first frame here, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_us: Option<u64>,
    /// Whether the routes of the network lead over it.
    pub is_expected: bool,
}

/// Echo or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// An echo request.
    There,
    /// An answer.
    Back,
}

/// What a node of the network does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// It gives it to the link.
    Sends,
    /// The link gives it to it.
    Receives,
}

/// A port of the network's graph, seen from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The number of the link.
    pub link: u32,
    /// Its side, 0 or 1.
    pub side: usize,
    /// Whether the node sends or receives there.
    pub act: Act,
}

/// What came of echos.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echoes {
    /// How many were sent.
    pub asked: u32,
    /// How many of them were answered.
    pub answered: u32,
    /// The shortest round trip.
    pub rtt: Option<Duration>,
}

/// The way with what was seen on it. `dropped` tells what was dropped of what an end has sent.
#[must_use]
pub fn way_of(
    part: &HostPart,
    (from, to): (&str, &str),
    route: &Route,
    echoes: &Echoes,
    sightings: &Sightings,
    dropped: &dyn Fn(LinkEnd) -> Dropped,
) -> Way {
    let places = places(part, &route.spots, sightings);
    let found = if echoes.answered < echoes.asked {
        findings(part, &places, sightings, dropped)
    } else {
        Vec::new()
    };
    Way {
        from: from.to_owned(),
        to: to.to_owned(),
        address: route.address,
        asked: echoes.asked,
        answered: echoes.answered,
        rtt_ns: echoes
            .rtt
            .and_then(|rtt| u64::try_from(rtt.as_nanos()).ok()),
        places,
        findings: found,
    }
}

/// The addresses of a node.
#[must_use]
pub fn addresses_of(part: &HostPart, node: &str) -> Vec<Ipv4Addr> {
    let interfaces = part.node(node).into_iter().flat_map(|it| &it.interfaces);
    interfaces.map(|it| it.address.address()).collect()
}

/// Where something was expected, and where else something was seen.
fn places(part: &HostPart, route: &[(Direction, Spot)], sightings: &Sightings) -> Vec<Place> {
    let place = |way: Direction, spot: Spot, is_expected: bool| {
        let seen = sightings.at(way, spot);
        Some(Place {
            way,
            end: end_of(part, spot)?,
            act: spot.act,
            link: spot.link,
            side: spot.side,
            seen: seen.frames,
            after_us: seen.after_us,
            is_expected,
        })
    };
    let mut all: Vec<Place> = route
        .iter()
        .filter_map(|(way, spot)| place(*way, *spot, true))
        .collect();
    for (way, spot) in sightings.spots() {
        if !route.contains(&(way, spot)) {
            all.extend(place(way, spot, false));
        }
    }
    // Those of one time are in the order of the way; what was not seen stays behind what was
    // expected before it.
    let mut latest = 0;
    let mut keyed: Vec<(Direction, u64, Place)> = Vec::new();
    for place in all {
        if place.is_expected {
            latest = place.after_us.unwrap_or(latest).max(latest);
        }
        let at = if place.is_expected {
            latest
        } else {
            place.after_us.unwrap_or(latest)
        };
        keyed.push((place.way, at, place));
    }
    keyed.sort_by_key(|(way, at, _)| (*way, *at));
    keyed.into_iter().map(|(_, _, place)| place).collect()
}

/// The end of a link at which a spot is.
#[must_use]
pub fn end_of(part: &HostPart, spot: Spot) -> Option<String> {
    let link = part.links.iter().find(|link| link.number == spot.link)?;
    link.ends().nth(spot.side).map(ToString::to_string)
}

/// How long an echo may take: a node whose first ARP request was lost asks again after a second,
/// and once more after another.
pub const ECHO: Duration = Duration::from_secs(3);
/// Echos of a trace at most.
pub const ECHOES_MAX: u32 = 100;
