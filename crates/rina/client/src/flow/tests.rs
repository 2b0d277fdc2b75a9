//! Flows between two threads. The test plays the role of the node.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use carina_api::ipc::FlowNotice;
use carina_api::{AppName, DifName, FlowSpec, PortId};
use carina_ring::WakeMode;
use carina_ring::channel::{ChannelMemory, Side};
use carina_sys::{send_with_fds, socketpair_seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::sleeping::PATIENCE;
use super::Flow;
use crate::batch::SduBatch;
use crate::error::Error;
use crate::link::{FlowInfo, Link};
use crate::recv::FlowReceiver;
use crate::send::FlowSender;

mod ends;
mod files;
mod leases;
#[path = "../../tests/support/sleeping.rs"]
mod sleeping;

const CAPACITY: usize = 64 * 1024;

/// Two ends of one flow, and the node's control sockets of both.
struct Pair {
    a: Flow,
    b: Flow,
    node: Node,
}

struct Node {
    channel: ChannelMemory,
    controls: [OwnedFd; 2],
}

impl Node {
    /// Reports the death of the application at `side` to the other end, like the node.
    fn bury(&self, side: Side) {
        let notice = FlowNotice::Closed {
            reason: "killed".to_owned(),
            graceful: false,
        };
        self.tell(side.other(), &notice);
        self.channel.fail(side);
    }

    fn tell(&self, side: Side, notice: &FlowNotice) {
        let bytes = carina_api::ipc::encode(notice).unwrap();
        send_with_fds(&self.controls[side.tx_ring()], &bytes, &[]).unwrap();
    }
}

fn pair(capacity: usize, sdu_max: u64) -> Pair {
    let mode = if carina_sys::membarrier_register() {
        WakeMode::Light
    } else {
        WakeMode::Fence
    };
    let channel = ChannelMemory::create(capacity).unwrap();
    let end = |side: Side| {
        let (mine, nodes) = socketpair_seqpacket().unwrap();
        let fds = channel.endpoint_fds(side).unwrap();
        let end = carina_ring::channel::Endpoint::from_fds(capacity, side, mode, fds).unwrap();
        let info = FlowInfo {
            port: PortId(1),
            local: AppName::new("one").unwrap(),
            remote: AppName::new("other").unwrap(),
            dif: DifName::new("test").unwrap(),
            spec: FlowSpec::reliable(),
            sdu_max,
        };
        let link = Arc::new(Link::new(mine, info));
        let opposite = Arc::clone(end.rx.map());
        let (doorbell, peer) = (end.my_tx_doorbell, end.peer_rx_doorbell);
        let sender = FlowSender::new(end.tx, opposite, doorbell, peer, Arc::clone(&link));
        let receiver = FlowReceiver::new(end.rx, end.my_rx_doorbell, end.peer_tx_doorbell, link);
        (Flow::new(sender, receiver), nodes)
    };
    let (a, control_a) = end(Side::A);
    let (b, control_b) = end(Side::B);
    Pair {
        a,
        b,
        node: Node {
            channel,
            controls: [control_a, control_b],
        },
    }
}

/// Pseudo-random contents of an SDU, determined by its number and length.
fn contents(number: u32, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Lengths from 0 to 1 MiB, most of them small.
fn length_of(number: u32) -> usize {
    match number % 16 {
        0 => 0,
        1 => CAPACITY / 4 - 8,
        2 => CAPACITY / 4 - 7,
        3 => 100_000 + number as usize,
        4 if number % 64 == 4 => 1 << 20,
        _ => (number as usize * 7919) % 3000,
    }
}

#[test]
fn sdus_of_all_sizes_cross_in_both_directions_at_once() {
    let Pair { a, b, node: _node } = pair(CAPACITY, u64::MAX);
    let ends = [a, b].map(|flow| {
        let (mut tx, mut rx) = flow.split();
        let sender = thread::spawn(move || {
            for number in 0..600 {
                tx.send(&contents(number, length_of(number))).unwrap();
            }
            tx
        });
        let receiver = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            for number in 0..600 {
                let expected = contents(number, length_of(number));
                if number % 2 == 0 {
                    let length = rx.recv(&mut buffer).unwrap();
                    assert!(buffer[..length] == expected[..], "SDU {number}");
                } else {
                    assert!(rx.recv_vec(1 << 20).unwrap() == expected, "SDU {number}");
                }
            }
            rx
        });
        (sender, receiver)
    });
    let halves = ends.map(|(sender, receiver)| (sender.join().unwrap(), receiver.join().unwrap()));
    for (tx, rx) in halves {
        assert_eq!(tx.stats().sdus_sent, 600);
        assert_eq!(rx.stats().sdus_received, 600);
        assert_eq!(tx.stats().bytes_sent, rx.stats().bytes_received);
    }
}

#[test]
fn flow_that_never_waits_carries_sdus_larger_than_its_ring() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(4096, u64::MAX);
    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 20_000];
    while received < 50 {
        if sent < 50 && a.try_send(&contents(sent, sent as usize * 400)).unwrap() {
            sent += 1;
        }
        if let Some(length) = b.try_recv(&mut buffer).unwrap() {
            assert!(buffer[..length] == contents(received, received as usize * 400)[..]);
            received += 1;
        }
    }
    assert_eq!(b.try_recv(&mut buffer).unwrap(), None);
}

#[test]
fn half_sent_sdu_must_be_finished_first() {
    let Pair {
        mut a,
        b: _b,
        node: _node,
    } = pair(4096, u64::MAX);
    assert!(!a.try_send(&[1; 9000]).unwrap());
    let error = a.try_send(&[1; 10]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unfinished {
                expected: 9000,
                got: 10
            }
        ),
        "{error}"
    );
}

/// One of the calls that receive into a buffer.
type Receive = fn(&mut Flow, &mut [u8]) -> Result<usize, Error>;

#[test]
fn an_sdu_larger_than_the_buffer_is_cut_and_the_next_whole() {
    for length in [100, 3000] {
        let Pair {
            mut a,
            mut b,
            node: _node,
        } = pair(4096, u64::MAX);
        let sender = thread::spawn(move || {
            for _ in 0..4 {
                a.send(&contents(1, length)).unwrap();
                a.send(b"next").unwrap();
            }
            a
        });
        let mut buffer = [0; 50];
        let calls: [Receive; 3] = [
            |flow, buffer| flow.recv(buffer),
            |flow, buffer| loop {
                if let Some(length) = flow.try_recv(buffer)? {
                    return Ok(length);
                }
            },
            |flow, buffer| {
                flow.recv_timeout(buffer, PATIENCE)
                    .map(|length| length.unwrap())
            },
        ];
        for call in calls {
            let error = call(&mut b, &mut buffer).unwrap_err();
            let len = length as u64;
            assert!(
                matches!(error, Error::SduTooLarge { len: l, max: 50 } if l == len),
                "{error}"
            );
            assert_eq!(buffer, contents(1, length)[..50]);
            assert_eq!(call(&mut b, &mut buffer).unwrap(), 4);
        }
        assert!(matches!(
            b.recv_vec(50),
            Err(Error::SduTooLarge { max: 50, .. })
        ));
        assert_eq!(b.recv_vec(50).unwrap(), b"next");
        assert_eq!(b.stats().sdus_too_large, 4);
        sender.join().unwrap();
    }
}

#[test]
fn flow_refuses_sdus_larger_than_its_dif_carries() {
    let Pair {
        mut a,
        b: _b,
        node: _node,
    } = pair(CAPACITY, 100_000);
    let error = a.send(&vec![0; 100_001]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::SduTooLarge {
                len: 100_001,
                max: 100_000
            }
        ),
        "{error}"
    );
}

#[test]
fn bursts_arrive_whole_and_in_order() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let sdus: Vec<_> = (0..100)
        .map(|number| contents(number, number as usize))
        .collect();
    let slices: Vec<_> = sdus.iter().map(Vec::as_slice).collect();
    a.send_burst(&slices).unwrap();
    let mut batch = SduBatch::new(64, 1000);
    let mut received = Vec::new();
    while received.len() < 100 {
        assert!(b.recv_burst(&mut batch).unwrap() > 0);
        assert!(batch.bytes() <= 1000 && batch.len() <= 64);
        received.extend(batch.iter().map(<[u8]>::to_vec));
    }
    assert_eq!(received, sdus);
}

#[test]
fn every_sdu_is_counted_once_however_it_is_sent() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let in_fragments = contents(1, CAPACITY / 4 + 100);
    for round in 1..50 {
        a.send(&[1; 5]).unwrap();
        assert!(a.try_send(&[2; 3]).unwrap());
        a.send_burst(&[&[3], &[4; 2]]).unwrap();
        a.reserve(7).unwrap().commit();
        a.send(&in_fragments).unwrap();
        assert_eq!(a.stats().sdus_sent, 6 * round);
        for _ in 0..6 {
            b.recv_vec(CAPACITY).unwrap();
        }
        assert_eq!(b.stats().sdus_received, 6 * round);
        assert_eq!(a.stats().bytes_sent, b.stats().bytes_received);
    }
}

#[test]
fn zero_copy_ends_see_the_same_bytes() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let mut slot = a.reserve(11).unwrap();
    slot.write_at(6, b"world");
    slot.write_at(0, b"hello ");
    slot.commit();
    let _never_sent = a.reserve(5).unwrap();
    a.send(b"more").unwrap();
    let mut bytes = [0; 16];
    let mut fragment = b.peek().unwrap();
    assert_eq!((fragment.length(), fragment.more()), (11, false));
    fragment.put_back();
    let mut fragment = b.peek().unwrap();
    assert_eq!(fragment.copy_to(&mut bytes), 11);
    assert_eq!(&bytes[..11], b"hello world");
    fragment.release();
    assert_eq!(b.recv_vec(10).unwrap(), b"more");
    assert!(matches!(
        a.reserve(CAPACITY / 2),
        Err(Error::SduTooLarge { .. })
    ));
}

#[test]
fn sender_waits_for_space_no_longer_than_its_timeout() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let soon = || Instant::now() + Duration::from_millis(20);
    let mut sent = 0;
    while a.send_until(&contents(sent, 1000), soon()).unwrap() {
        sent += 1;
    }
    // The ring has 64 KiB. SDUs that did not fit are sent once there is room; none is lost or
    // duplicated.
    assert!(sent > 50, "{sent}");
    assert_eq!(b.recv_vec(1000).unwrap(), contents(0, 1000));
    for number in 1..sent {
        assert_eq!(b.recv_vec(1000).unwrap(), contents(number, 1000));
    }
    assert!(b.try_recv(&mut [0; 1000]).unwrap().is_none());
    assert!(a.send_until(&contents(sent, 1000), soon()).unwrap());
    assert_eq!(b.recv_vec(1000).unwrap(), contents(sent, 1000));

    // The same call also finishes an SDU of which some fragments were already sent.
    let large = contents(7, 2 * CAPACITY);
    assert!(!a.send_until(&large, soon()).unwrap());
    let reader = thread::spawn(move || (b.recv_vec(3 * CAPACITY).unwrap(), b));
    a.send(&large).unwrap();
    assert_eq!(reader.join().unwrap().0, large);
}

/// Whether the descriptor is readable now.
fn is_readable(descriptor: impl AsFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut fds, Some(&now)).unwrap() > 0
}

#[test]
fn armed_descriptor_is_readable_after_an_event() {
    let Pair { mut a, mut b, node } = pair(CAPACITY, u64::MAX);
    let readable = |flow: &Flow| is_readable(flow.poll_fd().unwrap());
    for _ in 0..3 {
        assert!(b.arm().unwrap());
        assert!(!readable(&b));
        a.send(b"x").unwrap();
        assert!(readable(&b));
        assert!(!b.arm().unwrap());
        assert_eq!(b.try_recv(&mut [0; 8]).unwrap(), Some(1));
    }
    assert!(b.arm().unwrap());
    drop(node);
    assert!(readable(&b));
    assert!(matches!(b.arm(), Err(Error::NodeGone)));
}

#[test]
fn wait_with_a_limit_ends() {
    let Pair {
        a: _a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let start = Instant::now();
    assert_eq!(
        b.recv_timeout(&mut [0; 8], Duration::from_millis(30))
            .unwrap(),
        None
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn busy_flow_makes_no_system_call_per_sdu() {
    let Pair {
        mut a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    for number in 0..10_000 {
        a.send(&contents(number, 64)).unwrap();
        assert_eq!(b.recv(&mut [0; 64]).unwrap(), 64);
    }
    let (sent, received) = (a.stats(), b.stats());
    assert_eq!((sent.doorbells_rung, received.doorbells_rung), (0, 0));
    assert_eq!((sent.sleeps, received.sleeps), (0, 0));
}
