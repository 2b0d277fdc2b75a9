//! What was seen of echos, by the spots where it was seen.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Direction, Spot};

/// What was seen where.
#[derive(Debug, Default)]
pub struct Sightings {
    echoes: BTreeMap<(Direction, Spot), Sighting>,
    /// Refusals of routers: type and code, and the address of the router.
    pub errors: BTreeMap<(u8, Ipv4Addr), u64>,
    /// Addresses for which a node asked, and the spot where it did.
    pub asked_for: BTreeMap<(Spot, Ipv4Addr), u64>,
}

/// Frames that were seen at a spot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// How many.
    pub frames: u64,
    /// From the first echo that the asking node sent until the first frame here, µs.
    pub after_us: Option<u64>,
}

impl Sightings {
    /// What was seen at a spot.
    #[must_use]
    pub fn at(&self, way: Direction, spot: Spot) -> Sighting {
        self.echoes.get(&(way, spot)).copied().unwrap_or_default()
    }

    /// All that was seen of echos and answers.
    pub fn all(&self) -> impl Iterator<Item = (Direction, Spot, Sighting)> {
        let echoes = self.echoes.iter();
        echoes.map(|((way, spot), sighting)| (*way, *spot, *sighting))
    }

    /// What was seen at a spot, to be added to.
    pub fn entry(&mut self, way: Direction, spot: Spot) -> &mut Sighting {
        self.echoes.entry((way, spot)).or_default()
    }

    /// Notes what was seen elsewhere at a spot.
    pub fn add(&mut self, way: Direction, spot: Spot, sighting: Sighting) {
        self.echoes.insert((way, spot), sighting);
    }

    /// Where something was seen.
    pub fn spots(&self) -> impl Iterator<Item = (Direction, Spot)> {
        self.echoes.keys().copied()
    }
}
