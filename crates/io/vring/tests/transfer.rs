//! Tests of the bytes that rings carry.

use std::sync::Arc;

use carina_sys::Memory;
use carina_vring::SmallBytes;
use carina_vring::{
    AddressSpace, DeviceRing, DirtyLog, DriverBuffer, PackedDevice, RingFull, SplitDevice,
    SplitInflight,
};

use crate::pair::{BASE, FREE, Kind, config, pair, pairs};

#[test]
fn bytes_arrive_both_ways_and_buffers_return_in_order() {
    for mut pair in pairs(8) {
        let text = BASE + FREE;
        let room = text + 1000;
        for round in 0..20u64 {
            pair.shared.write(text, &[round as u8; 30]);
            let first = pair.driver.add(&[
                DriverBuffer::readable(text, 10),
                DriverBuffer::readable(text + 10, 20),
            ]);
            let second = pair.driver.add(&[
                DriverBuffer::readable(text, 1),
                DriverBuffer::writable(room, 5),
                DriverBuffer::writable(room + 5, 100),
            ]);
            pair.driver.publish();
            assert_eq!(pair.device.take(10), Ok(2));
            let taken = pair.device.taken();
            assert_eq!((taken.readable(0), taken.writable(0)), (30, 0));
            assert_eq!((taken.readable(1), taken.writable(1)), (1, 105));
            let mut bytes = [0; 40];
            assert_eq!(taken.read(0, 0, &mut bytes), 30);
            assert_eq!(bytes[..30], [round as u8; 30]);
            assert_eq!(taken.read(0, 8, &mut bytes[..4]), 4);
            assert_eq!(taken.read(0, 30, &mut bytes), 0);
            assert_eq!(taken.write(1, 0, b"hel"), 3);
            assert_eq!(taken.write(1, 3, b"lo, world"), 9);
            assert_eq!(taken.write(1, 100, b"too long"), 5);
            assert_eq!(taken.write(0, 0, b"x"), 0);
            pair.device.complete(0);
            pair.device.complete(12);
            assert_eq!(pair.driver.poll(), Ok(None));
            pair.device.publish();
            let used = [(); 2].map(|()| pair.driver.poll().unwrap().unwrap());
            assert_eq!(used.map(|used| used.id), [first.unwrap(), second.unwrap()]);
            assert_eq!(used.map(|used| used.written), [0, 12]);
            assert_eq!(pair.driver.poll(), Ok(None));
            assert_eq!(pair.driver.room(), 8);
            assert_eq!(pair.shared.read(room, 12), b"hello, world");
        }
    }
}

#[test]
fn header_that_is_already_equal_is_not_written() {
    for mut pair in pairs(8) {
        let room = BASE + FREE;
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let few = |header: [u8; 10]| {
            let mut bytes = [0; 16];
            bytes[..10].copy_from_slice(&header);
            SmallBytes::new(u128::from_le_bytes(bytes), 10)
        };
        pair.shared.write(room, &header);
        let log = Arc::new(Memory::anonymous("log", 4096).unwrap().map().unwrap());
        let marked = Arc::clone(&log);
        pair.device
            .set_dirty_log(DirtyLog::new(log, 0, 4096), false);
        let whole = [DriverBuffer::writable(room, 100)];
        let short = [
            DriverBuffer::writable(room, 2),
            DriverBuffer::writable(room + 50, 100),
        ];
        let readable = [DriverBuffer::readable(room, 100)];
        for chain in [&whole[..], &short, &readable] {
            pair.driver.add(chain).unwrap();
        }
        pair.driver.publish();
        assert_eq!(pair.device.take(3), Ok(3));
        let taken = pair.device.taken();
        assert_eq!(taken.write_if_other(0, &few(header)), 10);
        let page = ((BASE + FREE) / 4096) as usize;
        let is_marked = || {
            let mut byte = [0];
            marked.read(page / 8, &mut byte);
            byte[0] & 1 << (page % 8) != 0
        };
        assert!(!is_marked());
        let other = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11];
        assert_eq!(taken.write_if_other(0, &few(other)), 10);
        assert!(is_marked());
        assert_eq!(pair.shared.read(room, 10), other);
        assert_eq!(pair.shared.read(room + 10, 1), [0]);
        // Into two buffers; and nothing into a chain that may not be written.
        assert_eq!(taken.write_if_other(1, &few([7; 10])), 10);
        assert_eq!(pair.shared.read(room, 3), [7, 7, 3]);
        assert_eq!(pair.shared.read(room + 50, 9), [7, 7, 7, 7, 7, 7, 7, 7, 0]);
        assert_eq!(taken.write_if_other(2, &few(header)), 0);
    }
}

#[test]
fn burst_that_is_used_in_order_is_one_used_descriptor() {
    let mut pair = pair(Kind {
        is_packed: true,
        size: 8,
        has_event_index: false,
        is_in_order: true,
    });
    let buffer = DriverBuffer::readable(BASE + FREE, 4);
    // Four laps, in bursts that cross the end of the ring.
    for _ in 0..8 {
        let ids = [(); 5].map(|()| pair.driver.add(&[buffer]).unwrap());
        pair.driver.publish();
        assert_eq!(pair.device.take(8), Ok(5));
        (0..5).for_each(|_| pair.device.complete(0));
        let ring = || pair.shared.read(BASE, 8 * 16);
        let before = ring();
        pair.device.publish();
        let after = ring();
        let both = before.chunks(16).zip(after.chunks(16));
        assert_eq!(both.filter(|(before, after)| before != after).count(), 1);
        for id in ids {
            let used = pair.driver.poll().unwrap().unwrap();
            assert_eq!((used.id, used.written), (id, 0));
        }
        assert_eq!(pair.driver.poll(), Ok(None));
        assert_eq!(pair.driver.room(), 8);
    }
}

#[test]
fn indirect_table_is_one_descriptor_of_the_ring() {
    for mut pair in pairs(4) {
        let text = BASE + FREE;
        let table = text + 0x1000;
        pair.shared.write(text, b"abcdef");
        let buffers = [0, 2, 4].map(|at| DriverBuffer::readable(text + at, 2));
        for round in 0..10 {
            for table in [table, table + 0x100] {
                pair.driver.add_indirect(table, &buffers).unwrap();
            }
            assert_eq!(pair.driver.room(), 2);
            pair.driver.publish();
            assert_eq!(pair.device.take(9), Ok(2), "round {round}");
            let mut bytes = [0; 6];
            assert_eq!(pair.device.taken().read(1, 0, &mut bytes), 6);
            assert_eq!(&bytes, b"abcdef");
            pair.device.complete(0);
            pair.device.complete(0);
            pair.device.publish();
            while pair.driver.poll().unwrap().is_some() {}
            assert_eq!(pair.driver.room(), 4);
        }
    }
}

#[test]
fn chains_that_were_put_back_are_taken_again() {
    for mut pair in pairs(4) {
        let buffer = DriverBuffer::readable(BASE + FREE, 4);
        let mut next = 0;
        for _ in 0..30 {
            while let Ok(id) = pair.driver.add(&[buffer]) {
                pair.shared.write(BASE + FREE, &[0; 4]);
                next = id;
            }
            pair.driver.publish();
            assert_eq!(pair.device.take(3), Ok(3));
            pair.device.complete(0);
            pair.device.put_back();
            pair.device.publish();
            assert_eq!(pair.device.take(9), Ok(3));
            pair.device.complete(1);
            // The next take puts back by itself.
            assert_eq!(pair.device.take(1), Ok(1));
            pair.device.complete(2);
            pair.device.publish();
            for written in 0..3 {
                assert_eq!(pair.driver.poll().unwrap().unwrap().written, written);
            }
        }
        assert!(next < 4);
        assert_eq!(pair.driver.add(&[buffer; 4]), Err(RingFull));
    }
}

#[test]
fn successor_goes_on_where_the_device_stopped() {
    for is_packed in [false, true] {
        let kind = Kind {
            is_packed,
            size: 4,
            has_event_index: false,
            is_in_order: false,
        };
        let mut pair = pair(kind);
        let buffer = DriverBuffer::readable(BASE + FREE, 4);
        for _ in 0..7 {
            pair.driver.add(&[buffer; 3]).unwrap();
            pair.driver.publish();
            assert_eq!(pair.device.take(1), Ok(1));
            pair.device.complete(3);
            pair.device.publish();
            let mut config = config(kind);
            config.position = pair.device.position();
            let user = 0x7000_0000u64.wrapping_sub(BASE);
            for part in [
                &mut config.descriptors,
                &mut config.driver,
                &mut config.device,
            ] {
                *part = part.wrapping_add(user);
            }
            config.space = AddressSpace::User;
            let memory = &pair.shared.memory;
            pair.device = if is_packed {
                Box::new(PackedDevice::new(memory, &config).unwrap())
            } else {
                Box::new(SplitDevice::new(memory, &config).unwrap())
            };
            assert_eq!(pair.driver.poll().unwrap().unwrap().written, 3);
        }
    }
}

#[test]
fn chains_of_a_device_that_died_are_known_to_its_successor() {
    let kind = Kind {
        is_packed: false,
        size: 8,
        has_event_index: false,
        is_in_order: false,
    };
    let mut pair = pair(kind);
    let region = Memory::anonymous("in-flight", 4096).unwrap().map().unwrap();
    let region = Arc::new(region);
    let inflight = || SplitInflight::new(Arc::clone(&region), 64, 8).unwrap();
    let buffer = DriverBuffer::readable(BASE + FREE, 4);
    let mut position = 0;
    for round in 0..40 {
        let mut device = SplitDevice::new(&pair.shared.memory, &{
            let mut config = config(kind);
            config.position = position;
            config
        })
        .unwrap();
        let mut record = inflight();
        let left = record.recover(device.used_index()).unwrap();
        assert_eq!(left.len(), if round == 0 { 0 } else { 3 }, "round {round}");
        device.set_inflight(Some(record));
        while pair.driver.add(&[buffer]).is_ok() {}
        pair.driver.publish();
        assert_eq!(device.take(6), Ok(6));
        for _ in 0..2 {
            device.complete(1);
        }
        device.publish();
        // The device took four more chains and put one back. It dies with one of three completed
        // and not published.
        assert_eq!(device.take(3), Ok(3));
        if round % 2 == 0 {
            device.complete(1);
        }
        position = u32::from(device.used_index());
        for _ in 0..2 {
            assert!(pair.driver.poll().unwrap().is_some());
        }
        assert_eq!(pair.driver.poll(), Ok(None));
    }
    assert!(SplitInflight::new(Arc::clone(&region), 64, 16).is_err());
    assert!(SplitInflight::new(Arc::clone(&region), 4000, 8).is_err());
    assert!(SplitInflight::new(region, 4, 8).is_err());
}

#[test]
fn absurd_numbers_in_an_inflight_region_end_nothing() {
    let region = Memory::anonymous("in-flight", 4096).unwrap().map().unwrap();
    let region = Arc::new(region);
    // Every chain is in flight, each with the highest counter.
    region.write(0, &[0xff; 16 + 16 * 8]);
    region.write(8, &[1, 0, 8, 0]);
    for id in 0..8 {
        region.write(16 + 16 * id, &[1]);
    }
    let mut record = SplitInflight::new(Arc::clone(&region), 0, 8).unwrap();
    assert!(record.recover(0).is_err(), "descriptor 65535");
    region.write(12, &[0; 4]);
    let mut record = SplitInflight::new(region, 0, 8).unwrap();
    assert_eq!(record.recover(0).unwrap().len(), 8);
}
