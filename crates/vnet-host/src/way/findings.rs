//! Where echos or answers were dropped, in words.

use std::net::Ipv4Addr;

use carina_engine::counter_file::Reading;
use carina_vnet::host_part::HostPart;

use super::watching::Sightings;
use super::{Act, Direction, Place};
use crate::names::{impair_app, rate_app};
use crate::second_ports::both_apps;

/// What was found: each place behind which fewer were seen than before it, and what routers said.
pub fn findings(
    part: &HostPart,
    places: &[Place],
    sightings: &Sightings,
    counters: (&[Reading], &[Reading]),
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
        found.push(match (before.act, before.way == after.way) {
            (Act::Sends, _) => {
                let link = format!("link {} ({} -- {})", before.link, before.end, after.end);
                let why = drops(before, after, counters);
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
        && last.way == Direction::Back
    {
        found.push("all has passed, but answers came too late".to_owned());
    }
    found
}

fn node(place: &Place) -> &str {
    place.end.split(':').next().unwrap_or_default()
}

/// Whether the node at a place has asked there for MAC addresses, so that nothing else goes out.
fn asks(place: &Place, sightings: &Sightings) -> String {
    let here = sightings.asked_for.iter();
    let here = here.filter(|((spot, _), _)| {
        spot.link == place.link && spot.side == place.side && place.act == Act::Sends
    });
    let addresses: Vec<String> = here.map(|((_, address), _)| address.to_string()).collect();
    match addresses.is_empty() {
        true => String::new(),
        false => format!(": it asks there who has {}", addresses.join(", ")),
    }
}

/// What the counters of a direction of a link have counted meanwhile.
fn drops(before: &Place, after: &Place, (old, new): (&[Reading], &[Reading])) -> String {
    let (side, far) = (before.side, after.side);
    let value = |all: &[Reading], name: &str| {
        let found = all.iter().find(|reading| reading.name == name);
        found.map_or(0, |reading| reading.value)
    };
    let more = |name: &str| value(new, name).saturating_sub(value(old, name));
    let (rate, impair) = (rate_app(before.link, side), impair_app(before.link, side));
    let [near_ports, far_ports] = [side, far].map(|side| both_apps((before.link, side)));
    let full: u64 = [&rate, &impair]
        .into_iter()
        .chain(&near_ports)
        .flat_map(|from| {
            let to = [&rate, &impair].into_iter().chain(&far_ports);
            to.map(move |to| format!("{from}.output -> {to}.input/drops"))
        })
        .map(|name| more(&name))
        .sum();
    let counts = [
        (more(&format!("{rate}/drop_rate")), "above its rate"),
        (more(&format!("{impair}/drop_loss")), "by its impairment"),
        (
            more(&format!("{impair}/drop_full")),
            "for which the impaired line had no room",
        ),
        (full, "for which there was no room"),
    ];
    let words: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("; dropped meanwhile: {}", words.join(", ")),
    }
}

/// The node that has an address.
fn owner(part: &HostPart, address: Ipv4Addr) -> String {
    let has = |node: &&carina_vnet::host_part::NodePart| {
        let mut interfaces = node.interfaces.iter();
        interfaces.any(|it| it.address.address() == address)
    };
    match part.nodes.iter().find(has) {
        Some(node) => format!("node {}", node.name),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    fn place(way: Direction, end: &str, act: Act, (link, side): (u32, usize), seen: u64) -> Place {
        Place {
            way,
            end: end.to_owned(),
            act,
            link,
            side,
            seen,
            after_us: None,
            is_expected: true,
        }
    }

    fn reading(name: &str, value: u64) -> Reading {
        Reading {
            name: name.to_owned(),
            changes: 1,
            value,
        }
    }

    #[test]
    fn drop_on_a_link_stands_with_its_counters() {
        let part = part(&["a b"]);
        let there = Direction::There;
        let places = [
            place(there, "a:eth0", Act::Sends, (0, 0), 5),
            place(there, "b:eth0", Act::Receives, (0, 1), 3),
            place(Direction::Back, "b:eth0", Act::Sends, (0, 1), 3),
            place(Direction::Back, "a:eth0", Act::Receives, (0, 0), 3),
        ];
        let old = [reading("l0-0-impair/drop_loss", 4)];
        let new = [
            reading("l0-0-impair/drop_loss", 6),
            reading("l0-0-rate/drop_rate", 0),
        ];
        let found = findings(&part, &places, &Sightings::default(), (&old, &new));
        assert_eq!(
            found,
            ["link 0 (a:eth0 -- b:eth0) delivers 3 of 5; dropped meanwhile: 2 by its impairment"]
        );
    }

    #[test]
    fn node_that_keeps_frames_is_named() {
        let part = part(&["a b", "b c"]);
        let there = Direction::There;
        let mut places = vec![
            place(there, "a:eth0", Act::Sends, (0, 0), 2),
            place(there, "b:eth0", Act::Receives, (0, 1), 2),
            place(there, "b:eth1", Act::Sends, (1, 0), 0),
        ];
        let found = |places: &[Place]| findings(&part, places, &Sightings::default(), (&[], &[]));
        assert_eq!(found(&places), ["node b passes on 0 of 2"]);
        places[2].way = Direction::Back;
        assert_eq!(found(&places), ["node b answers 0 of 2"]);
        places[0].seen = 0;
        places[1].seen = 0;
        assert_eq!(found(&places), ["a:eth0 sends nothing"]);
    }
}
