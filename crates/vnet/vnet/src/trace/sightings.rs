//! Frames that a trace has seen, by port.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Direction, Spot};

/// Frames that a trace has seen: echo requests and replies by port, ICMP errors, and ARP requests.
#[derive(Debug, Default)]
pub struct Sightings {
    echoes: BTreeMap<(Direction, Spot), Sighting>,
    /// Number of ICMP errors by type and code, and address of the router.
    pub errors: BTreeMap<(u8, Ipv4Addr), u64>,
    /// Number of ARP requests by the port where a node sent them and the address asked for.
    pub asked_for: BTreeMap<(Spot, Ipv4Addr), u64>,
}

/// The frames seen at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Number of frames.
    pub frames: u64,
    /// Time from the first echo request that the sending node emitted until the first frame of the
    /// trace at this link end, µs; `None` on a host other than the sending node's.
    pub after_us: Option<u64>,
}

impl Sightings {
    /// The echo frames seen at a port in one direction; zero frames if none were seen.
    #[must_use]
    pub fn at(&self, direction: Direction, spot: Spot) -> Sighting {
        self.echoes
            .get(&(direction, spot))
            .copied()
            .unwrap_or_default()
    }

    /// All ports with the frames that were seen there.
    pub fn all(&self) -> impl Iterator<Item = (Direction, Spot, Sighting)> {
        let echoes = self.echoes.iter();
        echoes.map(|((direction, spot), sighting)| (*direction, *spot, *sighting))
    }

    /// The entry of a port and direction, for counting more frames; created if it does not exist.
    pub fn entry(&mut self, direction: Direction, spot: Spot) -> &mut Sighting {
        self.echoes.entry((direction, spot)).or_default()
    }

    /// Sets the entry of a port and direction, for instance from the report of another host.
    pub fn add(&mut self, direction: Direction, spot: Spot, sighting: Sighting) {
        self.echoes.insert((direction, spot), sighting);
    }

    /// The ports where something was seen.
    pub fn spots(&self) -> impl Iterator<Item = (Direction, Spot)> {
        self.echoes.keys().copied()
    }
}
