//! One ring in one process: what it carries, when it is full, and when an end must be woken.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::os::fd::AsFd;
use std::sync::Arc;

use carina_ring::{
    Consumer, Producer, Refused, RingMap, State, WakeMode, record_cost, region_bytes,
};
use carina_sys::Memory;

fn pair(capacity: usize) -> (Producer, Consumer) {
    let memory = Memory::anonymous("test", region_bytes(capacity)).unwrap();
    let map = Arc::new(RingMap::map(memory.as_fd(), 0, capacity).unwrap());
    map.init();
    (
        Producer::fresh(map.clone(), WakeMode::Fence),
        Consumer::fresh(map, WakeMode::Fence),
    )
}

#[test]
fn pieces_arrive_in_order_with_their_marks() {
    let (mut tx, mut rx) = pair(4096);
    tx.push(&[b"head", b"", b"er"], true).unwrap();
    tx.push(&[], false).unwrap();
    assert!(
        rx.next().unwrap().is_none(),
        "nothing is visible before publish"
    );
    assert!(!tx.publish(), "nobody sleeps");
    let (first, second) = (rx.next().unwrap().unwrap(), rx.next().unwrap().unwrap());
    assert_eq!(
        (first.to_vec().as_slice(), first.more()),
        (&b"header"[..], true)
    );
    assert!(second.is_empty() && !second.more());
    assert!(rx.next().unwrap().is_none());
    assert_eq!(rx.consumed(), (record_cost(6) + record_cost(0)) as u64);
}

#[test]
fn record_across_the_seam_is_contiguous() {
    let (mut tx, mut rx) = pair(4096);
    let long: Vec<u8> = (0..3000).map(|byte| byte as u8).collect();
    for round in 0..50 {
        tx.push(&[&long[round..]], false).unwrap();
        let _ = tx.publish();
        let lease = rx.next().unwrap().unwrap();
        assert_eq!(lease.to_vec(), long[round..]);
        let _ = rx.release();
    }
}

#[test]
fn longest_piece_fills_the_ring_and_one_byte_more_is_refused() {
    let (mut tx, mut rx) = pair(4096);
    let bytes = vec![1; 4089];
    assert_eq!(
        tx.push(&[&bytes], false),
        Err(Refused::TooLong {
            len: 4089,
            len_max: 4088
        })
    );
    tx.push(&[&bytes[..4088]], false).unwrap();
    assert_eq!(tx.push(&[], false), Err(Refused::Full));
    assert_eq!(tx.free_bytes().unwrap(), 0);
    let _ = tx.publish();
    assert_eq!(rx.pending_bytes().unwrap(), 4096);
    assert_eq!(rx.next().unwrap().unwrap().len(), 4088);
    assert_eq!(
        tx.push(&[], false),
        Err(Refused::Full),
        "read is not released"
    );
    let _ = rx.release();
    tx.push(&[], false).unwrap();
}

#[test]
fn dropped_slot_leaves_no_trace_short_commit_keeps_a_prefix() {
    let (mut tx, mut rx) = pair(4096);
    {
        let mut slot = tx.reserve(100).unwrap();
        slot.write_at(0, b"lost");
    }
    let mut slot = tx.reserve(100).unwrap();
    slot.write_at(0, b"kept");
    slot.commit_len(4, false);
    let _ = tx.publish();
    assert_eq!(rx.next().unwrap().unwrap().to_vec(), b"kept");
    assert!(rx.next().unwrap().is_none());
}

#[test]
fn burst_is_released_in_parts() {
    let (mut tx, mut rx) = pair(4096);
    for byte in 0..4 {
        tx.push(&[&[byte; 1000]], false).unwrap();
    }
    let _ = tx.publish();
    let burst: Vec<_> = std::iter::from_fn(|| rx.next().unwrap()).collect();
    assert_eq!(burst.len(), 4);
    let _ = rx.release_upto(&burst[1]);
    assert_eq!(tx.free_bytes().unwrap(), 4096 - 2 * 1008);
    let _ = rx.release_upto(&burst[0]);
    assert_eq!(
        rx.released(),
        burst[1].end(),
        "releasing again changes nothing"
    );
    let _ = rx.release_to(burst[3].start());
    assert_eq!(rx.released(), burst[2].end());
}

#[test]
#[should_panic(expected = "release of")]
fn release_of_what_was_not_read_panics() {
    let (mut tx, mut rx) = pair(4096);
    tx.push(&[b"x"], false).unwrap();
    let _ = tx.publish();
    let _ = rx.release_to(16);
}

#[test]
fn lazy_release_gathers_an_eighth_or_waits_for_the_end() {
    let (mut tx, mut rx) = pair(4096);
    for _ in 0..22 {
        tx.push(&[&[0; 92]], false).unwrap();
    }
    let _ = tx.publish();
    let mut releases = Vec::new();
    while rx.peek().unwrap().is_some() {
        rx.skip();
        let _ = rx.release_lazily();
        releases.push(rx.released());
    }
    releases.dedup();
    assert_eq!(releases, [0, 520, 1040, 1560, 2080, 2288]);
}

#[test]
fn view_of_a_lease_can_be_cut_and_copied_to_another_ring() {
    let (mut tx, mut rx) = pair(4096);
    let (mut out, mut far) = pair(4096);
    tx.push(&[b"0123456789"], true).unwrap();
    let _ = tx.publish();
    let mut lease = rx.next().unwrap().unwrap();
    assert_eq!(lease.copy_prefix::<4>(), Some(*b"0123"));
    assert_eq!(lease.copy_prefix::<11>(), None);
    lease.advance(2);
    lease.truncate(6);
    let mut slot = out.reserve(2 + lease.len()).unwrap();
    slot.write_at(0, b"->");
    slot.copy_from(&lease, 2);
    slot.commit(lease.more());
    let mut slot = out.reserve(2).unwrap();
    slot.copy_part(&lease, 4, 0, 2);
    slot.commit(false);
    let _ = out.publish();
    assert_eq!(far.next().unwrap().unwrap().to_vec(), b"->234567");
    assert_eq!(far.next().unwrap().unwrap().to_vec(), b"67");
    assert_eq!(lease.cost(), record_cost(10) as u64);
}

#[test]
fn lease_outlives_both_ends() {
    let (mut tx, mut rx) = pair(4096);
    tx.push(&[b"still here"], false).unwrap();
    let _ = tx.publish();
    let lease = rx.next().unwrap().unwrap();
    drop((tx, rx));
    assert_eq!(lease.to_vec(), b"still here");
}

#[test]
fn armed_consumer_is_rung_for_once() {
    let (mut tx, mut rx) = pair(4096);
    assert!(rx.arm());
    tx.push(&[b"a"], false).unwrap();
    assert!(tx.publish());
    tx.push(&[b"b"], false).unwrap();
    assert!(!tx.publish(), "one doorbell per sleep");
    assert!(!rx.arm(), "there is something to read");
    while rx.next().unwrap().is_some() {}
    assert!(rx.arm());
    rx.disarm();
    tx.push(&[b"c"], false).unwrap();
    assert!(!tx.publish());
}

#[test]
fn waiting_producer_is_rung_when_its_want_is_reached() {
    let (mut tx, mut rx) = pair(4096);
    for _ in 0..4 {
        tx.push(&[&[0; 1016]], false).unwrap();
    }
    let _ = tx.publish();
    assert!(tx.arm_space(2000).unwrap());
    let _ = rx.next().unwrap();
    assert!(!rx.release(), "1024 of 2000 bytes");
    let _ = rx.next().unwrap();
    assert!(rx.release());
    assert!(!tx.arm_space(2048).unwrap(), "the room is there");
    let _ = rx.next().unwrap();
    assert!(!rx.release(), "one doorbell per sleep");
}

#[test]
fn close_ends_the_stream_behind_what_was_sent() {
    let (mut tx, mut rx) = pair(4096);
    assert!(rx.arm());
    tx.push(&[b"last"], false).unwrap();
    assert!(tx.close(State::Closed));
    assert_eq!(rx.ended().unwrap(), None);
    assert_eq!(rx.next().unwrap().unwrap().to_vec(), b"last");
    assert_eq!(rx.ended().unwrap(), Some(State::Closed));
    assert!(rx.arm(), "a known end is no reason to stay awake");
    rx.map().set_state(State::Failed);
    assert!(!rx.arm(), "a new one is");
    assert_eq!(rx.ended().unwrap(), Some(State::Failed));
}

#[test]
fn new_ends_resume_where_the_old_ones_stood() {
    let (mut tx, mut rx) = pair(4096);
    for text in [b"one", b"two"] {
        tx.push(&[text], false).unwrap();
    }
    let _ = tx.publish();
    let _ = rx.next().unwrap();
    let _ = rx.release();
    let map = tx.map().clone();
    drop((tx, rx));
    let mut tx = Producer::new(map.clone(), WakeMode::Fence).unwrap();
    let mut rx = Consumer::new(map, WakeMode::Fence).unwrap();
    tx.push(&[b"six"], false).unwrap();
    let _ = tx.publish();
    assert_eq!(rx.next().unwrap().unwrap().to_vec(), b"two");
    assert_eq!(rx.next().unwrap().unwrap().to_vec(), b"six");
}

#[test]
fn impossible_capacities_are_refused() {
    let memory = Memory::anonymous("test", region_bytes(8192)).unwrap();
    for capacity in [0, 2048, 6144, 1 << 32, 16384] {
        assert!(
            RingMap::map(memory.as_fd(), 0, capacity).is_err(),
            "{capacity}"
        );
    }
}

#[test]
fn a_lease_over_foreign_memory_sees_the_bytes_behind_the_page() {
    let memory = carina_sys::Memory::anonymous("foreign", 8192).unwrap();
    memory.map().unwrap().write(5000, b"payload");
    let mapping = carina_sys::Mapping::behind_page(memory.as_fd(), 8192).unwrap();
    let map = Arc::new(carina_ring::RingMap::foreign(mapping, 8192).unwrap());
    let mut lease = carina_ring::Lease::over(&map, 5000, 7);
    lease.advance(3);
    assert_eq!(lease.to_vec(), b"load");
    assert!(
        std::panic::catch_unwind(|| carina_ring::Lease::over(&map, 8190, 3)).is_err(),
        "a view beyond the memory"
    );
    let short = carina_sys::Mapping::behind_page(memory.as_fd(), 4096).unwrap();
    assert!(carina_ring::RingMap::foreign(short, 8192).is_err());
}
