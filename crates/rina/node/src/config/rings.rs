//! Default size of the rings of flows.

use carina_api::ipc::{RING_BYTES_DEFAULT, ring_bytes_checked};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The default ring size on this system, in bytes.
pub(super) fn for_this_system() -> u64 {
    let takes_turns = carina_sys::cpus_online() == 1 && carina_sys::is_emulated();
    for_system(takes_turns, carina_sys::memory_bytes())
}

/// The default ring size for a system, in bytes. With one processor, the node and an application
/// alternate, and switch when a ring is full or empty (`takes_turns`). After each switch an
/// emulated processor spends some 70 us on translating pages and code again, so a ring of twice the
/// size halves the number of switches. (A real processor keeps these translations, and there a ring
/// larger than the cache costs more than it saves.) Pages of a ring stay in memory once used, so
/// the system must have [`MEMORY_PER_RING`] times the size of a ring.
fn for_system(takes_turns: bool, memory_bytes: u64) -> u64 {
    if !takes_turns {
        return RING_BYTES_DEFAULT;
    }
    let share = (memory_bytes / MEMORY_PER_RING).max(1);
    (1 << share.ilog2()).clamp(RING_BYTES_DEFAULT, RING_BYTES_MAX_TURNS)
}

/// Parses and checks the key `ring_bytes`.
pub(super) fn parse<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?;
    match ring_bytes_checked(bytes) {
        Ok(bytes) => Ok(bytes as u64),
        Err(refusal) => Err(D::Error::custom(refusal.message)),
    }
}

/// Largest default; with larger rings the scheduler, not the ring, limits the time between
/// switches.
const RING_BYTES_MAX_TURNS: u64 = 4 * RING_BYTES_DEFAULT;

/// A system's memory is at least this many times the size of one ring.
const MEMORY_PER_RING: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_grow_with_memory_where_turns_are_taken() {
        const MIB: u64 = 1 << 20;
        for (takes_turns, memory, wanted) in [
            (true, 0, 1),
            (true, 120, 1),
            (true, 230, 2),
            (true, 480, 4),
            (true, 64 << 10, 4),
            (false, 120, 1),
            (false, 64 << 10, 1),
        ] {
            assert_eq!(
                for_system(takes_turns, memory * MIB),
                wanted * MIB,
                "{memory}"
            );
        }
    }
}
