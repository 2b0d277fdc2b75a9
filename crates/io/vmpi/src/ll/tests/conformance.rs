//! The conformance suite over the devices of shared memory: memfd and ivshmem.

use crate::conformance::{Device, Fixture, Random, scribble};
use crate::hl::Side;
use crate::ll::memfd::MemfdRegion;

const REGION: usize = 64 << 10;

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
            scribble(self.0.memory(), REGION, random);
            true
        }
    }

    crate::vmpi_conformance!(|| Memfd(MemfdRegion::create(REGION).unwrap()));
}
