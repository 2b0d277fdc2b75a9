//! Kicks and signals: an end sends them only on request, and never too few.

use std::thread;
use std::time::Duration;

use carina_sys::EventFd;
use carina_vring::DriverBuffer;

use crate::pair::{BASE, FREE, pairs};

#[test]
fn peers_are_notified_once_when_they_ask() {
    for mut pair in pairs(8) {
        let buffer = DriverBuffer::readable(BASE + FREE, 4);
        pair.device.disarm();
        pair.driver.disarm();
        for round in 0..30 {
            pair.driver.add(&[buffer]).unwrap();
            pair.driver.publish();
            assert!(!pair.driver.wants_kick(), "{:?} {round}", pair.kind);
            assert!(!pair.device.arm());
            assert_eq!(pair.device.take(8), Ok(1));
            pair.device.complete(0);
            assert!(pair.device.arm());
            pair.driver.add(&[buffer]).unwrap();
            assert!(!pair.driver.wants_kick());
            pair.driver.publish();
            assert!(pair.driver.wants_kick());
            assert!(!pair.driver.wants_kick());
            pair.device.disarm();

            pair.device.publish();
            assert!(!pair.device.wants_signal());
            assert!(!pair.driver.arm());
            assert!(pair.driver.poll().unwrap().is_some());
            assert!(pair.driver.arm());
            assert_eq!(pair.device.take(8), Ok(1));
            pair.device.complete(0);
            pair.device.publish();
            assert!(pair.device.wants_signal());
            assert!(!pair.device.wants_signal());
            pair.driver.disarm();
            assert!(pair.driver.poll().unwrap().is_some());
        }
    }
}

#[test]
fn sleeping_ends_lose_no_notification() {
    for mut pair in pairs(16) {
        let (kick, call) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let (kicked, called) = (kick.try_clone().unwrap(), call.try_clone().unwrap());
        let mut device = pair.device;
        let second = Some(Duration::from_secs(20).as_nanos() as u64);
        let worker = thread::spawn(move || {
            let mut count = 0;
            while count < CHAINS {
                let taken = device.take(5).unwrap();
                if taken == 0 {
                    if device.arm() {
                        assert!(kicked.wait(second).unwrap(), "no kick after {count}");
                        kicked.drain();
                    }
                    device.disarm();
                    continue;
                }
                for _ in 0..taken {
                    device.complete(count as u32);
                    count += 1;
                }
                device.publish();
                if device.wants_signal() {
                    call.signal();
                }
            }
        });
        let buffer = DriverBuffer::readable(BASE + FREE, 4);
        let (mut added, mut returned) = (0, 0);
        while returned < CHAINS {
            let before = (added, returned);
            while added < CHAINS && pair.driver.add(&[buffer; 3][..1 + added % 3]).is_ok() {
                added += 1;
            }
            pair.driver.publish();
            if pair.driver.wants_kick() {
                kick.signal();
            }
            while let Some(used) = pair.driver.poll().unwrap() {
                assert_eq!(used.written, returned as u32);
                returned += 1;
            }
            if before == (added, returned) {
                if pair.driver.arm() {
                    assert!(called.wait(second).unwrap(), "no signal after {returned}");
                    called.drain();
                }
                pair.driver.disarm();
            }
        }
        worker.join().unwrap();
    }
}

const CHAINS: usize = 20_000;
