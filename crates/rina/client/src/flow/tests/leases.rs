//! SDUs that are held in place in the ring.

use super::*;
use crate::recv::{Leased, SduLease};

fn lease(receiver: &mut FlowReceiver) -> SduLease {
    match receiver.try_lease(usize::MAX).unwrap().unwrap() {
        Leased::InPlace(lease) => lease,
        Leased::Copied(copy) => panic!("{} bytes were copied", copy.len()),
    }
}

#[test]
fn leases_return_space_in_the_order_of_the_ring() {
    let Pair { a, b, node: _node } = pair(4096, u64::MAX);
    let ((mut sender, _a), (_b, mut receiver)) = (a.split(), b.split());
    let sdu = vec![7; sender.piece_max()];
    let mut sent = 0;
    while sender.try_send(&sdu).unwrap() {
        sent += 1;
    }
    let mut leases: Vec<_> = (0..sent).map(|_| lease(&mut receiver)).collect();
    assert!(receiver.try_lease(usize::MAX).unwrap().is_none());
    drop(leases.pop());
    receiver.release_leases();
    assert!(!sender.try_send(&sdu).unwrap(), "the first is still held");
    assert!(leases.iter().all(|lease| lease.to_vec() == sdu));
    drop(leases);
    receiver.release_leases();
    for _ in 0..sent {
        assert!(sender.try_send(&sdu).unwrap());
    }
}

#[test]
fn lease_outlives_its_flow_and_the_next_sdus() {
    let Pair { mut a, b, node } = pair(4096, u64::MAX);
    let (sender, mut receiver) = b.split();
    a.send(b"kept").unwrap();
    a.send(b"next").unwrap();
    let kept = lease(&mut receiver);
    let next = receiver.try_recv_with(usize::MAX, |length, copy| {
        let mut bytes = vec![0; length];
        copy(&mut bytes);
        bytes
    });
    assert_eq!(next.unwrap().unwrap(), b"next");
    drop((a, sender, receiver, node));
    assert_eq!(kept.to_vec(), b"kept");
}

#[test]
fn sdu_in_several_fragments_is_copied_whole() {
    let Pair {
        mut a,
        b,
        node: _node,
    } = pair(4096, u64::MAX);
    let (_sender, mut receiver) = b.split();
    let sdu: Vec<u8> = (0..3000).map(|at| at as u8).collect();
    a.send(&sdu).unwrap();
    assert!(!receiver.has_sdu());
    match receiver.try_lease(usize::MAX).unwrap() {
        Some(Leased::Copied(copy)) => assert_eq!(copy, sdu),
        other => panic!("{other:?}"),
    }
    a.send(&sdu).unwrap();
    let length = receiver.try_recv_with(usize::MAX, |length, _| length);
    assert_eq!(length.unwrap(), Some(sdu.len()));
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(!receiver.wait_until(soon).unwrap());
}

#[test]
fn sender_names_the_sdu_that_it_sent_in_part() {
    let Pair { a, b, node: _node } = pair(4096, u64::MAX);
    let ((mut sender, _a), (_b, mut receiver)) = (a.split(), b.split());
    let sdu = vec![1; 10_000];
    assert!(!sender.try_send(&sdu).unwrap());
    assert_eq!(sender.unfinished(), Some(sdu.len()));
    let mut copy = None;
    while copy.is_none() {
        copy = receiver.try_recv_vec(usize::MAX).unwrap();
        receiver.release_leases();
        if sender.unfinished().is_some() {
            sender.try_send(&sdu).unwrap();
        }
    }
    assert_eq!((copy.unwrap(), sender.unfinished()), (sdu, None));
}
