//! A trace over nodes of several hosts. Each host watches its own ports, and a role that knows the
//! whole network combines what they have seen. All messages use names of the network: nodes,
//! interfaces and their addresses.
//!
//! The clocks of hosts differ. Times are those of the host of the sending node, and ports on other
//! hosts have none.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dropped::Dropped;
use super::expected::{NoRoute, Route, expected};
use super::sightings::{Sighting, Sightings};
use super::{Act, Direction, Echoes, Spot, Trace, TraceQuery, addresses_of, end_of, trace_of};
use crate::host_part::{EndPart, HostPart, LinkEnd};

/// What each host has to look for: echo requests and replies between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sought {
    /// The node that sends echo requests.
    pub from: String,
    /// The IPv4 addresses of the node that sends echo requests.
    pub own: Vec<Ipv4Addr>,
    /// The address to which the requests are sent.
    pub to: Ipv4Addr,
    /// Link ends on the expected path; hosts watch only these if they have too many ends to watch
    /// all.
    pub ends: Vec<String>,
}

/// The number of frames of a trace that a host has observed at a link end, in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndSighting {
    /// Whether the frames are echo requests or replies.
    #[serde(rename = "way")]
    pub direction: Direction,
    /// The link end, `NODE:INTERFACE`.
    pub end: String,
    /// Whether the node sends or receives the frames at this link end.
    pub act: Act,
    /// Number of frames seen at this end.
    pub frames: u64,
    /// Time from the first echo request that the sending node emitted until the first frame of the
    /// trace at this link end, µs; `None` on a host other than the sending node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_us: Option<u64>,
}

/// Number of ICMP errors of one type that one router has sent about packets of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusals {
    /// The ICMP type of the errors (RFC 792), such as 11 for "time exceeded".
    pub kind: u8,
    /// IPv4 address from which the router sent the errors.
    pub router: Ipv4Addr,
    /// Number of errors.
    pub count: u64,
}

/// ARP requests for one address that a node has sent at a link end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFor {
    /// The link end, `NODE:INTERFACE`.
    pub end: String,
    /// The address for which the node asked.
    pub address: Ipv4Addr,
    /// Number of requests.
    pub count: u64,
}

/// Frames that a host has dropped at a link end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndDropped {
    /// The link end, `NODE:INTERFACE`.
    pub end: String,
    /// Drops among the frames that the node there has sent.
    pub sent: Dropped,
    /// Drops among the frames that were sent to the node there.
    pub received: Dropped,
}

/// Counts of the frames of a trace that one host, or several hosts together, have observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PieceSeen {
    /// The number of echo requests and replies that the hosts observed: one entry for each link end
    /// and direction.
    pub sights: Vec<EndSighting>,
    /// The number of ICMP errors that routers sent: one entry for each router and ICMP type.
    pub refusals: Vec<Refusals>,
    /// The number of ARP requests that nodes sent: one entry for each link end and requested
    /// address.
    pub asked_for: Vec<AskedFor>,
    /// The number of frames that hosts dropped: one entry for each link end.
    pub dropped: Vec<EndDropped>,
}

/// A whole network, and the path that its routes lead from one node to another.
#[derive(Debug)]
pub struct Together {
    part: HostPart,
    route: Route,
    names: [String; 2],
}

impl PieceSeen {
    /// Adds the sightings of another host.
    pub fn add(&mut self, other: PieceSeen) {
        self.sights.extend(other.sights);
        self.refusals.extend(other.refusals);
        self.asked_for.extend(other.asked_for);
        self.dropped.extend(other.dropped);
    }
}

impl Together {
    /// The path between two nodes of a network. `part` must be the whole network, with both ends of
    /// every link.
    ///
    /// # Errors
    /// There is no such node, or no route leads there.
    pub fn of(part: HostPart, [from, to]: [&str; 2]) -> Result<Together, NoRoute> {
        let route = expected(&part, from, to)?;
        Ok(Together {
            part,
            route,
            names: [from.to_owned(), to.to_owned()],
        })
    }

    /// The address to which echo requests are sent.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.route.address
    }

    /// The order for every host: which frames to look for, and at which link ends.
    #[must_use]
    pub fn sought(&self) -> Sought {
        let spots = self.route.spots.iter();
        let mut ends: Vec<String> = spots
            .filter_map(|(_, spot)| end_of(&self.part, *spot))
            .collect();
        ends.sort();
        ends.dedup();
        Sought {
            from: self.names[0].clone(),
            own: addresses_of(&self.part, &self.names[0]),
            to: self.route.address,
            ends,
        }
    }

    /// The result of a trace of `query.echoes` echo requests. `seen` is what all hosts have seen of
    /// the trace; `rtts` has the round-trip time of each request that was answered.
    #[must_use]
    pub fn trace(&self, query: &TraceQuery, rtts: &[Duration], seen: &PieceSeen) -> Trace {
        let mut sightings = Sightings::default();
        for sight in &seen.sights {
            // An end that the network does not have is ignored.
            if let Some((link, side)) = spot_of(&self.part, &sight.end) {
                let spot = Spot {
                    link,
                    side,
                    act: sight.act,
                };
                let (frames, after_us) = (sight.frames, sight.after_us);
                sightings.add(sight.direction, spot, Sighting { frames, after_us });
            }
        }
        for refusal in &seen.refusals {
            let sum = sightings
                .errors
                .entry((refusal.kind, refusal.router))
                .or_default();
            *sum = sum.saturating_add(refusal.count);
        }
        for request in &seen.asked_for {
            if let Some((link, side)) = spot_of(&self.part, &request.end) {
                let act = Act::Sends;
                let key = (Spot { link, side, act }, request.address);
                sightings.asked_for.insert(key, request.count);
            }
        }
        let dropped = |near: LinkEnd| {
            let far = (near.0, 1 - near.1);
            let at = |end: LinkEnd| {
                let mut all = seen.dropped.iter();
                all.find(move |candidate| spot_of(&self.part, &candidate.end) == Some(end))
            };
            let sent = at(near).map_or(Dropped::default(), |count| count.sent);
            let received = at(far).map_or(Dropped::default(), |count| count.received);
            sent.and(received)
        };
        let echoes = Echoes {
            asked: query.echoes,
            answered: u32::try_from(rtts.len()).unwrap_or(u32::MAX),
            rtt: rtts.iter().min().copied(),
        };
        let names = (&*query.from, &*query.to);
        trace_of(
            &self.part,
            names,
            &self.route,
            &echoes,
            &sightings,
            &dropped,
        )
    }
}

/// The link and side of an end `NODE:INTERFACE`; `None` if there is no such end.
#[must_use]
pub fn spot_of(part: &HostPart, end: &str) -> Option<LinkEnd> {
    let (node, interface) = end.split_once(':')?;
    let interface = part.node(node)?.interface(interface)?;
    let link = part.link(interface.link)?;
    let is_this = |part: &EndPart| part.node == node && part.interface == interface.name;
    let side = link.ends().position(is_this)?;
    Some((link.number, side))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::test_part::part;

    fn sight(direction: Direction, end: &str, act: Act, frames: u64) -> EndSighting {
        EndSighting {
            direction,
            end: end.to_owned(),
            act,
            frames,
            after_us: None,
        }
    }

    fn query(from: &str, to: &str) -> TraceQuery {
        TraceQuery {
            from: from.to_owned(),
            to: to.to_owned(),
            echoes: 3,
        }
    }

    #[test]
    fn place_of_a_drop_is_found_over_several_hosts() {
        let together = Together::of(part(&["a b", "b c"]), ["a", "c"]).unwrap();
        let sought = together.sought();
        assert_eq!(sought.ends, ["a:eth0", "b:eth0", "b:eth1", "c:eth0"]);
        // What each host has seen: the host of c lost all frames of the link from b to c.
        let request = Direction::There;
        let mut seen = PieceSeen {
            sights: vec![sight(request, "a:eth0", Act::Sends, 3)],
            ..PieceSeen::default()
        };
        seen.add(PieceSeen {
            sights: vec![
                sight(request, "b:eth0", Act::Receives, 3),
                sight(request, "b:eth1", Act::Sends, 3),
                sight(request, "stranger:eth0", Act::Sends, 9),
            ],
            ..PieceSeen::default()
        });
        let room = 3;
        seen.add(PieceSeen {
            dropped: vec![EndDropped {
                end: "c:eth0".into(),
                sent: Dropped::default(),
                received: Dropped {
                    room,
                    ..Dropped::default()
                },
            }],
            ..PieceSeen::default()
        });
        let trace = together.trace(&query("a", "c"), &[], &seen);
        assert_eq!((trace.asked, trace.answered), (3, 0));
        let places: Vec<(&str, u64)> = trace
            .places
            .iter()
            .map(|place| (&*place.end, place.seen))
            .collect();
        assert_eq!(
            places[..4],
            [("a:eth0", 3), ("b:eth0", 3), ("b:eth1", 3), ("c:eth0", 0)]
        );
        assert_eq!(
            trace.findings,
            [
                "link 1 (b:eth1 -- c:eth0) delivers 0 of 3; dropped in this time: 3 because a \
                 queue was full"
            ]
        );
    }

    #[test]
    fn trace_whose_echoes_are_answered_has_no_finding() {
        let together = Together::of(part(&["a b"]), ["a", "b"]).unwrap();
        let rtts = [3, 1, 2].map(Duration::from_millis);
        let trace = together.trace(&query("a", "b"), &rtts, &PieceSeen::default());
        assert_eq!((trace.answered, trace.rtt_ns), (3, Some(1_000_000)));
        assert!(trace.findings.is_empty());
    }
}
