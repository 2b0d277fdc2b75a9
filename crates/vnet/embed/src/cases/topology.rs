//! Shapes of substrates: a random one, and two existing research networks.

use carina_random::Random;

use crate::cases::draw::unit;
use crate::id::HostId;
use crate::substrate::{Host, Link, Substrate, SubstrateError};

/// The shape of a substrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// 100 hosts at random places in a square, linked with a probability that falls with their
    /// distance: some 500 links (B. Waxman, *Routing of multipoint connections*, 1988; β 0.5, α
    /// 0.2). Drawn again until it is connected.
    Wx100,
    /// The European research network GÉANT of 2012: 40 hosts, 61 links (The Internet Topology Zoo).
    /// Three hosts, which our copy of the list lacks, are attached as leaves of our choice.
    Geant,
    /// The research network of Berlin, BRAIN: 161 hosts, 166 links (SNDlib). 152 of the hosts are
    /// leaves of the other nine.
    Brain,
}

impl Topology {
    /// All shapes.
    pub const ALL: [Topology; 3] = [Topology::Wx100, Topology::Geant, Topology::Brain];

    /// Name of the shape in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Topology::Wx100 => "wx100",
            Topology::Geant => "geant",
            Topology::Brain => "brain",
        }
    }

    /// Draws a substrate of this shape, with capacities from 50 to 100.
    pub(crate) fn draw(self, random: &mut Random) -> Result<Substrate, SubstrateError> {
        let (count, pairs) = match self {
            Topology::Wx100 => (WAXMAN_HOSTS, waxman(random)),
            Topology::Geant => geant(),
            Topology::Brain => brain(),
        };
        let host = |cpu| Host {
            cpu,
            ..Host::default()
        };
        let hosts = (0..count).map(|_| host(random.within(50, 100))).collect();
        let link =
            |[a, b]: &[usize; 2]| Link::new(HostId::of(*a), HostId::of(*b), random.within(50, 100));
        let links = pairs.iter().map(link).collect();
        Substrate::new(hosts, links, 0)
    }
}

fn waxman(random: &mut Random) -> Vec<[usize; 2]> {
    loop {
        let places = [(); WAXMAN_HOSTS].map(|()| [unit(random), unit(random)]);
        let distance = |a: usize, b: usize| {
            let [x, y] = [0, 1].map(|axis| places[a][axis] - places[b][axis]);
            x.hypot(y)
        };
        let all = (0..WAXMAN_HOSTS).flat_map(|a| (a + 1..WAXMAN_HOSTS).map(move |b| [a, b]));
        let distances = all.clone().map(|[a, b]| distance(a, b));
        let longest = distances.fold(0.0, f64::max);
        let pairs: Vec<[usize; 2]> = all
            .filter(|[a, b]| {
                let chance = 0.5 * (-distance(*a, *b) / (0.2 * longest)).exp();
                unit(random) < chance
            })
            .collect();
        if is_connected(WAXMAN_HOSTS, &pairs) {
            return pairs;
        }
    }
}

const WAXMAN_HOSTS: usize = 100;

fn geant() -> (usize, Vec<[usize; 2]>) {
    let mut names: Vec<&str> = Vec::new();
    let mut place = |name: &'static str| {
        names
            .iter()
            .position(|known| *known == name)
            .unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
    };
    let links = GEANT
        .split_whitespace()
        .filter_map(|link| link.split_once('-'));
    let pairs = links.map(|(a, b)| [place(a), place(b)]).collect();
    (names.len(), pairs)
}

fn brain() -> (usize, Vec<[usize; 2]>) {
    let mut pairs = BRAIN_HUBS.to_vec();
    let mut next = BRAIN_LEAVES.len();
    for (hub, leaves) in BRAIN_LEAVES.iter().enumerate() {
        pairs.extend((next..next + leaves).map(|leaf| [hub, leaf]));
        next += leaves;
    }
    (next, pairs)
}

/// Whether links between these pairs connect all of `count` nodes.
pub(crate) fn is_connected(count: usize, pairs: &[[usize; 2]]) -> bool {
    let mut root: Vec<usize> = (0..count).collect();
    let mut parts = count;
    for pair in pairs {
        let [a, b] = pair.map(|mut at| {
            while root[at] != at {
                root[at] = root[root[at]];
                at = root[at];
            }
            at
        });
        if a != b {
            root[a] = b;
            parts -= 1;
        }
    }
    parts == 1
}

/// GÉANT's links of 2012, by country: S. Knight and others, *The Internet Topology Zoo* (2011), in
/// the copy of P. Jurkiewicz, *TopoHub: A repository of reference Gabriel graph and real-world
/// topologies for networking research* (2023). The copy has 37 hosts and 58 links; the last line
/// is ours, so that there are 40 and 61 as in evaluations.
const GEANT: &str = "
    NL-BE NL-DK NL-DE NL-UK NL-LT BE-IE DK-IS DK-NO DK-DE DK-EE DK-SE DK-RU PL-DE PL-CZ PL-LT
    DE-CZ DE-LU DE-CH DE-CY DE-IL DE-AT DE-RU CZ-SK LU-FR FR-CH FR-ES FR-UK CH-IT CH-ES IT-ES
    IT-MT IT-AT IT-GR BG-HU BG-MK BG-RO BG-TR BG-GR RO-TR RO-HU GR-AT CY-UK IL-LT ME-HR HU-RS
    HU-HR HU-SK SK-AT PT-ES PT-UK HR-SL SL-AT LT-LV IS-UK IE-UK NO-SE SE-FI EE-LV
    UA-PL MD-RO AL-IT";

/// BRAIN's nine hosts with several links, and the links between them: S. Orlowski, R. Wessäly, M.
/// Pióro, A. Tomaszewski, *SNDlib 1.0: Survivable Network Design Library* (2010), `brain`.
const BRAIN_HUBS: [[usize; 2]; 14] = [
    [0, 8],
    [0, 2],
    [0, 4],
    [1, 3],
    [1, 5],
    [2, 3],
    [2, 7],
    [3, 5],
    [3, 7],
    [4, 7],
    [4, 8],
    [5, 8],
    [5, 6],
    [6, 8],
];

/// Number of leaves of each of the nine hosts.
const BRAIN_LEAVES: [usize; 9] = [13, 18, 13, 18, 18, 18, 10, 11, 33];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_published_sizes() {
        let size = |topology: Topology, seed: u64| {
            let substrate = topology.draw(&mut Random::new(seed)).unwrap();
            [substrate.hosts().len(), substrate.links().len()]
        };
        assert_eq!(size(Topology::Geant, 1), [40, 61]);
        assert_eq!(size(Topology::Brain, 1), [161, 166]);
        let links: usize = (0..20).map(|seed| size(Topology::Wx100, seed)[1]).sum();
        assert!((460..=540).contains(&(links / 20)), "{}", links / 20);
        assert_eq!(size(Topology::Wx100, 3)[0], 100);
    }

    #[test]
    fn shapes_are_connected_and_have_no_link_twice() {
        for (count, pairs) in [geant(), brain()] {
            assert!(is_connected(count, &pairs));
            let sorted = |pair: &[usize; 2]| [pair[0].min(pair[1]), pair[0].max(pair[1])];
            let set: std::collections::BTreeSet<_> = pairs.iter().map(sorted).collect();
            assert_eq!(set.len(), pairs.len());
        }
        assert!(!is_connected(3, &[[0, 1]]));
    }
}
