//! The end-to-end cases of Snabb's lwAFTR under the rules of `--as snabb`: the frames, and all
//! counters. The list of cases is `src/program/lwaftr/tests/end-to-end/test-data.sh` of Snabb
//! 2024.08; addresses, lengths and payloads are those of this test harness.

mod errors;
mod forwarding;
mod fragments;
mod own;

use std::collections::BTreeMap;

use carina_lwaftr::check::Ran;

use crate::harness::*;

/// The counters of the model, which Snabb also has.
const MODEL: &str = include_str!("../files/counters-of-the-model");

/// Asserts all counters of Snabb that are not 0, except those of memory: `NAME=VALUE`, or
/// `NAME=PACKETS/BYTES`.
pub(crate) fn assert_all(ran: &Ran, expected: &str) {
    let known: Vec<&str> = MODEL.lines().collect();
    let mut wanted = BTreeMap::new();
    for word in expected.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        let (packets, bytes) = match value.split_once('/') {
            Some((packets, bytes)) => (packets, Some(bytes)),
            None => (value, None),
        };
        let plural = format!("{name}-packets");
        match bytes {
            Some(bytes) => {
                wanted.insert(plural, packets.parse().unwrap());
                wanted.insert(format!("{name}-bytes"), bytes.parse::<u64>().unwrap());
            }
            None => {
                wanted.insert(name.to_owned(), packets.parse().unwrap());
            }
        }
    }
    for name in wanted.keys() {
        assert!(known.contains(&name.as_str()), "no counter {name}");
    }
    let counted = ran.counters.all().into_iter().filter(|(name, value)| {
        *value > 0 && known.contains(&name.as_str()) && !name.starts_with("memuse-")
    });
    assert_eq!(counted.collect::<BTreeMap<_, _>>(), wanted);
}

/// Asserts that no frame left.
pub(crate) fn assert_silent(ran: &Ran) {
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
}

/// The fields of an IPv4 header that ICMP errors and renumbering change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub tos: u8,
    pub id: u16,
    pub may_be_cut: bool,
    pub ttl: u8,
}

impl Head {
    pub(crate) fn of(packet: &[u8]) -> Head {
        Head {
            tos: packet[1],
            id: u16::from_be_bytes([packet[4], packet[5]]),
            may_be_cut: packet[6] & 0x40 == 0,
            ttl: packet[8],
        }
    }
}

/// The header of an ICMP error by Snabb's rules, with this TTL.
pub(crate) fn of_error(ttl: u8) -> Head {
    Head {
        tos: 0,
        id: 0,
        may_be_cut: true,
        ttl,
    }
}

/// Parses a frame into a softwire and its inner packet, and checks the outer hop limit of Snabb.
pub(crate) fn tunnelled(frame: &[u8], br: &str, b4: &str) -> (Seen4, Vec<u8>) {
    let seen = into(frame, br, b4);
    let (header, inner) = out6(frame);
    assert_eq!(header.hop_limit, 255);
    (seen, inner)
}

/// An IPv4 packet after its TTL was decremented.
pub(crate) fn after_hop(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    edit4(&mut packet, |header| header.time_to_live -= 1);
    packet
}

/// A case with Snabb's rules, which refuses ICMP and sends no errors on either side.
pub(crate) fn quiet() -> Case {
    let refuses = "allow-incoming-icmp false; generate-icmp-errors false;";
    Case::with(refuses, refuses).like_snabb()
}

/// A case with Snabb's rules.
pub(crate) fn usual() -> Case {
    Case::plain().like_snabb()
}
