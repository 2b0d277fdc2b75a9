//! How flows end, and the error that a waiting call returns then.

use std::thread;

use carina_api::ipc::FlowNotice;
use carina_ring::State;
use carina_ring::channel::Side;

use super::sleeping::ended_by;
use super::{CAPACITY, Pair, contents, is_readable, pair};
use crate::error::Error;
use crate::flow::Flow;

#[test]
fn closed_flow_gives_all_sdus_and_then_its_end() {
    let Pair { mut a, mut b, node } = pair(CAPACITY, u64::MAX);
    for number in 0..10 {
        a.send(&contents(number, 100)).unwrap();
    }
    a.close();
    node.tell(
        Side::B,
        &FlowNotice::Closed {
            reason: "closed".to_owned(),
            graceful: true,
        },
    );
    for number in 0..10 {
        assert_eq!(b.recv_vec(100).unwrap(), contents(number, 100));
    }
    assert!(matches!(b.recv_vec(100), Err(Error::Closed)));
    assert!(matches!(b.try_recv(&mut [0; 8]), Err(Error::Closed)));
    assert!(matches!(b.send(b"x"), Err(Error::Closed)));
}

#[test]
fn sender_that_is_dropped_alone_ends_only_its_direction() {
    let Pair {
        a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let (tx, mut rx) = a.split();
    drop(tx);
    assert!(matches!(b.recv_vec(1), Err(Error::Closed)));
    for number in 0..5000 {
        b.send(&contents(number, 10)).unwrap();
        assert_eq!(rx.recv_vec(10).unwrap(), contents(number, 10));
    }
}

/// The error of `call`, which sleeps until `blow` ends the flow.
fn interrupted(
    mut flow: Flow,
    call: impl FnOnce(&mut Flow) -> Result<(), Error> + Send + 'static,
    blow: impl FnOnce(),
) -> Error {
    ended_by(move || call(&mut flow).unwrap_err(), blow)
}

fn fill(flow: &mut Flow) -> Result<(), Error> {
    loop {
        flow.send(&[0; 1000])?;
    }
}

#[test]
fn death_of_the_peer_ends_calls_that_sleep() {
    for call in [fill, |flow: &mut Flow| flow.recv(&mut [0; 10]).map(drop)] {
        let Pair { a, b, node } = pair(CAPACITY, u64::MAX);
        let error = interrupted(b, call, || {
            // A killed process runs no destructors.
            std::mem::forget(a);
            node.bury(Side::A);
        });
        assert!(
            matches!(&error, Error::FlowFailed { reason } if reason == "killed"),
            "{error}"
        );
        assert!(error.is_end_of_flow());
    }
}

#[test]
fn death_of_the_node_ends_calls_that_sleep() {
    for call in [fill, |flow: &mut Flow| flow.recv(&mut [0; 10]).map(drop)] {
        let Pair { a: _a, b, node } = pair(CAPACITY, u64::MAX);
        let error = interrupted(b, call, || drop(node));
        assert!(matches!(error, Error::NodeGone), "{error}");
    }
}

#[test]
fn caller_that_never_waits_learns_of_death() {
    let Pair { a: _a, mut b, node } = pair(CAPACITY, u64::MAX);
    assert!(b.try_recv(&mut [0; 8]).unwrap().is_none());
    drop(node);
    let error = (0..20).find_map(|_| b.try_recv(&mut [0; 8]).err());
    assert!(matches!(error, Some(Error::NodeGone)));

    let Pair { a, mut b, node } = pair(CAPACITY, u64::MAX);
    assert!(b.try_send(b"x").unwrap());
    std::mem::forget(a);
    node.bury(Side::A);
    let error = (0..8).find_map(|_| b.try_send(b"x").err());
    assert!(matches!(error, Some(Error::FlowFailed { .. })));
}

#[test]
fn mark_before_the_notice_hides_no_reason() {
    for call in [fill, |flow: &mut Flow| flow.recv(&mut [0; 10]).map(drop)] {
        let Pair { a, mut b, node } = pair(CAPACITY, u64::MAX);
        std::mem::forget(a);
        node.channel.fail(Side::A);
        let error = ended_by(
            move || call(&mut b).unwrap_err(),
            || {
                node.tell(
                    Side::B,
                    &FlowNotice::Closed {
                        reason: "killed".to_owned(),
                        graceful: false,
                    },
                );
            },
        );
        assert!(
            matches!(&error, Error::FlowFailed { reason } if reason == "killed"),
            "{error}"
        );
    }
}

#[test]
fn flow_without_a_notice_fails_all_the_same() {
    let Pair { a, mut b, node } = pair(CAPACITY, u64::MAX);
    std::mem::forget(a);
    node.channel.fail(Side::A);
    for _ in 0..2 {
        let error = b.recv(&mut [0; 10]).unwrap_err();
        assert!(
            matches!(&error, Error::FlowFailed { reason } if reason == "the remote end failed"),
            "{error}"
        );
    }
}

#[test]
fn flow_dropped_by_a_panic_has_failed() {
    let Pair { a, mut b, node } = pair(CAPACITY, u64::MAX);
    let panicked = thread::spawn(move || {
        let _flow = a;
        panic!("the test panics with a flow in its hands");
    });
    assert!(panicked.join().is_err());
    assert_eq!(node.channel.state(Side::A), State::Failed);
    assert!(matches!(b.recv(&mut [0; 8]), Err(Error::FlowFailed { .. })));
}

#[test]
fn pollable_sender_learns_of_space_and_of_the_end() {
    let Pair { a, mut b, node } = pair(CAPACITY, u64::MAX);
    let (mut tx, _rx) = a.split();
    let mut fill = || {
        let armed = loop {
            while tx.try_send(&contents(1, 1000)).unwrap() {}
            if tx.arm(1000).unwrap() {
                break tx.poll_fd().unwrap().try_clone_to_owned().unwrap();
            }
        };
        assert!(!is_readable(&armed));
        armed
    };
    let armed = fill();
    while b.try_recv(&mut [0; 1000]).unwrap().is_some() {}
    assert!(b.arm().unwrap());
    assert!(is_readable(&armed));
    let armed = fill();
    node.bury(Side::B);
    assert!(is_readable(&armed));
    assert!(matches!(
        tx.try_send(&contents(1, 1000)),
        Err(Error::FlowFailed { .. })
    ));
}
