//! Loom models: every interleaving of small runs. No wake-up is lost (loom reports that as a
//! deadlock), and no data is accessed that the indices do not order.
//!
//! `cargo test -p carina-ring-model`

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;

use carina_ring::between::{Receiver, SleepFlag, queue};
use carina_ring::{Consumer, Producer, Refused, RingMap, State, WakeMode};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// A model of an eventfd: it stays signalled until it is drained.
#[derive(Default)]
struct Doorbell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    fn signal(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait_and_drain(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Capacity in bytes: room for two records of one word each.
const CAPACITY: usize = 32;

fn produce(tx: &mut Producer, data: &Doorbell, space: &Doorbell, messages: u64) {
    for message in 0..messages {
        loop {
            match tx.push(&[&message.to_le_bytes()], false) {
                Ok(()) => break,
                Err(Refused::Full) => {}
                Err(other) => panic!("{other}"),
            }
            if tx.arm_space(16).unwrap() {
                space.wait_and_drain();
                tx.disarm();
            }
        }
        if tx.publish() {
            data.signal();
        }
    }
}

fn consume_one(rx: &mut Consumer, data: &Doorbell, space: &Doorbell, expected: u64, lazily: bool) {
    loop {
        if let Some(lease) = rx.next().unwrap() {
            assert_eq!(lease.copy_prefix::<8>(), Some(expected.to_le_bytes()));
            if if lazily {
                rx.release_lazily()
            } else {
                rx.release()
            } {
                space.signal();
            }
            return;
        }
        if rx.arm() {
            data.wait_and_drain();
            rx.disarm();
        }
    }
}

fn check(mode: WakeMode, messages: u64, lazily: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let map = Arc::new(RingMap::model(CAPACITY));
        let mut tx = Producer::fresh(map.clone(), mode);
        let mut rx = Consumer::fresh(map, mode);
        let doorbells = Arc::new((Doorbell::default(), Doorbell::default()));
        let theirs = doorbells.clone();
        let producer = thread::spawn(move || produce(&mut tx, &theirs.0, &theirs.1, messages));
        for message in 0..messages {
            consume_one(&mut rx, &doorbells.0, &doorbells.1, message, lazily);
        }
        producer.join().unwrap();
    });
}

#[test]
fn sleeping_consumer_is_woken_for_every_message() {
    check(WakeMode::Fence, 2, false);
}

#[test]
fn sleeping_producer_is_woken_for_room() {
    check(WakeMode::Fence, 4, false);
}

#[test]
fn lazy_release_does_not_leave_the_producer_asleep() {
    check(WakeMode::Fence, 4, true);
}

#[test]
fn light_mode_keeps_every_wake() {
    check(WakeMode::Light, 3, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn models_notice_when_nothing_orders_index_and_armed_word() {
    check(WakeMode::Unordered, 2, false);
}

#[test]
fn close_wakes_a_sleeping_consumer_behind_the_last_message() {
    loom::model(|| {
        let map = Arc::new(RingMap::model(CAPACITY));
        let mut tx = Producer::fresh(map.clone(), WakeMode::Fence);
        let mut rx = Consumer::fresh(map, WakeMode::Fence);
        let doorbell = Arc::new(Doorbell::default());
        let theirs = doorbell.clone();
        let producer = thread::spawn(move || {
            tx.push(&[b"farewell"], false).unwrap();
            if tx.close(State::Closed) {
                theirs.signal();
            }
        });
        let mut messages = 0;
        let state = loop {
            if rx.next().unwrap().is_some() {
                messages += 1;
                continue;
            }
            if let Some(state) = rx.ended().unwrap() {
                break state;
            }
            if rx.arm() {
                doorbell.wait_and_drain();
                rx.disarm();
            }
        };
        assert_eq!((messages, state), (1, State::Closed));
        producer.join().unwrap();
    });
}

/// One thread sends `messages` values, and rings when `must_ring` returns true. The other receives
/// them, and sleeps when it finds none.
fn check_between(messages: u64, preemptions: usize, must_ring: fn(&SleepFlag) -> bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let (mut sender, mut receiver) = queue::<Arc<u64>>(2);
        let doorbell = Arc::new((SleepFlag::new(), Doorbell::default()));
        let theirs = doorbell.clone();
        let thread = thread::spawn(move || {
            let mut message = 0;
            while message < messages {
                let mut next = Some(Arc::new(message));
                if sender.send(|| next.take()) == 0 {
                    thread::yield_now();
                    continue;
                }
                message += 1;
                if must_ring(&theirs.0) {
                    theirs.1.signal();
                }
            }
        });
        let mut expected = 0;
        while expected < messages {
            if take(&mut receiver, &mut expected) > 0 {
                continue;
            }
            doorbell.0.announce();
            if receiver.waiting() == 0 {
                doorbell.1.wait_and_drain();
            }
            doorbell.0.withdraw();
        }
        thread.join().unwrap();
    });
}

fn take(receiver: &mut Receiver<Arc<u64>>, expected: &mut u64) -> usize {
    receiver.receive(2, |value| {
        assert_eq!(*value, *expected);
        *expected += 1;
    })
}

#[test]
fn sleeping_thread_is_woken_for_every_value() {
    check_between(2, 3, SleepFlag::must_ring);
}

#[test]
fn full_queue_between_threads_loses_nothing() {
    check_between(3, 2, SleepFlag::must_ring);
}

#[test]
#[should_panic(expected = "deadlock")]
fn models_notice_a_flag_that_is_read_too_early() {
    check_between(2, 3, SleepFlag::must_ring_unordered);
}

#[test]
fn values_left_are_dropped_once_whichever_end_closes_last() {
    loom::model(|| {
        let value = Arc::new(0);
        let (mut sender, receiver) = queue(2);
        let mut next = Some(value.clone());
        let thread = thread::spawn(move || {
            sender.send(|| next.take());
            sender.close()
        });
        let lost = receiver.close() + thread.join().unwrap();
        assert_eq!((lost, Arc::strong_count(&value)), (1, 1));
    });
}
