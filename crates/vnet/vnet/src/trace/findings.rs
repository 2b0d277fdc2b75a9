//! Describes where echo requests or replies were dropped.

use std::net::Ipv4Addr;

use super::dropped::Dropped;
use super::sightings::Sightings;
use super::{Act, Direction, Place};
use crate::host_part::{HostPart, LinkEnd};

/// The findings of a trace as text: each expected port that saw fewer frames than the one before
/// it, and the ICMP errors that routers sent. `dropped` returns, for a link end, the drops among
/// the frames that it has sent meanwhile.
pub(super) fn findings(
    part: &HostPart,
    places: &[Place],
    sightings: &Sightings,
    dropped: &dyn Fn(LinkEnd) -> Dropped,
) -> Vec<String> {
    let mut found = Vec::new();
    let expected: Vec<&Place> = places.iter().filter(|place| place.is_expected).collect();
    if let Some(first) = expected.first().filter(|place| place.seen == 0) {
        found.push(format!(
            "{} sends nothing{}",
            first.end,
            asks(first, sightings)
        ));
    }
    for pair in expected.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if after.seen >= before.seen {
            continue;
        }
        let (had, left) = (before.seen, after.seen);
        found.push(match (before.act, before.direction == after.direction) {
            (Act::Sends, _) if before.end == after.end => {
                let far = part.link(before.link);
                let far = far.map_or_else(String::new, |link| link.far.to_string());
                let link = format!("link {} ({} -- {far})", before.link, before.end);
                let why = dropped((before.link, before.side));
                format!("{link} delivers {left} of {had} answers{why}")
            }
            (Act::Sends, _) => {
                let link = format!("link {} ({} -- {})", before.link, before.end, after.end);
                let why = dropped((before.link, before.side));
                format!("{link} delivers {left} of {had}{why}")
            }
            (Act::Receives, true) => {
                let asks = asks(after, sightings);
                format!("node {} passes on {left} of {had}{asks}", node(before))
            }
            (Act::Receives, false) => {
                let asks = asks(after, sightings);
                format!("node {} answers {left} of {had}{asks}", node(before))
            }
        });
    }
    for ((kind, address), count) in &sightings.errors {
        let what = match kind {
            11 => "the time to live of a packet has ended",
            _ => "the destination cannot be reached",
        };
        found.push(format!(
            "{} says {count} times: {what}",
            owner(part, *address)
        ));
    }
    let last = places.iter().rev().find(|place| place.is_expected);
    if let Some(last) = last
        && found.is_empty()
        && last.seen > 0
        && last.direction == Direction::Back
    {
        found.push("all packets passed, but answers arrived too late".to_owned());
    }
    found
}

fn node(place: &Place) -> &str {
    place.end.split(':').next().unwrap_or_default()
}

/// A note that the node at a port sends only ARP requests there, with the addresses; empty if it
/// sent none.
fn asks(place: &Place, sightings: &Sightings) -> String {
    let here = sightings.asked_for.iter();
    let here = here.filter(|((spot, _), _)| {
        spot.link == place.link && spot.side == place.side && place.act == Act::Sends
    });
    let addresses: Vec<String> = here.map(|((_, address), _)| address.to_string()).collect();
    if addresses.is_empty() {
        String::new()
    } else {
        format!(": it sends ARP requests for {} there", addresses.join(", "))
    }
}

/// The node that has an address, as text; the address itself if no node has it.
fn owner(part: &HostPart, address: Ipv4Addr) -> String {
    let has = |node: &&crate::host_part::NodePart| {
        let mut interfaces = node.interfaces.iter();
        interfaces.any(|interface| interface.address.address() == address)
    };
    match part.nodes.iter().find(has) {
        Some(node) => format!("node {}", node.name),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_part::{Far, FarHost};
    use crate::trace::test_part::part;

    fn place(
        direction: Direction,
        end: &str,
        act: Act,
        (link, side): (u32, usize),
        seen: u64,
    ) -> Place {
        Place {
            direction,
            end: end.to_owned(),
            act,
            link,
            side,
            seen,
            after_us: None,
            is_expected: true,
        }
    }

    #[test]
    fn drop_on_a_link_stands_with_its_counters() {
        let part = part(&["a b"]);
        let request = Direction::There;
        let places = [
            place(request, "a:eth0", Act::Sends, (0, 0), 5),
            place(request, "b:eth0", Act::Receives, (0, 1), 3),
            place(Direction::Back, "b:eth0", Act::Sends, (0, 1), 3),
            place(Direction::Back, "a:eth0", Act::Receives, (0, 0), 3),
        ];
        let dropped = |end: LinkEnd| {
            assert_eq!(end, (0, 0));
            Dropped {
                impairment: 2,
                ..Dropped::default()
            }
        };
        let found = findings(&part, &places, &Sightings::default(), &dropped);
        assert_eq!(
            found,
            [
                "link 0 (a:eth0 -- b:eth0) delivers 3 of 5; dropped in this time: 2 by its \
                 impairment"
            ]
        );
    }

    #[test]
    fn link_to_another_host_brings_back_what_its_flow_carries() {
        let mut part = part(&["a b dif"]);
        part.links[0].far = Far::Host(FarHost {
            host: "h2".to_owned(),
            local: Ipv4Addr::new(192, 0, 2, 1),
            remote: Ipv4Addr::new(192, 0, 2, 2),
        });
        let places = [
            place(Direction::There, "a:eth0", Act::Sends, (0, 0), 3),
            place(Direction::Back, "a:eth0", Act::Receives, (0, 0), 1),
        ];
        let dropped = |_: LinkEnd| Dropped {
            no_flow: 2,
            ..Dropped::default()
        };
        let found = findings(&part, &places, &Sightings::default(), &dropped);
        assert_eq!(
            found,
            [
                "link 0 (a:eth0 -- host h2) delivers 1 of 3 answers; dropped in this time: \
                 2 without a flow"
            ]
        );
    }

    #[test]
    fn node_that_keeps_frames_is_named() {
        let part = part(&["a b", "b c"]);
        let request = Direction::There;
        let mut places = vec![
            place(request, "a:eth0", Act::Sends, (0, 0), 2),
            place(request, "b:eth0", Act::Receives, (0, 1), 2),
            place(request, "b:eth1", Act::Sends, (1, 0), 0),
        ];
        let found = |places: &[Place]| {
            findings(&part, places, &Sightings::default(), &|_| {
                Dropped::default()
            })
        };
        assert_eq!(found(&places), ["node b passes on 0 of 2"]);
        places[2].direction = Direction::Back;
        assert_eq!(found(&places), ["node b answers 0 of 2"]);
        places[0].seen = 0;
        places[1].seen = 0;
        assert_eq!(found(&places), ["a:eth0 sends nothing"]);
    }
}
