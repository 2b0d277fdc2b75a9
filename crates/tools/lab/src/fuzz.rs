//! The fuzz target of topology files, as a function of bytes. The fuzzer and the tests of `fuzz`
//! call it.

use carina_topology::Topology;

use crate::{CarinaNode, DryRun, svg};

/// Reads a topology file, in the syntax of labs or of rlite's demonstrator; see [`reads_lab`].
pub fn lab(data: &[u8]) {
    reads_lab(data);
}

/// Reads a topology file, and returns whether it is valid. For a valid file, checks that its
/// commands can be listed, that it can be drawn, and that each DIF comes after its N-1 DIFs. For an
/// invalid file, checks that the error has a position in the text.
///
/// # Panics
/// One of these checks fails.
pub fn reads_lab(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let topology = match Topology::parse(text, &CarinaNode) {
        Ok(topology) => topology,
        Err(error) => {
            let line = text.lines().nth(error.at.line.saturating_sub(1));
            let columns = line.unwrap_or_default().chars().count() + 1;
            assert!(
                (1..=columns).contains(&error.at.column),
                "{error} in {line:?}"
            );
            return false;
        }
    };
    assert!(!DryRun::new("x", &topology).commands.is_empty());
    assert!(svg("x", &topology).contains("</svg>"));
    for dif in &topology.difs {
        let lowers = dif.members.iter().flat_map(|member| &member.over);
        for lower in lowers {
            let below = topology.difs.iter().find(|other| other.name == *lower);
            assert!(
                below.is_none_or(|below| below.level < dif.level),
                "{} over {lower}",
                dif.name
            );
        }
    }
    true
}
