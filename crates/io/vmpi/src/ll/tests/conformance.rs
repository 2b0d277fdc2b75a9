//! The conformance suite over the devices of shared memory: memfd and ivshmem.

use carina_sys::Memory;

use crate::conformance::{Device, Fixture, Random};
use crate::hl::Side;
use crate::ll::memfd::MemfdRegion;

const REGION: usize = 64 << 10;

/// Overwrites words of the whole region, of the rings alone, or a few words anywhere.
pub(crate) fn scribble(memory: &Memory, random: &mut Random) {
    let map = memory.map().unwrap();
    let kind = random.below(3);
    let (from, words) = match kind {
        0 => (0, REGION / 8),
        1 => (4096, (REGION - 4096) / 8),
        _ => (0, 1 << random.below(10)),
    };
    for n in 0..words {
        let word = if kind == 2 {
            random.below(REGION / 8)
        } else {
            n
        };
        map.write(from + 8 * word, &random.draw().to_le_bytes());
    }
}

mod memfd {
    use super::*;

    struct Memfd(MemfdRegion);

    impl Fixture for Memfd {
        fn open(&mut self, side: Side) -> Device {
            self.0.device(side).unwrap()
        }

        fn has_wake_ups(&self) -> bool {
            true
        }

        fn damage(&mut self, _side: Side, random: &mut Random) -> bool {
            scribble(self.0.memory(), random);
            true
        }
    }

    crate::vmpi_conformance!(|| Memfd(MemfdRegion::create(REGION).unwrap()));
}
