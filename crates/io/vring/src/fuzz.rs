//! Fuzz targets: rings whose peer writes arbitrary values.

use std::sync::Arc;

use carina_sys::{Mapping, Memory};

use crate::device::DeviceRing;
use crate::dirty::DirtyLog;
use crate::driver::{DriverBuffer, DriverRing};
use crate::fault::Fault;
use crate::inflight::SplitInflight;
use crate::memory::{GuestMemory, Region};
use crate::packed_device::PackedDevice;
use crate::packed_driver::PackedDriver;
use crate::packed_layout::PackedPosition;
use crate::setup::{AddressSpace, RingConfig};
use crate::split_device::SplitDevice;
use crate::split_driver::SplitDriver;

/// What a fuzzer's script achieved: how many chains and bytes were processed, and the fault that
/// ended the script, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of chains that were completed or returned.
    pub chains: usize,
    /// Number of bytes that were copied out of and into the chains.
    pub bytes: usize,
    /// The fault that ended the script, if any.
    pub fault: Option<Fault>,
}

/// Runs the device half of a ring against a script. The first four bytes select the ring; after
/// them, each step is one byte with its operands. The script may write anywhere in the guest's
/// memory.
///
/// # Panics
/// The device half accesses memory that is not the guest's, or completes a chain that it did not
/// take. These are the errors that a fuzzer looks for.
#[must_use]
pub fn device(script: &[u8]) -> Outcome {
    let mut script = Script(script);
    let kind = script.byte();
    let guest = Guest::new();
    let config = guest.config(&mut script, kind);
    let outcome = if kind & 1 == 0 {
        match SplitDevice::new(&guest.memory, &config) {
            Ok(mut ring) => {
                if kind & 2 != 0 {
                    let inflight = SplitInflight::new(Arc::clone(&guest.log), 0, config.size);
                    ring.set_inflight(inflight.ok());
                }
                drive_device(&mut ring, &guest, &mut script)
            }
            Err(_) => Outcome::default(),
        }
    } else {
        match PackedDevice::new(&guest.memory, &config) {
            Ok(mut ring) => drive_device(&mut ring, &guest, &mut script),
            Err(_) => Outcome::default(),
        }
    };
    guest.check();
    outcome
}

/// Runs the driver half of a ring against a script, like [`device`].
///
/// # Panics
/// As for [`device`].
#[must_use]
pub fn driver(script: &[u8]) -> Outcome {
    let mut script = Script(script);
    let kind = script.byte();
    let guest = Guest::new();
    let config = guest.config(&mut script, kind);
    let outcome = if kind & 1 == 0 {
        match SplitDriver::new(&guest.memory, &config) {
            Ok(mut ring) => drive_driver(&mut ring, &guest, &mut script),
            Err(_) => Outcome::default(),
        }
    } else {
        match PackedDriver::new(&guest.memory, &config) {
            Ok(mut ring) => drive_driver(&mut ring, &guest, &mut script),
            Err(_) => Outcome::default(),
        }
    };
    guest.check();
    outcome
}

fn drive_device(ring: &mut impl DeviceRing, guest: &Guest, script: &mut Script<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut open = 0;
    let mut bytes = [0; 300];
    while let Some(step) = script.next() {
        match step % 8 {
            0 | 1 => guest.poke(script),
            2 => match ring.take(usize::from(script.byte() % 64)) {
                Ok(count) => open = count,
                Err(fault) => {
                    outcome.fault = Some(fault);
                    return outcome;
                }
            },
            3 => {
                for chain in 0..ring.taken().len() {
                    let skip = usize::from(step >> 3);
                    let read = ring.taken().read(chain, skip, &mut bytes);
                    let readable = ring.taken().readable(chain);
                    assert_eq!(read, readable.saturating_sub(skip).min(bytes.len()));
                    let written = ring.taken().write(chain, skip, &bytes[..200]);
                    let writable = ring.taken().writable(chain);
                    assert_eq!(written, writable.saturating_sub(skip).min(200));
                    outcome.bytes += read + written;
                }
            }
            4 if open > 0 => {
                ring.complete(u32::from(script.byte()));
                open -= 1;
                outcome.chains += 1;
            }
            4 | 5 => {
                ring.publish();
                let _ = ring.wants_signal();
            }
            6 => {
                ring.put_back();
                open = 0;
            }
            _ if step & 8 == 0 => ring.disarm(),
            _ => {
                let _ = ring.arm();
                let log = DirtyLog::new(Arc::clone(&guest.log), 4096, 64);
                ring.set_dirty_log(log, step & 16 == 0);
            }
        }
    }
    outcome
}

fn drive_driver(ring: &mut impl DriverRing, guest: &Guest, script: &mut Script<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut held = std::collections::BTreeSet::new();
    while let Some(step) = script.next() {
        match step % 8 {
            0 | 1 => guest.poke(script),
            2 | 3 => {
                let count = 1 + usize::from(step >> 3) % 4;
                let buffers: Vec<_> = (0..count)
                    .map(|_| DriverBuffer::writable(u64::from(script.half()), 64))
                    .collect();
                let added = if step % 8 == 2 {
                    ring.add(&buffers)
                } else {
                    ring.add_indirect(0x8000, &buffers)
                };
                if let Ok(id) = added {
                    assert!(held.insert(id), "{id} was given twice");
                }
            }
            4 | 5 => match ring.poll() {
                Ok(None) => {}
                Ok(Some(completion)) => {
                    assert!(held.remove(&completion.id), "{completion:?}");
                    outcome.chains += 1;
                }
                Err(fault) => {
                    outcome.fault = Some(fault);
                    return outcome;
                }
            },
            6 => {
                ring.publish();
                let _ = ring.wants_kick();
            }
            _ if step & 8 == 0 => ring.disarm(),
            _ => {
                let _ = ring.arm();
            }
        }
    }
    outcome
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

/// Two regions of guest memory in a mapping whose other bytes are not the guest's.
struct Guest {
    mapping: Arc<Mapping>,
    log: Arc<Mapping>,
    memory: GuestMemory,
}

impl Guest {
    fn new() -> Guest {
        let memory = Memory::anonymous("fuzzed-guest", MAPPED).expect("memory");
        let mapping = Arc::new(memory.map().expect("a mapping"));
        mapping.write(0, &[CANARY; BEFORE]);
        mapping.write(BEFORE + GUEST, &[CANARY; BEFORE]);
        let half = GUEST / 2;
        let region = |at: usize| {
            let user = 0x1_0000 + at as u64;
            Region::new(
                Arc::clone(&mapping),
                BEFORE + at,
                at as u64,
                user,
                half as u64,
            )
        };
        let regions = [0, half].map(|at| region(at).expect("a region within the mapping"));
        let log = Memory::anonymous("fuzzed-log", 2 * 4096).expect("memory");
        Guest {
            memory: GuestMemory::new(regions.into()).expect("regions side by side"),
            log: Arc::new(log.map().expect("a mapping")),
            mapping,
        }
    }

    fn config(&self, script: &mut Script<'_>, kind: u8) -> RingConfig {
        let size = match script.byte() {
            odd if kind & 1 == 1 => u16::from(odd % 65),
            even => 1 << (even % 8),
        };
        let flags = script.byte();
        let shift = u64::from(script.byte() & 0xf0) << 4;
        RingConfig {
            size,
            descriptors: shift,
            driver: 0x2000 + shift,
            device: 0x3000 + shift,
            space: AddressSpace::Guest,
            has_event_index: flags & 1 != 0,
            has_indirect: flags & 2 != 0,
            is_in_order: flags & 4 != 0,
            position: if kind & 1 == 1 {
                PackedPosition::START
            } else {
                u32::from(flags) << 8
            },
        }
    }

    /// Writes bytes as the script says: the address (mostly in the ring), the number, and the
    /// values.
    fn poke(&self, script: &mut Script<'_>) {
        let at = usize::from(script.half());
        let count = 1 + usize::from(script.byte() % 16);
        let bytes: Vec<u8> = (0..count).map(|_| script.byte()).collect();
        let at = at.min(GUEST - count);
        self.mapping.write(BEFORE + at, &bytes);
    }

    fn check(&self) {
        let mut bytes = [0; BEFORE];
        for at in [0, BEFORE + GUEST] {
            self.mapping.read(at, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == CANARY), "written at {at}");
        }
    }
}

const BEFORE: usize = 4096;
const GUEST: usize = 64 << 10;
const MAPPED: usize = GUEST + 2 * BEFORE;
const CANARY: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(cases(500))]

        #[test]
        fn hostile_peers_touch_nothing_but_their_memory(
            script in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let _ = device(&script);
            let _ = driver(&script);
        }
    }

    fn cases(count: u32) -> ProptestConfig {
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(count)
        }
    }

    #[test]
    fn script_can_be_a_correct_peer() {
        // A descriptor of 16 bytes at 0x4000, head 0, index 1; then take, copy, complete, publish.
        let mut script = vec![0, 3, 0, 0];
        script.extend([0, 0, 0, 13, 0, 0x40, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0]);
        script.extend([0, 2, 0x20, 1, 1, 0, 2, 5, 3, 4, 0, 5]);
        let outcome = device(&script);
        assert_eq!(
            (outcome.chains, outcome.bytes, outcome.fault),
            (1, 16, None)
        );
    }
}
