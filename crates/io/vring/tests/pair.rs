//! Both halves of a ring over the same memory.

use std::sync::Arc;

use carina_sys::{Mapping, Memory};
use carina_vring::{
    AddressSpace, DeviceRing, DriverRing, GuestMemory, PackedDevice, PackedDriver, PackedPosition,
    Region, RingConfig, SplitDevice, SplitDriver,
};

/// The memory that both halves share.
pub(crate) struct Shared {
    pub mapping: Arc<Mapping>,
    pub memory: GuestMemory,
}

/// First address of the guest's memory.
pub(crate) const BASE: u64 = 0x10_0000;
/// Offsets from [`BASE`] of the descriptors, the driver's and the device's part.
pub(crate) const PARTS: [u64; 3] = [0, 0x4000, 0x8000];
/// Offset from [`BASE`] of the memory that is free for buffers and tables.
pub(crate) const FREE: u64 = 0x1_0000;
const BYTES: usize = 1 << 20;

impl Shared {
    pub(crate) fn new() -> Shared {
        let memory = Memory::anonymous("pair", BYTES).unwrap();
        let mapping = Arc::new(memory.map().unwrap());
        let whole = Arc::clone(&mapping);
        let region = Region::new(whole, 0, BASE, 0x7000_0000, BYTES as u64).unwrap();
        let memory = GuestMemory::new(vec![region]).unwrap();
        Shared { mapping, memory }
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.mapping.write((address - BASE) as usize, bytes);
    }

    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mapping.read((address - BASE) as usize, &mut bytes);
        bytes
    }
}

/// Layout and features of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub is_packed: bool,
    pub size: u16,
    pub has_event_index: bool,
    pub is_in_order: bool,
}

pub(crate) struct Pair {
    pub shared: Shared,
    pub device: Box<dyn DeviceRing + Send>,
    pub driver: Box<dyn DriverRing + Send>,
    pub kind: Kind,
}

pub(crate) fn config(kind: Kind) -> RingConfig {
    let [descriptors, driver, device] = PARTS.map(|part| BASE + part);
    RingConfig {
        size: kind.size,
        descriptors,
        driver,
        device,
        space: AddressSpace::Guest,
        has_event_index: kind.has_event_index,
        has_indirect: true,
        is_in_order: kind.is_in_order,
        position: if kind.is_packed {
            PackedPosition::START
        } else {
            0
        },
    }
}

pub(crate) fn pair(kind: Kind) -> Pair {
    let shared = Shared::new();
    let (memory, config) = (&shared.memory, config(kind));
    let (driver, device): (Box<dyn DriverRing + Send>, Box<dyn DeviceRing + Send>) =
        if kind.is_packed {
            (
                Box::new(PackedDriver::new(memory, &config).unwrap()),
                Box::new(PackedDevice::new(memory, &config).unwrap()),
            )
        } else {
            (
                Box::new(SplitDriver::new(memory, &config).unwrap()),
                Box::new(SplitDevice::new(memory, &config).unwrap()),
            )
        };
    Pair {
        shared,
        device,
        driver,
        kind,
    }
}

/// A ring of each layout, with and without event index, in order or not.
pub(crate) fn pairs(size: u16) -> impl Iterator<Item = Pair> {
    (0..8).map(move |kind| {
        pair(Kind {
            is_packed: kind & 1 != 0,
            size,
            has_event_index: kind & 2 != 0,
            is_in_order: kind & 4 != 0,
        })
    })
}
