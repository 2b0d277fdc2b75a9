//! Tests of actions that no correct peer takes.

use carina_vring::{DriverBuffer, Fault, GuestMemory, Region, SetupError, SplitDevice};

use crate::pair::{BASE, FREE, Kind, PARTS, Pair, config, pair, pairs};

fn split() -> Pair {
    pair(Kind {
        is_packed: false,
        size: 8,
        has_event_index: false,
        is_in_order: false,
    })
}

fn packed() -> Pair {
    pair(Kind {
        is_packed: true,
        size: 8,
        has_event_index: false,
        is_in_order: false,
    })
}

/// A descriptor of a split ring.
fn descriptor(address: u64, len: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes
}

/// The fault of a split ring that begins with these descriptors, and whose first chain begins at
/// the first descriptor.
fn fault_of(descriptors: &[Vec<u8>]) -> Fault {
    let mut pair = split();
    pair.shared.write(BASE, &descriptors.concat());
    pair.shared.write(BASE + PARTS[1] + 2, &[1, 0, 0, 0]);
    pair.device.take(4).unwrap_err()
}

#[test]
fn chains_that_bite_their_tail_end() {
    let looping = [
        descriptor(BASE, 1, 1, 1),
        descriptor(BASE, 1, 1, 2),
        descriptor(BASE, 1, 1, 1),
    ];
    assert_eq!(fault_of(&looping), Fault::ChainLength { size: 8 });
    // Also if its buffers have zero bytes.
    let looping = [descriptor(0, 0, 1, 0)];
    assert_eq!(fault_of(&looping), Fault::ChainLength { size: 8 });
    let mut pair = packed();
    for at in 0..8 {
        // Flags NEXT and AVAILABLE.
        let flags = 1 | 1 << 7;
        pair.shared
            .write(BASE + 16 * at, &descriptor(BASE, 1, 0, flags));
    }
    assert_eq!(pair.device.take(4), Err(Fault::ChainLength { size: 8 }));
}

#[test]
fn indices_beyond_the_ring_are_found_out() {
    let mut pair = split();
    pair.shared.write(BASE + PARTS[1] + 2, &[9, 0]);
    let index = Fault::AvailableIndex {
        index: 9,
        next: 0,
        size: 8,
    };
    assert_eq!(pair.device.take(4), Err(index));
    let mut pair = split();
    pair.shared.write(BASE + PARTS[1] + 2, &[1, 0, 8, 0]);
    let head = Fault::DescriptorIndex { index: 8, size: 8 };
    assert_eq!(pair.device.take(4), Err(head));
    let next = Fault::DescriptorIndex {
        index: 500,
        size: 8,
    };
    assert_eq!(fault_of(&[descriptor(BASE, 1, 1, 500)]), next);
}

#[test]
fn buffers_outside_of_memory_are_found_out() {
    let end = BASE + (1 << 20);
    for (address, len) in [
        (0, 1),
        (BASE - 1, 2),
        (end - 1, 2),
        (u64::MAX, 2),
        (BASE, u32::MAX),
    ] {
        let outside = Fault::OutsideMemory { address, len };
        assert_eq!(fault_of(&[descriptor(address, len, 0, 0)]), outside);
        assert_eq!(fault_of(&[descriptor(address, len, 2, 0)]), outside);
    }
    let much = descriptor(BASE, 1 << 20, 0, 0);
    let mut pair = split();
    pair.shared.write(BASE, &much);
    pair.shared.write(BASE + PARTS[1] + 2, &[1, 0, 0, 0]);
    assert_eq!(pair.device.take(4), Ok(1));
}

#[test]
fn readable_buffers_come_first() {
    let wrong = [descriptor(BASE, 1, 1 | 2, 1), descriptor(BASE, 1, 0, 0)];
    assert_eq!(fault_of(&wrong), Fault::ReadableBehindWritable);
}

#[test]
fn indirect_tables_are_checked() {
    let table = BASE + FREE;
    for len in [0, 15, 17] {
        let wrong = Fault::IndirectTable { len, flags: 4 };
        assert_eq!(fault_of(&[descriptor(table, len, 4, 0)]), wrong);
    }
    let wrong = Fault::IndirectTable { len: 16, flags: 5 };
    assert_eq!(fault_of(&[descriptor(table, 16, 5, 0)]), wrong);
    let outside = Fault::OutsideMemory {
        address: BASE - 16,
        len: 32,
    };
    assert_eq!(fault_of(&[descriptor(BASE - 16, 32, 4, 0)]), outside);
    // The table is the ring itself, so its entry refers to a table again.
    let nested = Fault::IndirectTable { len: 16, flags: 4 };
    assert_eq!(fault_of(&[descriptor(BASE, 16, 4, 0)]), nested);

    let mut config = config(split().kind);
    config.has_indirect = false;
    let shared = crate::pair::Shared::new();
    let mut device = SplitDevice::new(&shared.memory, &config).unwrap();
    shared.write(BASE, &descriptor(table, 16, 4, 0));
    shared.write(BASE + PARTS[1] + 2, &[1, 0, 0, 0]);
    let error = carina_vring::DeviceRing::take(&mut device, 1);
    assert_eq!(error, Err(Fault::IndirectNotNegotiated));
}

#[test]
fn buffer_across_two_regions_is_one_buffer() {
    let shared = crate::pair::Shared::new();
    let half = 1 << 19;
    let region = |at: usize| {
        let mapping = std::sync::Arc::clone(&shared.mapping);
        Region::new(mapping, at, BASE + at as u64, at as u64, half as u64).unwrap()
    };
    let memory = GuestMemory::new(vec![region(half), region(0)]).unwrap();
    let mut device = SplitDevice::new(&memory, &config(split().kind)).unwrap();
    let seam = BASE + half as u64;
    shared.write(seam - 2, b"abcd");
    shared.write(BASE, &descriptor(seam - 2, 4, 0, 0));
    shared.write(BASE + PARTS[1] + 2, &[1, 0, 0, 0]);
    assert_eq!(carina_vring::DeviceRing::take(&mut device, 1), Ok(1));
    let mut bytes = [0; 4];
    let taken = carina_vring::DeviceRing::taken(&device);
    assert_eq!(taken.read(0, 0, &mut bytes), 4);
    assert_eq!(&bytes, b"abcd");
}

#[test]
fn device_that_returns_what_it_does_not_have_is_found_out() {
    for mut pair in pairs(8) {
        let id = pair.driver.add(&[DriverBuffer::readable(BASE, 1)]).unwrap();
        pair.driver.publish();
        assert_eq!(pair.device.take(1), Ok(1));
        pair.device.complete(0);
        pair.device.publish();
        let other = (id + 1) % 8;
        let place = if pair.kind.is_packed {
            BASE + 12
        } else {
            BASE + PARTS[2] + 4
        };
        pair.shared.write(place, &other.to_le_bytes());
        let id = u32::from(other);
        // With in-order use, naming a chain also returns the chains before it.
        let outcome = (0..2).map(|_| pair.driver.poll()).find(Result::is_err);
        assert_eq!(outcome, Some(Err(Fault::UsedId { id })));
    }
    let mut pair = split();
    pair.shared.write(BASE + PARTS[2] + 2, &[1, 0]);
    assert!(matches!(pair.driver.poll(), Err(Fault::UsedIndex { .. })));
}

#[test]
fn rings_outside_of_memory_are_refused() {
    let shared = crate::pair::Shared::new();
    let right = config(split().kind);
    let refusal = |change: fn(&mut carina_vring::RingConfig)| {
        let mut config = right;
        change(&mut config);
        SplitDevice::new(&shared.memory, &config).unwrap_err()
    };
    assert_eq!(refusal(|config| config.size = 7), SetupError::Size(7));
    assert_eq!(refusal(|config| config.size = 0), SetupError::Size(0));
    assert!(matches!(
        refusal(|config| config.descriptors += 8),
        SetupError::Alignment { alignment: 16, .. }
    ));
    assert!(matches!(
        refusal(|config| config.device = BASE + (1 << 20) - 8),
        SetupError::OutsideMemory { .. }
    ));
    assert_eq!(
        refusal(|config| config.position = 1 << 16),
        SetupError::Position(1 << 16)
    );
}
