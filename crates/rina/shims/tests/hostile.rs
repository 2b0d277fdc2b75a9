//! Applications and guests that write garbage: they lose their flows or their link, and others go
//! unharmed.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use carina_ring::State;

use crate::pair::{self, Pair, closed_reason};

#[test]
fn application_that_scribbles_over_its_ring_loses_its_flow() {
    let mut pair = Pair::up();
    let (hostile, mut victim_peer, port, guest_port) = pair.flow();
    let (mut honest, mut honest_peer, ..) = pair.flow();
    // The attacker uses its own mapping, like an application, and overwrites both rings.
    let [memory, my_rx, my_tx, peer_rx, peer_tx] = hostile
        .memory
        .endpoint_fds(carina_ring::channel::Side::B)
        .unwrap();
    let bytes = 2 * carina_ring::region_bytes(pair::RING);
    let map = carina_sys::Memory::from_fd(memory, bytes)
        .unwrap()
        .map()
        .unwrap();
    map.write(0, &vec![0xa5; bytes]);
    for doorbell in [my_rx, my_tx, peer_rx, peer_tx] {
        carina_sys::Doorbell::from_fd(doorbell).unwrap().signal();
    }
    let reason = closed_reason(&pair.host, port);
    assert!(
        reason.starts_with("the application broke its flow"),
        "{reason}"
    );
    assert_eq!(victim_peer.recv(), Err(State::Failed));
    closed_reason(&pair.guest, guest_port);
    for n in 0..1_000u64 {
        honest.send(&n.to_le_bytes());
        assert_eq!(honest_peer.recv().unwrap(), n.to_le_bytes());
    }
}

#[test]
fn peer_that_scribbles_over_the_region_is_cut_off() {
    let mut pair = Pair::up();
    let (mut host_app, _guest_app, port, _) = pair.flow();
    let map = pair.region.memory().map().unwrap();
    map.write(4096, &vec![0xa5; map.len() - 4096]);
    assert_eq!(host_app.recv(), Err(State::Failed));
    closed_reason(&pair.host, port);
    assert!(pair.host.is_running());
}

/// The guest overwrites one index: how far it has read an empty ring.
#[test]
fn corrupt_index_of_a_quiet_link_resets_it() {
    let mut pair = Pair::up();
    let (mut host_app, _guest_app, port, _) = pair.flow();
    let map = pair.region.memory().map().unwrap();
    map.write(4096 + 0x180, &0xdead_0000_0001_u64.to_le_bytes());
    assert_eq!(host_app.recv(), Err(State::Failed));
    let reason = closed_reason(&pair.host, port);
    assert!(reason.contains("head 0xdead00000001"), "{reason}");
    pair.wait_up();
    let (mut a, mut b, ..) = pair.flow();
    a.send(b"after");
    assert_eq!(b.recv().unwrap(), b"after");
}

#[test]
fn application_that_corrupts_its_read_index_loses_its_flow() {
    let mut pair = Pair::up();
    let (hostile, mut victim_peer, port, _) = pair.flow();
    let [memory, _, _, peer_rx, _] = hostile
        .memory
        .endpoint_fds(carina_ring::channel::Side::B)
        .unwrap();
    let bytes = 2 * carina_ring::region_bytes(pair::RING);
    let memory = carina_sys::Memory::from_fd(memory, bytes).unwrap();
    let map = memory.map().unwrap();
    victim_peer.send(b"something to read");
    // The application overwrites an index of the ring that the node writes.
    map.write(0x180, &0xdead_0000_0001_u64.to_le_bytes());
    carina_sys::Doorbell::from_fd(peer_rx).unwrap().signal();
    let reason = closed_reason(&pair.host, port);
    assert!(reason.contains("head 0xdead00000001"), "{reason}");
    assert_eq!(victim_peer.recv(), Err(State::Failed));
}

#[test]
fn application_that_jams_its_doorbells_delays_no_other() {
    let mut pair = Pair::up();
    let (mut hostile, mut peer, ..) = pair.flow();
    let (mut honest, mut honest_peer, ..) = pair.flow();
    let [_, my_rx, my_tx, ..] = hostile
        .memory
        .endpoint_fds(carina_ring::channel::Side::B)
        .unwrap();
    for doorbell in [my_rx, my_tx] {
        while rustix::io::write(&doorbell, &[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&doorbell, false).unwrap();
    }
    // The ring is armed, so that the data plane rings as soon as an SDU arrives.
    assert!(hostile.end.rx.arm());
    peer.send(b"ring");
    for n in 0..1_000u64 {
        honest.send(&n.to_le_bytes());
        assert_eq!(honest_peer.recv().unwrap(), n.to_le_bytes());
    }
}
