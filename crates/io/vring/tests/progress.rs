//! Tests of device halves of packed rings whose predecessors died.

use std::sync::Arc;

use carina_sys::{Mapping, Memory};
use carina_vring::{
    DeviceRing, DriverBuffer, DriverRing, PackedDevice, PackedDriver, PackedPosition,
    PackedProgress, RingConfig,
};

use crate::pair::{BASE, FREE, Kind, Shared, config};

const KIND: Kind = Kind {
    is_packed: true,
    size: 8,
    has_event_index: false,
    is_in_order: false,
};

fn memory() -> Arc<Mapping> {
    Arc::new(Memory::anonymous("progress", 4096).unwrap().map().unwrap())
}

/// A device half, started by a front end that knows only where the ring began.
fn device(shared: &Shared, progress: &Arc<Mapping>, config: &RingConfig) -> PackedDevice {
    let mut device = PackedDevice::new(&shared.memory, config).unwrap();
    let progress = PackedProgress::new(Arc::clone(progress), 64).unwrap();
    device.set_progress(progress, config, PackedPosition::START);
    device
}

fn driver(shared: &Shared) -> PackedDriver {
    PackedDriver::new(&shared.memory, &config(KIND)).unwrap()
}

#[test]
fn packed_ring_goes_on_where_a_device_died() {
    for (parts, is_in_order) in [(1, false), (3, false), (1, true), (3, true)] {
        let config = config(Kind {
            is_in_order,
            ..KIND
        });
        // With in-order use, one descriptor stands for chains into which nothing was written.
        let written = if is_in_order { 0 } else { 7 };
        let (shared, progress) = (Shared::new(), memory());
        let mut driver = PackedDriver::new(&shared.memory, &config).unwrap();
        let chain = vec![DriverBuffer::readable(BASE + FREE, 4); parts];
        let mut waiting = std::collections::VecDeque::new();
        for round in 0..200 {
            let mut device = device(&shared, &progress, &config);
            while let Ok(id) = driver.add(&chain) {
                waiting.push_back(id);
            }
            driver.publish();
            let taken = device.take(round % 4).unwrap();
            let done = taken.min(round % 3);
            for _ in 0..done {
                device.complete(written);
            }
            // The device dies before or after it publishes.
            let is_published = round % 5 != 0;
            if is_published {
                device.publish();
            }
            drop(device);
            // The driver may or may not see the used descriptors before there is a successor.
            let polls = if round % 7 < 3 { 0 } else { usize::MAX };
            for _ in 0..polls {
                let Some(used) = driver.poll().unwrap() else {
                    break;
                };
                assert_eq!(waiting.pop_front(), Some(used.id), "round {round}");
                assert_eq!(used.written, written);
            }
        }
        // The successor serves every waiting chain once.
        let mut device = device(&shared, &progress, &config);
        while device.take(8).unwrap() > 0 {
            for _ in 0..device.taken().len() {
                device.complete(written);
            }
            device.publish();
        }
        while let Some(used) = driver.poll().unwrap() {
            assert_eq!(waiting.pop_front(), Some(used.id));
        }
        assert!(waiting.is_empty(), "{parts}: {waiting:?}");
    }
}

#[test]
fn burst_that_was_half_written_is_shown_whole_by_a_successor() {
    let config = config(KIND);
    let buffer = DriverBuffer::writable(BASE + FREE, 40);
    let ring = 0..8 * 16;
    // The device died when it had written `written` of the last two of three descriptors.
    for written in 0..=2 {
        let (shared, progress) = (Shared::new(), memory());
        let mut driver = driver(&shared);
        let mut device = device(&shared, &progress, &config);
        let ids: Vec<u16> = (0..4).map(|_| driver.add(&[buffer]).unwrap()).collect();
        driver.publish();
        assert_eq!(device.take(1), Ok(1));
        device.complete(10);
        device.publish();
        assert_eq!(driver.poll().unwrap().unwrap().id, ids[0]);
        let (before, mut record) = (shared.read(BASE, ring.end), [0; 16]);
        progress.read(64, &mut record);
        assert_eq!(device.take(3), Ok(3));
        for bytes in [20, 21, 22] {
            device.complete(bytes);
        }
        device.publish();
        drop(device);
        // Of the record, only the end position of the burst was written.
        progress.read(64, &mut record[2..4]);
        progress.write(64, &record);
        let after = shared.read(BASE, ring.end);
        let mut torn = before.clone();
        let parts = 2 * 16..(2 + written) * 16;
        torn[parts.clone()].copy_from_slice(&after[parts]);
        shared.write(BASE, &torn);
        assert_eq!(driver.poll(), Ok(None));
        let mut device = self::device(&shared, &progress, &config);
        for (id, bytes) in ids[1..].iter().zip([20, 21, 22]) {
            let used = driver.poll().unwrap().unwrap();
            assert_eq!((used.id, used.written), (*id, bytes), "{written}");
        }
        driver.add(&[buffer]).unwrap();
        driver.publish();
        assert_eq!(device.take(8), Ok(1));
    }
}

#[test]
fn driver_that_begins_anew_is_met_at_the_beginning() {
    let config = config(KIND);
    let buffer = DriverBuffer::readable(BASE + FREE, 4);
    // A device died at any point in its first laps, and the new driver has made any number
    // available.
    for served in 1..40 {
        for new in 0..=8 {
            let (shared, progress) = (Shared::new(), memory());
            let mut old = driver(&shared);
            let mut device = device(&shared, &progress, &config);
            for _ in 0..served {
                old.add(&[buffer]).unwrap();
                old.publish();
                assert_eq!(device.take(1), Ok(1));
                device.complete(0);
                device.publish();
                old.poll().unwrap().unwrap();
            }
            drop(device);
            shared.write(BASE, &[0; 8 * 16]);
            let mut driver = driver(&shared);
            for _ in 0..new {
                driver.add(&[buffer]).unwrap();
            }
            driver.publish();
            let mut device = self::device(&shared, &progress, &config);
            assert_eq!(device.take(8), Ok(new), "{served} served, {new} new");
            // The new driver's first chain is at the first position.
            assert_eq!(device.position() >> 16, PackedPosition::START >> 16);
        }
    }
}

#[test]
fn ring_that_was_stopped_begins_where_its_front_end_says() {
    let (shared, progress) = (Shared::new(), memory());
    let mut config = config(KIND);
    let mut driver = driver(&shared);
    let buffer = DriverBuffer::readable(BASE + FREE, 4);
    let mut first = device(&shared, &progress, &config);
    for _ in 0..3 {
        driver.add(&[buffer]).unwrap();
    }
    driver.publish();
    assert_eq!(first.take(2), Ok(2));
    first.complete(0);
    first.complete(0);
    first.publish();
    config.position = first.position();
    let ring = PackedProgress::new(Arc::clone(&progress), 64).unwrap();
    assert!(ring.is_running());
    ring.forget();
    assert!(!ring.is_running());
    let mut next = PackedDevice::new(&shared.memory, &config).unwrap();
    next.set_progress(ring, &config, config.position);
    assert_eq!(next.take(8), Ok(1));
    assert!(PackedProgress::new(Arc::clone(&progress), 4096).is_none());
    assert!(PackedProgress::new(progress, 4).is_none());
}
