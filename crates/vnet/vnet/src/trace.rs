//! Traces the path from one node to another, hop by hop, and finds where frames are dropped.
//!
//! A trace sends ICMP echo requests (RFC 792) and watches all ports of the network meanwhile. The
//! last port that has seen a frame and the first that has not show which node or link lost it; the
//! counters of the link give the reason.

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
    AskedFor, EndDropped, EndSighting, PieceSeen, Refusals, Sought, Together, spot_of,
};
pub use self::sightings::{Sighting, Sightings};

/// What to trace: from which node, to where, and with how many echo requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceQuery {
    /// The node that sends echo requests.
    pub from: String,
    /// The node that answers, or an address, which may belong to a node on another host.
    pub to: String,
    /// Number of echo requests, 1 to 100.
    pub echoes: u32,
}

/// The path that the frames of a trace took, port by port, and where they were dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The node that sent echo requests.
    pub from: String,
    /// The node that should have answered.
    pub to: String,
    /// The address to which the requests were sent.
    pub address: Ipv4Addr,
    /// Number of echo requests sent.
    pub asked: u32,
    /// Number of echo replies received.
    pub answered: u32,
    /// The shortest round trip, ns; `None` if no reply came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// The ports that the network's routes lead over, and all others at which frames were seen, in
    /// the order of the path.
    pub places: Vec<Place>,
    /// Where frames were dropped and why, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// A link end where frames of a trace were expected or seen, with their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Whether the frames are echo requests or replies.
    #[serde(rename = "way")]
    pub direction: Direction,
    /// The end of the link, `NODE:INTERFACE`.
    pub end: String,
    /// Whether the node sends or receives the frames at this link end.
    pub act: Act,
    /// Number of the link to which this end belongs.
    pub link: u32,
    /// Side of the link, 0 or 1.
    pub side: usize,
    /// Number of frames of the trace seen at this link end.
    pub seen: u64,
    /// Time from the first echo request that the sending node emitted until the first frame of the
    /// trace at this link end, µs; `None` if no frame was seen, or on a host other than the sending
    /// node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_us: Option<u64>,
    /// Whether the routes of the network lead over this link end.
    pub is_expected: bool,
}

/// Direction of the frames of a trace: echo requests or replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The frames are echo requests.
    There,
    /// The frames are echo replies.
    Back,
}

/// Whether a node sends or receives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// The node sends the frame into the link.
    Sends,
    /// The node receives the frame from the link.
    Receives,
}

/// A link end with a direction, seen from the node there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Number of the link to which this end belongs.
    pub link: u32,
    /// Side of the link, 0 or 1.
    pub side: usize,
    /// Whether the node at this link end sends or receives the frame.
    pub act: Act,
}

/// How many echo requests were sent and answered, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echoes {
    /// Number of requests sent.
    pub asked: u32,
    /// Number of replies received.
    pub answered: u32,
    /// The shortest round trip; `None` if no reply came.
    pub rtt: Option<Duration>,
}

/// Combines the sightings of a trace into its result. `dropped` returns, for a link end, the drops
/// among the frames that its node has sent.
#[must_use]
pub fn trace_of(
    part: &HostPart,
    (from, to): (&str, &str),
    route: &Route,
    echoes: &Echoes,
    sightings: &Sightings,
    dropped: &dyn Fn(LinkEnd) -> Dropped,
) -> Trace {
    let places = places(part, &route.spots, sightings);
    let found = if echoes.answered < echoes.asked {
        findings(part, &places, sightings, dropped)
    } else {
        Vec::new()
    };
    Trace {
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

/// The IPv4 addresses of all interfaces of a node; empty if the part does not have the node.
#[must_use]
pub fn addresses_of(part: &HostPart, node: &str) -> Vec<Ipv4Addr> {
    let interfaces = part
        .node(node)
        .into_iter()
        .flat_map(|node| &node.interfaces);
    interfaces
        .map(|interface| interface.address.address())
        .collect()
}

/// The ports where frames were expected, and other ports where some were seen, in the order of the
/// path.
fn places(part: &HostPart, route: &[(Direction, Spot)], sightings: &Sightings) -> Vec<Place> {
    let place = |direction: Direction, spot: Spot, is_expected: bool| {
        let seen = sightings.at(direction, spot);
        Some(Place {
            direction,
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
        .filter_map(|(direction, spot)| place(*direction, *spot, true))
        .collect();
    for (direction, spot) in sightings.spots() {
        if !route.contains(&(direction, spot)) {
            all.extend(place(direction, spot, false));
        }
    }
    // Ports with the same time are in the order of the path. A port that saw nothing stays behind
    // the port that was expected before it.
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
        keyed.push((place.direction, at, place));
    }
    keyed.sort_by_key(|(direction, at, _)| (*direction, *at));
    keyed.into_iter().map(|(_, _, place)| place).collect()
}

/// The link end at a spot, as `NODE:INTERFACE`; `None` if the network has no such link end.
#[must_use]
pub fn end_of(part: &HostPart, spot: Spot) -> Option<String> {
    let link = part.link(spot.link)?;
    link.ends().nth(spot.side).map(ToString::to_string)
}

/// Longest time that the trace waits for an echo reply. If an ARP request is lost, a node repeats
/// it after one second, at most twice; the reply still comes within 3 s.
pub const ECHO: Duration = Duration::from_secs(3);
/// Largest number of echo requests of a trace.
pub const ECHOES_MAX: u32 = 100;
