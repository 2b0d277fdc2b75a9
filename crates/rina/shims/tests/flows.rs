//! Flows between two systems: SDUs of all sizes in both directions, a stalled reader, all ends.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_dataplane::{Command, Event, SOCKET_SDU_MAX};
use carina_ring::State;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::pair::{self, App, PATIENCE, Pair, Random, closed_reason, ring, socket, wait_for};

const SIZES: [usize; 8] = [0, 1, 64, 4000, 65_536, 1 << 20, 3, (1 << 20) + 12_345];

fn exchange(mut app: App, seed: u64, peer_seed: u64, count: usize) -> App {
    let (mut mine, mut theirs) = (Random::new(seed), Random::new(peer_seed));
    let size = |random: &mut Random, n: usize| match SIZES.get(n) {
        Some(size) => *size,
        None => 1 << (random.next() % 18) as usize | (random.next() % 4096) as usize,
    };
    // One thread that sends and receives in turns would block on large SDUs, so the ends are split
    // between two threads.
    let App { end, memory, .. } = app;
    let carina_ring::channel::Endpoint {
        tx,
        rx,
        my_rx_doorbell,
        my_tx_doorbell,
        peer_rx_doorbell,
        peer_tx_doorbell,
    } = end;
    let spare = pair::ring(4096).1.end;
    let doorbells = |doorbell: &carina_sys::Doorbell| doorbell.try_clone().unwrap();
    let sender = App {
        end: carina_ring::channel::Endpoint {
            tx,
            rx: spare.rx,
            my_rx_doorbell: doorbells(&my_rx_doorbell),
            my_tx_doorbell: doorbells(&my_tx_doorbell),
            peer_rx_doorbell: doorbells(&peer_rx_doorbell),
            peer_tx_doorbell: doorbells(&peer_tx_doorbell),
        },
        memory: carina_ring::channel::ChannelMemory::create(4096).unwrap(),
        posted: 0,
    };
    let mut receiver = App {
        end: carina_ring::channel::Endpoint {
            tx: spare.tx,
            rx,
            my_rx_doorbell,
            my_tx_doorbell,
            peer_rx_doorbell,
            peer_tx_doorbell,
        },
        memory,
        posted: 0,
    };
    let thread = std::thread::spawn(move || {
        let mut sender = sender;
        for n in 0..count {
            let len = size(&mut mine, n);
            sender.send(&mine.bytes(len));
        }
        sender
    });
    for n in 0..count {
        let len = size(&mut theirs, n);
        let sdu = receiver.recv().expect("the flow is open");
        assert_eq!(sdu.len(), len, "length of SDU {n}");
        assert!(
            sdu == theirs.bytes(len),
            "contents of SDU {n} of {len} bytes"
        );
    }
    let sender = thread.join().unwrap();
    app = App {
        end: receiver.end,
        memory: receiver.memory,
        posted: 0,
    };
    app.end.tx = sender.end.tx;
    app
}

/// With one processor for all threads, doorbells are delayed and every idle turn yields.
#[test]
fn small_sdus_cross_in_order_where_all_share_one_processor() {
    // The test may not be allowed to run on CPU 0; it then uses another one. Threads inherit the
    // choice.
    assert!((0..1024).any(|cpu| carina_sys::pin_to_cpu(cpu).is_ok()));
    let mut pair = Pair::up();
    let (mut host_app, mut guest_app, ..) = pair.flow();
    let count = 20_000u32;
    let sender = std::thread::spawn(move || {
        for n in 0..count {
            host_app.post(&n.to_le_bytes());
        }
        host_app.end.publish();
        host_app
    });
    let mut sdu = [0; 64];
    for n in 0..count {
        assert_eq!(guest_app.take(&mut sdu), 4);
        assert_eq!(sdu[..4], n.to_le_bytes());
    }
    let mut host_app = sender.join().unwrap();
    // A delayed doorbell must not leave a single SDU behind.
    for n in 0..100u32 {
        host_app.send(&n.to_le_bytes());
        assert_eq!(guest_app.recv().unwrap(), n.to_le_bytes());
        guest_app.send(&n.to_le_bytes());
        assert_eq!(host_app.recv().unwrap(), n.to_le_bytes());
    }
}

#[test]
fn sdus_of_every_size_cross_whole_in_both_directions_at_once() {
    let mut pair = Pair::up();
    let (host_app, guest_app, port, guest_port) = pair.flow();
    let host = std::thread::spawn(move || exchange(host_app, 1, 2, 400));
    let mut guest_app = exchange(guest_app, 2, 1, 400);
    let mut host_app = host.join().unwrap();
    host_app.end.close(State::Closed);
    assert_eq!(guest_app.recv(), Err(State::Closed));
    assert_eq!(
        closed_reason(&pair.host, port),
        "the application closed the flow"
    );
    assert_eq!(
        closed_reason(&pair.guest, guest_port),
        "the peer closed the flow"
    );
}

#[test]
fn what_was_sent_before_a_close_arrives_before_the_end() {
    let mut pair = Pair::up();
    for (order, state) in [
        (None, State::Closed),
        (Some(""), State::Closed),
        (Some("killed"), State::Failed),
    ] {
        let (mut host_app, mut guest_app, port, guest_port) = pair.flow();
        for n in 0..5_000u32 {
            host_app.send(&n.to_le_bytes());
        }
        match order {
            None => host_app.end.close(State::Closed),
            Some(reason) => pair.host.send(Command::Deallocate {
                port,
                reason: reason.into(),
            }),
        }
        for n in 0..5_000u32 {
            assert_eq!(guest_app.recv().unwrap(), n.to_le_bytes());
        }
        assert_eq!(guest_app.recv(), Err(state));
        closed_reason(&pair.host, port);
        let reason = closed_reason(&pair.guest, guest_port);
        assert_eq!(
            reason,
            if state == State::Failed {
                "killed"
            } else {
                "the peer closed the flow"
            }
        );
    }
}

#[test]
fn a_reader_that_stops_delays_no_other_channel() {
    // The region is smaller than the stalled ring, so without credit the shared ring would fill up.
    let mut pair = Pair::with_region(1 << 20);
    let (mut stalled, mut asleep, ..) = pair.flow();
    let stuck = std::thread::spawn(move || {
        for n in 0..3_000u64 {
            stalled.send(&Random::new(n).bytes(4000));
        }
        stalled
    });
    // Wait until the reader's ring, to which the credit corresponds, has no room for another SDU.
    let full = (pair::RING - 2 * 4096) as u64;
    let patience = Instant::now() + PATIENCE;
    while asleep.end.rx.pending_bytes().unwrap() < full {
        assert!(
            Instant::now() < patience,
            "{}",
            asleep.end.rx.pending_bytes().unwrap()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut a, mut b, ..) = pair.flow();
    for n in 0..500u64 {
        a.send(&n.to_le_bytes());
        assert_eq!(b.recv().unwrap(), n.to_le_bytes());
    }
    assert!(!stuck.is_finished(), "nobody read the 12 MB");
    for n in 0..3_000u64 {
        assert!(
            asleep.recv().unwrap() == Random::new(n).bytes(4000),
            "SDU {n}"
        );
    }
    stuck.join().unwrap();
}

#[test]
fn death_of_the_peer_ends_its_flows_and_it_may_come_back() {
    let mut pair = Pair::up();
    let (mut host_app, mut guest_app, port, _) = pair.flow();
    host_app.send(b"before");
    assert_eq!(guest_app.recv().unwrap(), b"before");
    let fresh = carina_dataplane::DataPlane::spawn(pair.guest_table.clone()).unwrap();
    drop(std::mem::replace(&mut pair.guest, fresh));
    assert_eq!(host_app.recv(), Err(State::Failed));
    // The end is reported at once, without waiting for a heartbeat to be missed.
    let reason = closed_reason(&pair.host, port);
    assert_eq!(reason, "the peer's node ended");
    pair.add(carina_vmpi::hl::Side::Guest);
    pair.wait_up();
    pair.guest.send(Command::Register {
        ipcp: pair::IPCP,
        name: pair::name("echo"),
        reader: None,
    });
    wait_for(&pair.host, |event| {
        matches!(event, Event::PeerRegistered { .. }).then_some(())
    });
    let (mut host_app, mut guest_app, ..) = pair.flow();
    host_app.send(b"after");
    assert_eq!(guest_app.recv().unwrap(), b"after");
}

fn socket_send(socket: &OwnedFd, sdu: &[u8]) {
    assert_eq!(send(socket, sdu, SendFlags::NOSIGNAL).unwrap(), sdu.len());
}

fn socket_recv(socket: &OwnedFd) -> Vec<u8> {
    let mut sdu = vec![0; SOCKET_SDU_MAX + 1];
    let (len, _) = recv(socket, &mut sdu[..], RecvFlags::empty()).unwrap();
    sdu.truncate(len);
    sdu
}

#[test]
fn socket_ends_carry_sdus_to_sockets_and_to_rings() {
    let mut pair = Pair::up();
    let (host_end, host_app) = socket();
    let (guest_end, guest_app) = socket();
    let (port, guest_port) = pair.connect(host_end, guest_end);
    let mut random = Random::new(9);
    for len in [1, 0, 64, 4000, SOCKET_SDU_MAX, 17] {
        let sdu = random.bytes(len);
        socket_send(&host_app, &sdu);
        assert!(
            socket_recv(&guest_app) == sdu,
            "{len} bytes from socket to socket"
        );
        socket_send(&guest_app, &sdu);
        assert!(socket_recv(&host_app) == sdu, "{len} bytes back");
    }
    socket_send(&host_app, b"last");
    drop(host_app);
    assert_eq!(socket_recv(&guest_app), b"last");
    assert_eq!(socket_recv(&guest_app), b"");
    closed_reason(&pair.host, port);
    closed_reason(&pair.guest, guest_port);

    let (host_end, host_app) = socket();
    let (guest_end, mut guest_app) = ring(1 << 20);
    pair.connect(host_end, guest_end);
    let sender = std::thread::spawn(move || {
        for n in 0..2_000u64 {
            socket_send(&host_app, &Random::new(n).bytes((n * 31 % 9_000) as usize));
        }
        host_app
    });
    for n in 0..2_000u64 {
        assert!(
            guest_app.recv().unwrap() == Random::new(n).bytes((n * 31 % 9_000) as usize),
            "SDU {n}"
        );
        guest_app.send(&n.to_le_bytes());
    }
    let host_app = sender.join().unwrap();
    for n in 0..2_000u64 {
        assert_eq!(socket_recv(&host_app), n.to_le_bytes());
    }
}

#[test]
fn sdus_that_cross_together_reach_a_socket_one_by_one() {
    let mut pair = Pair::up();
    let (host_end, mut host_app) = ring(1 << 20);
    let (guest_end, guest_app) = socket();
    pair.connect(host_end, guest_end);
    let sdu = |n: u8| vec![n; 40 * usize::from(n)];
    for n in 1..100 {
        host_app.end.tx.push(&[&sdu(n)], false).unwrap();
    }
    host_app.end.publish();
    for n in 1..100 {
        assert!(socket_recv(&guest_app) == sdu(n), "SDU {n}");
    }
}

#[test]
fn too_long_sdu_for_a_socket_fails_the_flow_and_is_counted() {
    let mut pair = Pair::up();
    let (host_end, mut host_app) = ring(1 << 20);
    let (guest_end, guest_app) = socket();
    let (port, guest_port) = pair.connect(host_end, guest_end);
    host_app.send(&vec![7; SOCKET_SDU_MAX]);
    assert_eq!(socket_recv(&guest_app).len(), SOCKET_SDU_MAX);
    host_app.send(&vec![7; SOCKET_SDU_MAX + 1]);
    let reason = closed_reason(&pair.guest, guest_port);
    assert!(reason.contains("more than 65536 bytes"), "{reason}");
    closed_reason(&pair.host, port);
    assert_eq!(host_app.recv(), Err(State::Failed));
}

#[test]
fn a_relay_joins_a_ring_and_a_socket_of_one_system() {
    let pair = Pair::up();
    let (ring_end, mut ring_app) = ring(1 << 20);
    let (socket_end, socket_app) = socket();
    let port = carina_api::PortId(77);
    pair.host.send(Command::Relay {
        a: ring_end,
        b: socket_end,
        port,
    });
    let sender = std::thread::spawn(move || {
        for n in 0..5_000u64 {
            ring_app.send(&Random::new(n).bytes((n % 3_000) as usize));
        }
        ring_app
    });
    for n in 0..5_000u64 {
        assert!(
            socket_recv(&socket_app) == Random::new(n).bytes((n % 3_000) as usize),
            "SDU {n}"
        );
    }
    let mut ring_app = sender.join().unwrap();
    for n in 0..5_000u64 {
        socket_send(&socket_app, &n.to_le_bytes());
        assert_eq!(ring_app.recv().unwrap(), n.to_le_bytes());
    }
    drop(socket_app);
    assert_eq!(ring_app.recv(), Err(State::Closed));
    closed_reason(&pair.host, port);
}

#[test]
fn refusals_come_back_with_their_reason() {
    let mut pair = Pair::up();
    let result = |pair: &Pair, port| {
        wait_for(&pair.host, |event| match event {
            Event::AllocateResult { port: p, result } if *p == port => Some(result.clone()),
            _ => None,
        })
    };
    let ask = |pair: &mut Pair, remote: &str| {
        let (port, (end, app)) = (pair.port(), ring(1 << 16));
        pair.host.send(Command::Allocate {
            ipcp: pair::IPCP,
            port,
            local: pair::name("caller"),
            remote: pair::name(remote),
            spec: carina_api::FlowSpec::reliable(),
            end,
        });
        (port, app)
    };
    let (port, mut app) = ask(&mut pair, "nobody");
    assert!(
        result(&pair, port)
            .unwrap_err()
            .contains("`nobody` is not registered")
    );
    assert_eq!(app.recv(), Err(State::Failed));
    let (port, _app) = ask(&mut pair, "echo");
    let incoming = wait_for(&pair.guest, |event| match event {
        Event::IncomingFlow { port, .. } => Some(*port),
        _ => None,
    });
    pair.guest.send(Command::Respond {
        port: incoming,
        answer: Err("too busy".into()),
    });
    assert_eq!(result(&pair, port), Err("too busy".to_owned()));
    // The caller gives up before the answer: the called application learns that.
    let (port, _app) = ask(&mut pair, "echo");
    let incoming = wait_for(&pair.guest, |event| match event {
        Event::IncomingFlow { port, .. } => Some(*port),
        _ => None,
    });
    pair.host.send(Command::Deallocate {
        port,
        reason: "gave up".into(),
    });
    assert_eq!(closed_reason(&pair.guest, incoming), "gave up");
}
