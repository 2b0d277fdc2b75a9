//! A peer that writes false values to every word that it can write.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carina_ring::{
    Consumer, Corrupt, HEADER_BYTES, Producer, Refused, RingMap, State, WakeMode, region_bytes,
};
use carina_sys::{Mapping, Memory};

const CAPACITY: usize = 4096;
const TAIL: usize = 0x080;
const STATE: usize = 0x088;
const HEAD: usize = 0x180;
const PRODUCER_ARMED: usize = 0x200;
const PRODUCER_WANT: usize = 0x208;

/// A ring, with a second mapping through which the test acts as the peer.
fn ring() -> (Producer, Consumer, Mapping) {
    let memory = Memory::anonymous("hostile", region_bytes(CAPACITY)).unwrap();
    let map = Arc::new(RingMap::map(memory.as_fd(), 0, CAPACITY).unwrap());
    map.init();
    let tx = Producer::fresh(map.clone(), WakeMode::Fence);
    (
        tx,
        Consumer::fresh(map, WakeMode::Fence),
        memory.map().unwrap(),
    )
}

#[test]
fn tail_beyond_the_ring_is_corrupt() {
    let (_, mut rx, peer) = ring();
    for tail in [CAPACITY as u64 + 8, u64::MAX - 7, 1 << 63] {
        peer.atomic_u64(TAIL).store(tail, Relaxed);
        let expected = Corrupt::Tail {
            tail,
            from: 0,
            to: CAPACITY as u64,
        };
        assert_eq!(rx.next().unwrap_err(), expected);
        assert_eq!(rx.pending_bytes(), Err(expected));
        assert!(!rx.arm(), "no sleep on a broken ring");
    }
}

#[test]
fn tail_that_runs_backwards_is_corrupt() {
    let (mut tx, mut rx, peer) = ring();
    tx.push(&[&[0; 100]], false).unwrap();
    let _ = tx.publish();
    rx.next().unwrap().unwrap();
    let _ = rx.release();
    peer.atomic_u64(TAIL).store(8, Relaxed);
    assert!(matches!(rx.next(), Err(Corrupt::Tail { tail: 8, .. })));
}

#[test]
fn tail_over_leased_pieces_is_corrupt() {
    let (mut tx, mut rx, peer) = ring();
    tx.push(&[&[0; 1000]], false).unwrap();
    let _ = tx.publish();
    let _lease = rx.next().unwrap().unwrap();
    peer.atomic_u64(TAIL).store(CAPACITY as u64 + 8, Relaxed);
    assert!(matches!(rx.next(), Err(Corrupt::Tail { .. })));
}

#[test]
fn odd_indices_are_corrupt() {
    let (mut tx, mut rx, peer) = ring();
    peer.atomic_u64(TAIL).store(12, Relaxed);
    assert_eq!(rx.next().unwrap_err(), Corrupt::Unaligned { index: 12 });
    tx.push(&[&[0; 4000]], false).unwrap();
    let _ = tx.publish();
    peer.atomic_u64(HEAD).store(4, Relaxed);
    let error = tx.push(&[&[0; 4000]], false).unwrap_err();
    assert_eq!(error, Refused::Corrupt(Corrupt::Unaligned { index: 4 }));
}

#[test]
fn record_longer_than_what_was_published_is_corrupt() {
    let (_, mut rx, peer) = ring();
    peer.atomic_u64(TAIL).store(32, Relaxed);
    for len in [25, 4096, u32::MAX] {
        peer.atomic_u32(HEADER_BYTES).store(len, Relaxed);
        assert_eq!(
            rx.next().unwrap_err(),
            Corrupt::Length {
                len,
                at: 0,
                available: 24
            }
        );
    }
    peer.atomic_u32(HEADER_BYTES).store(24, Relaxed);
    assert_eq!(rx.next().unwrap().unwrap().len(), 24);
}

#[test]
fn undefined_flags_are_corrupt() {
    let (_, mut rx, peer) = ring();
    peer.atomic_u64(TAIL).store(8, Relaxed);
    peer.atomic_u32(HEADER_BYTES + 4).store(3, Relaxed);
    assert_eq!(rx.peek().unwrap_err(), Corrupt::Flags { flags: 3, at: 0 });
}

#[test]
fn length_changed_after_the_look_does_not_matter() {
    let (mut tx, mut rx, peer) = ring();
    tx.push(&[b"0123456789"], false).unwrap();
    let _ = tx.publish();
    assert_eq!(rx.peek().unwrap().unwrap().len(), 10);
    peer.atomic_u32(HEADER_BYTES).store(u32::MAX, Relaxed);
    assert_eq!(rx.peek().unwrap().unwrap().len(), 10);
    rx.skip();
    assert_eq!(rx.consumed(), 24);
    assert!(rx.next().unwrap().is_none());
}

#[test]
fn head_beyond_what_was_published_is_corrupt_and_takes_no_room() {
    let (mut tx, _, peer) = ring();
    tx.push(&[&[0; 4000]], false).unwrap();
    let _ = tx.publish();
    for head in [4016, u64::MAX - 7] {
        peer.atomic_u64(HEAD).store(head, Relaxed);
        let error = tx.push(&[&[0; 1000]], false).unwrap_err();
        let expected = Corrupt::Head {
            head,
            from: 0,
            to: 4008,
        };
        assert_eq!(error, Refused::Corrupt(expected));
        assert_eq!(tx.free_bytes(), Err(expected));
        assert_eq!(
            tx.arm_space(1000),
            Err(expected),
            "no sleep on a broken ring"
        );
        assert!(!tx.push_sdu(&[0; 1000]), "no room either");
    }
}

/// An idle ring has room for everything, so no attempt to write reads the consumer's index.
#[test]
fn corrupt_head_of_an_empty_ring_is_no_full_ring() {
    let (mut tx, _, peer) = ring();
    for head in [0xdead_0000_0001, 8, u64::MAX - 7] {
        peer.atomic_u64(HEAD).store(head, Relaxed);
        let expected = Corrupt::Head {
            head,
            from: 0,
            to: 0,
        };
        assert!(tx.reserve(100).is_ok());
        assert_eq!(tx.free_bytes(), Err(expected));
        assert_eq!(tx.arm_space(CAPACITY), Err(expected));
    }
    peer.atomic_u64(HEAD).store(0, Relaxed);
    assert_eq!(tx.free_bytes(), Ok(CAPACITY));
}

#[test]
fn head_over_committed_but_unpublished_records_is_corrupt() {
    let (mut tx, _, peer) = ring();
    tx.push(&[&[0; 4000]], false).unwrap();
    peer.atomic_u64(HEAD).store(4008, Relaxed);
    assert!(matches!(
        tx.push(&[&[0; 1000]], false),
        Err(Refused::Corrupt(_))
    ));
}

#[test]
fn own_words_overwritten_by_the_peer_do_not_matter() {
    let (mut tx, mut rx, peer) = ring();
    tx.push(&[b"one"], false).unwrap();
    peer.atomic_u64(TAIL).store(u64::MAX, Relaxed);
    let _ = tx.publish();
    assert_eq!(rx.next().unwrap().unwrap().to_vec(), b"one");
    peer.atomic_u64(HEAD).store(u64::MAX, Relaxed);
    let _ = rx.release();
    assert_eq!(tx.free_bytes(), Ok(CAPACITY));
}

#[test]
fn absurd_wants_of_a_producer_only_cost_it_a_doorbell() {
    let (mut tx, mut rx, peer) = ring();
    for want in [0, 1, CAPACITY as u64, u64::MAX] {
        tx.push(&[b"x"], false).unwrap();
        let _ = tx.publish();
        rx.next().unwrap().unwrap();
        peer.atomic_u64(PRODUCER_WANT).store(want, Relaxed);
        peer.atomic_u32(PRODUCER_ARMED).store(u32::MAX, Relaxed);
        assert!(rx.release(), "all is free, so any want is reached");
    }
}

#[test]
fn unknown_state_reads_as_failed() {
    let (_, mut rx, peer) = ring();
    peer.atomic_u32(STATE).store(77, Relaxed);
    assert_eq!(rx.state(), State::Failed);
}

#[test]
fn resuming_over_impossible_indices_is_refused() {
    let (tx, _, peer) = ring();
    let map = tx.map().clone();
    for (tail, head) in [(8192, 0), (0, 8), (12, 8), (8, 4), (u64::MAX, 0)] {
        peer.atomic_u64(TAIL).store(tail, Relaxed);
        peer.atomic_u64(HEAD).store(head, Relaxed);
        assert!(
            Producer::new(map.clone(), WakeMode::Fence).is_err(),
            "{tail} {head}"
        );
        assert!(
            Consumer::new(map.clone(), WakeMode::Fence).is_err(),
            "{tail} {head}"
        );
    }
}

#[test]
fn contents_that_change_during_a_copy_are_only_torn() {
    let (mut tx, mut rx, peer) = ring();
    tx.push(&[&[0x11; 2000]], false).unwrap();
    let _ = tx.publish();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                peer.write(HEADER_BYTES + 8, &[0x22; 2000]);
                peer.write(HEADER_BYTES + 8, &[0x11; 2000]);
            }
        });
        let lease = rx.next().unwrap().unwrap();
        for _ in 0..200 {
            assert!(
                lease
                    .to_vec()
                    .iter()
                    .all(|byte| [0x11, 0x22].contains(byte))
            );
        }
        stop.store(true, Relaxed);
    });
}

/// Any process that has the file open may truncate it, unless it is a sealed memfd.
#[test]
fn ring_whose_file_was_cut_short_is_lost_alone() {
    let name = format!("carina-hostile-ring-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    for left in [0, HEADER_BYTES] {
        let memory = Memory::file(&path, region_bytes(CAPACITY)).unwrap();
        let map = Arc::new(RingMap::map(memory.as_fd(), 0, CAPACITY).unwrap());
        map.init();
        let mut tx = Producer::fresh(map.clone(), WakeMode::Fence);
        let mut rx = Consumer::fresh(map.clone(), WakeMode::Fence);
        tx.push(&[b"one"], false).unwrap();
        let _ = tx.publish();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(left as u64).unwrap();
        std::fs::remove_file(&path).unwrap();
        // The first access to a lost page still succeeds; the next check of the memory finds the
        // loss.
        let _ = (tx.push(&[b"two"], false), tx.publish());
        let _ = rx.next().map(|lease| lease.map(|lease| lease.to_vec()));
        assert!(map.is_lost());
        assert_eq!(tx.free_bytes(), Err(Corrupt::MemoryLost));
        assert_eq!(rx.pending_bytes(), Err(Corrupt::MemoryLost));
        assert_eq!(tx.arm_space(8), Err(Corrupt::MemoryLost));
        assert!(!rx.arm());
    }
}
