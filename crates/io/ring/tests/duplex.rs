//! Two ends of a channel in two threads, sleeping and waking through the doorbells.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use carina_ring::channel::{ChannelMemory, Endpoint, Side};
use carina_ring::waiting::AdaptiveSpin;
use carina_ring::{Refused, State, WakeMode};
use carina_sys::membarrier_register;

/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE_NS: u64 = 120_000_000_000;

fn send(end: &mut Endpoint, spin: &mut AdaptiveSpin, bytes: &[u8]) {
    let cost = end.tx.record_cost(bytes.len());
    loop {
        match end.tx.push(&[bytes], false) {
            Ok(()) => return end.publish(),
            Err(Refused::Full) => {}
            Err(other) => panic!("{other}"),
        }
        if !spin.until(|| end.tx.free_bytes().unwrap() >= cost) && end.tx.arm_space(cost).unwrap() {
            assert!(
                end.my_tx_doorbell.wait(Some(PATIENCE_NS)).unwrap(),
                "lost wake of a sender"
            );
            end.my_tx_doorbell.drain();
            end.tx.disarm();
        }
    }
}

fn receive(end: &mut Endpoint, spin: &mut AdaptiveSpin, buffer: &mut [u8]) -> Option<usize> {
    loop {
        if let Some(piece) = end.rx.peek().unwrap() {
            let len = piece.copy_to(buffer);
            end.rx.skip();
            end.release_lazily();
            return Some(len);
        }
        if let Some(state) = end.rx.ended().unwrap() {
            assert_eq!(state, State::Closed);
            return None;
        }
        if !spin.until(|| end.rx.pending_bytes().unwrap() > 0) && end.rx.arm() {
            assert!(
                end.my_rx_doorbell.wait(Some(PATIENCE_NS)).unwrap(),
                "lost wake of a reader"
            );
            end.my_rx_doorbell.drain();
            end.rx.disarm();
        }
    }
}

/// Both directions at once: A floods B, B echoes sums, and both sleep as often as possible.
fn run(mode: WakeMode, spin_ns: u64, messages: u32, capacity: usize) {
    let memory = ChannelMemory::create(capacity).unwrap();
    let mut a = memory.endpoint(Side::A, mode).unwrap();
    let fds = memory.endpoint_fds(Side::B).unwrap();
    let mut b = Endpoint::from_fds(capacity, Side::B, mode, fds).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut spin, mut buffer) = (AdaptiveSpin::with_max_ns(spin_ns), vec![0; capacity]);
        while let Some(len) = receive(&mut b, &mut spin, &mut buffer) {
            let sum: u64 = buffer[..len].iter().map(|byte| u64::from(*byte)).sum();
            send(&mut b, &mut spin, &sum.to_le_bytes());
        }
        b.close(State::Closed);
    });
    let (mut spin, mut buffer) = (AdaptiveSpin::with_max_ns(spin_ns), [0; 8]);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut expected = std::collections::VecDeque::new();
    for _ in 0..messages {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let bytes = vec![(random >> 40) as u8; (random >> 50) as usize % (capacity / 3)];
        expected.push_back(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        send(&mut a, &mut spin, &bytes);
        // Answers are small, but too many unread answers would fill their ring and block the echo.
        while expected.len() > if random & 64 == 0 { 0 } else { 100 } {
            assert_eq!(receive(&mut a, &mut spin, &mut buffer), Some(8));
            assert_eq!(expected.pop_front(), Some(u64::from_le_bytes(buffer)));
        }
    }
    a.close(State::Closed);
    for sum in expected {
        assert_eq!(receive(&mut a, &mut spin, &mut buffer), Some(8));
        assert_eq!(sum, u64::from_le_bytes(buffer));
    }
    assert_eq!(receive(&mut a, &mut spin, &mut buffer), None);
    echo.join().unwrap();
}

#[test]
fn no_message_and_no_wake_is_lost_with_fences() {
    run(WakeMode::Fence, 0, 20_000, 4096);
    run(WakeMode::Fence, 50_000, 20_000, 16384);
}

#[test]
fn no_message_and_no_wake_is_lost_with_membarrier() {
    if !membarrier_register() {
        println!("SKIP: the kernel has no expedited global membarrier");
        return;
    }
    run(WakeMode::Light, 0, 20_000, 4096);
    run(WakeMode::Light, 50_000, 20_000, 16384);
}

#[test]
fn death_of_one_end_wakes_the_other_and_says_failed() {
    let memory = ChannelMemory::create(4096).unwrap();
    let mut a = memory.endpoint(Side::A, WakeMode::Fence).unwrap();
    let mut b = memory.endpoint(Side::B, WakeMode::Fence).unwrap();
    a.tx.push(&[b"last words"], false).unwrap();
    a.publish();
    drop(a);
    memory.fail(Side::A);
    assert!(b.my_rx_doorbell.wait(Some(0)).unwrap() && b.my_tx_doorbell.wait(Some(0)).unwrap());
    assert_eq!(b.rx.next().unwrap().unwrap().to_vec(), b"last words");
    assert_eq!(b.rx.ended().unwrap(), Some(State::Failed));
    assert_eq!(memory.state(Side::B), State::Open);
}

#[test]
fn stream_closed_before_death_stays_closed() {
    let memory = ChannelMemory::create(4096).unwrap();
    memory
        .endpoint(Side::A, WakeMode::Fence)
        .unwrap()
        .close(State::Closed);
    memory.fail(Side::A);
    assert_eq!(memory.state(Side::A), State::Closed);
}

#[test]
fn wrong_memory_for_an_end_is_refused() {
    let memory = ChannelMemory::create(4096).unwrap();
    let fds = memory.endpoint_fds(Side::B).unwrap();
    assert!(Endpoint::from_fds(8192, Side::B, WakeMode::Fence, fds).is_err());
    let fds = memory.endpoint_fds(Side::B).unwrap();
    assert!(Endpoint::from_fds(5000, Side::B, WakeMode::Fence, fds).is_err());
    assert!(ChannelMemory::create(100).is_err());
}
