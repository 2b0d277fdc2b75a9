//! Every interleaving of small runs: no lost wake (loom reports it as a deadlock), no access to
//! data that the indices do not order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p carina-ring --test loom --release`

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![cfg(loom)]

use std::sync::Arc;

use carina_ring::{Consumer, Producer, Refused, RingMap, State, WakeMode};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// An eventfd: stays rung until drained.
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

/// Two records of one word each fit.
const CAPACITY: usize = 32;

fn produce(tx: &mut Producer, data: &Doorbell, space: &Doorbell, messages: u64) {
    for message in 0..messages {
        loop {
            match tx.push(&[&message.to_le_bytes()], false) {
                Ok(()) => break,
                Err(Refused::Full) => {}
                Err(other) => panic!("{other}"),
            }
            if tx.arm_space(16) {
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
