//! A way over nodes of several hosts: each host watches the ports that it has, and one who knows
//! the whole network puts together what they have seen. All words are those of the network: nodes,
//! interfaces and their addresses.
//!
//! Clocks of hosts differ: times are those of the host that has the asking node, and places on
//! other hosts have none.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dropped::Dropped;
use super::expected::{NoRoute, Route, expected};
use super::sightings::{Sighting, Sightings};
use super::{Act, Direction, Echoes, Spot, Way, WayQuery, addresses_of, end_of, way_of};
use crate::host_part::{EndPart, HostPart, LinkEnd};

/// What is looked for: echos between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sought {
    /// The node that asks.
    pub from: String,
    /// Its addresses.
    pub own: Vec<Ipv4Addr>,
    /// The address that is asked.
    pub to: Ipv4Addr,
    /// Ends of links on the expected way, which are watched where there are too many for all.
    pub ends: Vec<String>,
}

/// What a host has seen at an end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sight {
    /// Echos or answers.
    pub way: Direction,
    /// The end, `NODE:INTERFACE`.
    pub end: String,
    /// What the node does there.
    pub act: Act,
    /// How many.
    pub frames: u64,
    /// From the first echo that the asking node sent until the first one here, µs; none on another
    /// host than the asking node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_us: Option<u64>,
}

/// What a router has said that it cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusals {
    /// The type of its message (RFC 792).
    pub kind: u8,
    /// Its address.
    pub router: Ipv4Addr,
    /// How often.
    pub count: u64,
}

/// MAC addresses that a node has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFor {
    /// Where, `NODE:INTERFACE`.
    pub end: String,
    /// Whose.
    pub address: Ipv4Addr,
    /// How often.
    pub count: u64,
}

/// What a host has dropped at an end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndDropped {
    /// The end.
    pub end: String,
    /// Of what its node has sent there.
    pub sent: Dropped,
    /// Of what was sent to it.
    pub received: Dropped,
}

/// What hosts have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PieceSeen {
    /// Echos and answers.
    pub sights: Vec<Sight>,
    /// What routers have said.
    pub refusals: Vec<Refusals>,
    /// MAC addresses that were asked for.
    pub asked_for: Vec<AskedFor>,
    /// What was dropped.
    pub dropped: Vec<EndDropped>,
}

/// A whole network, and the way that its routes lead from a node to another.
#[derive(Debug)]
pub struct Together {
    part: HostPart,
    route: Route,
    names: [String; 2],
}

impl PieceSeen {
    /// Adds what another host has seen.
    pub fn add(&mut self, other: PieceSeen) {
        self.sights.extend(other.sights);
        self.refusals.extend(other.refusals);
        self.asked_for.extend(other.asked_for);
        self.dropped.extend(other.dropped);
    }
}

impl Together {
    /// The way between two nodes of a network, all of whose links have both ends in `part`.
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

    /// The address that is asked.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.route.address
    }

    /// What hosts have to look for.
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

    /// The way, by what hosts have seen of `query.echoes` echos, of which `rtts` were answered.
    #[must_use]
    pub fn way(&self, query: &WayQuery, rtts: &[Duration], seen: &PieceSeen) -> Way {
        let mut sightings = Sightings::default();
        for sight in &seen.sights {
            // A host that names an end which there is not has seen nothing of this network.
            if let Some((link, side)) = spot_of(&self.part, &sight.end) {
                let spot = Spot {
                    link,
                    side,
                    act: sight.act,
                };
                let (frames, after_us) = (sight.frames, sight.after_us);
                sightings.add(sight.way, spot, Sighting { frames, after_us });
            }
        }
        for it in &seen.refusals {
            let sum = sightings.errors.entry((it.kind, it.router)).or_default();
            *sum = sum.saturating_add(it.count);
        }
        for it in &seen.asked_for {
            if let Some((link, side)) = spot_of(&self.part, &it.end) {
                let act = Act::Sends;
                let key = (Spot { link, side, act }, it.address);
                sightings.asked_for.insert(key, it.count);
            }
        }
        let dropped = |near: LinkEnd| {
            let far = (near.0, 1 - near.1);
            let at = |end: LinkEnd| {
                let mut all = seen.dropped.iter();
                all.find(move |it| spot_of(&self.part, &it.end) == Some(end))
            };
            let sent = at(near).map_or(Dropped::default(), |it| it.sent);
            let received = at(far).map_or(Dropped::default(), |it| it.received);
            sent.and(received)
        };
        let echoes = Echoes {
            asked: query.echoes,
            answered: u32::try_from(rtts.len()).unwrap_or(u32::MAX),
            rtt: rtts.iter().min().copied(),
        };
        let names = (&*query.from, &*query.to);
        way_of(
            &self.part,
            names,
            &self.route,
            &echoes,
            &sightings,
            &dropped,
        )
    }
}

/// The link and side of an end that is named `NODE:INTERFACE`.
#[must_use]
pub fn spot_of(part: &HostPart, end: &str) -> Option<LinkEnd> {
    let (node, interface) = end.split_once(':')?;
    let interface = part.node(node)?.interface(interface)?;
    let link = part.links.iter().find(|it| it.number == interface.link)?;
    let is_this = |it: &EndPart| it.node == node && it.interface == interface.name;
    let side = link.ends().position(is_this)?;
    Some((link.number, side))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::test_part::part;

    fn sight(way: Direction, end: &str, act: Act, frames: u64) -> Sight {
        Sight {
            way,
            end: end.to_owned(),
            act,
            frames,
            after_us: None,
        }
    }

    fn query(from: &str, to: &str) -> WayQuery {
        WayQuery {
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
        // What each host has seen; the link from b to c has lost all at c's host.
        let there = Direction::There;
        let mut seen = PieceSeen {
            sights: vec![sight(there, "a:eth0", Act::Sends, 3)],
            ..PieceSeen::default()
        };
        seen.add(PieceSeen {
            sights: vec![
                sight(there, "b:eth0", Act::Receives, 3),
                sight(there, "b:eth1", Act::Sends, 3),
                sight(there, "stranger:eth0", Act::Sends, 9),
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
        let way = together.way(&query("a", "c"), &[], &seen);
        assert_eq!((way.asked, way.answered), (3, 0));
        let places: Vec<(&str, u64)> = way.places.iter().map(|it| (&*it.end, it.seen)).collect();
        assert_eq!(
            places[..4],
            [("a:eth0", 3), ("b:eth0", 3), ("b:eth1", 3), ("c:eth0", 0)]
        );
        assert_eq!(
            way.findings,
            [
                "link 1 (b:eth1 -- c:eth0) delivers 0 of 3; dropped meanwhile: 3 for which there \
                 was no room"
            ]
        );
    }

    #[test]
    fn way_whose_echoes_are_answered_has_no_finding() {
        let together = Together::of(part(&["a b"]), ["a", "b"]).unwrap();
        let rtts = [3, 1, 2].map(Duration::from_millis);
        let way = together.way(&query("a", "b"), &rtts, &PieceSeen::default());
        assert_eq!((way.answered, way.rtt_ns), (3, Some(1_000_000)));
        assert!(way.findings.is_empty());
    }
}
