//! One side loses its state, or starts a new run while the other side remembers the old one.

use carina_efcp::{ConnEvent, Connection, ConnectionConfig, Discard, FailReason};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::PduType;

use crate::simulation::channel::{MS, Pdu, S, Weather, World, pdu};

const OLD: u64 = 1_000_000;

fn config(retransmission: bool) -> ConnectionConfig {
    ConnectionConfig {
        retransmission,
        mpl: Duration::from_millis(100),
        r: Duration::from_secs(1),
        ..ConnectionConfig::default()
    }
}

fn calm() -> Weather {
    Weather {
        delay_ns: 5 * MS,
        ..Weather::default()
    }
}

/// Old UDFs have numbers from `OLD`, new ones from 0. The sender crashes while PDUs are on the
/// channel; these arrive late, some of them twice.
fn sender_crashes(seed: u64, retransmission: bool) -> World {
    let weather = Weather {
        repeat_percent: 30,
        reorder_percent: 50,
        jitter_ns: 90 * MS,
        ..calm()
    };
    let mut world = World::new(seed, weather, || config(retransmission));
    world.write(0, OLD, OLD + 100, S);
    // A receiver that knows nothing of the old run cannot tell its first PDU from the first PDU of
    // a newer run. An end that loses its state must then wait for Δt, or use other CEP-ids.
    while !world.ends[1].conn.status().is_receiving {
        world.run(MS);
    }
    world.run((seed % 10) * MS);
    world.ends[0].conn = Connection::new(
        Instant::from_nanos(world.now),
        config(retransmission),
        seed ^ 0xdead,
    );
    // An unreliable flow delivers everything only without impairments.
    world.weather = calm();
    world.write(0, 0, 60, S);
    world.run(5 * S);
    world
}

#[test]
fn nothing_of_the_old_run_comes_after_the_first_of_the_new() {
    for seed in 0..200 {
        for retransmission in [false, true] {
            let world = sender_crashes(seed, retransmission);
            let got = world.numbers(1);
            let first_new = got.iter().position(|n| *n < OLD).unwrap_or(got.len());
            let (old, new) = got.split_at(first_new);
            assert!(old.is_sorted() && new.is_sorted(), "seed {seed}");
            assert!(new.iter().all(|n| *n < OLD), "seed {seed}: {new:?}");
            let failed = ConnEvent::Failed(FailReason::RunBroken);
            if world.ends[1].events.contains(&failed) {
                // The old run had gaps that are never filled.
                assert!(retransmission, "seed {seed}");
                assert!(old.len() < 100, "seed {seed}");
            } else {
                assert_eq!(new.len(), 60, "seed {seed}, {retransmission}");
            }
            if !retransmission {
                assert_eq!(new.len(), 60, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_reliable_receiver_without_state_takes_nothing_in_mid_run() {
    let mut world = World::new(3, calm(), || config(true));
    world.write(0, OLD, OLD + 50, S);
    world.run(100 * MS);
    assert_eq!(world.numbers(1).len(), 50);
    world.ends[1].conn = Connection::new(Instant::from_nanos(world.now), config(true), 77);
    world.ends[1].delivered.clear();
    world.write(0, OLD + 50, OLD + 100, S);
    world.run(10 * S);
    assert!(world.numbers(1).is_empty());
    let failed = ConnEvent::Failed(FailReason::NoProgress);
    assert!(
        world.ends[0].events.contains(&failed),
        "the sender gets the event"
    );
    assert_eq!(world.ends[0].conn.room(), 0);
}

#[test]
fn an_unreliable_receiver_without_state_joins_in_mid_run() {
    let mut world = World::new(3, calm(), || config(false));
    world.write(0, OLD, OLD + 50, S);
    world.run(100 * MS);
    world.ends[1].conn = Connection::new(Instant::from_nanos(world.now), config(false), 77);
    world.ends[1].delivered.clear();
    world.write(0, 50, 300, S);
    world.run(S);
    assert_eq!(world.numbers(1), (50..300).collect::<Vec<_>>());
    assert!(
        world.ends[1].delivered[0].gap_before,
        "something may be missing before it"
    );
}

#[test]
fn after_silence_a_new_run_begins() {
    for retransmission in [false, true] {
        let mut world = World::new(5, calm(), || config(retransmission));
        for run in 0..3 {
            world.write(0, run * 20, run * 20 + 20, S);
            world.run(20 * S);
        }
        assert_eq!(world.numbers(1), (0..60).collect::<Vec<_>>());
        let counters = world.ends[0].conn.counters();
        assert_eq!(counters.runs, 3);
        let inactive = ConnEvent::PeerInactive;
        let forgotten = world.ends[1].events.iter().filter(|e| **e == inactive);
        assert_eq!(forgotten.count(), 3);
        let seqs: Vec<u64> = world.ends[1].delivered.iter().map(|d| d.seq).collect();
        assert_ne!(seqs[20], seqs[19] + 1, "a new random number");
    }
}

/// The PDUs that a new connection sends for these numbers.
fn first_pdus(conn: &mut Connection<Bytes>, numbers: std::ops::Range<u64>) -> Vec<Pdu> {
    for number in numbers {
        let udf = Bytes::from(number.to_be_bytes().to_vec());
        conn.write(Instant::from_secs(1), udf)
            .expect("there is room");
    }
    std::iter::from_fn(|| conn.poll_transmit(Instant::from_secs(1)))
        .map(pdu)
        .collect()
}

#[test]
fn the_first_pdu_may_come_second() {
    for (retransmission, in_order) in [(true, true), (true, false), (false, true), (false, false)] {
        let features = || ConnectionConfig {
            in_order,
            ..config(retransmission)
        };
        let mut world = World::new(1, calm(), features);
        let mut pdus = first_pdus(&mut world.ends[0].conn, 0..4);
        assert!(pdus[0].pci.drf && !pdus[1].pci.drf);
        pdus.rotate_left(1);
        for pdu in pdus {
            let receiver = &mut world.ends[1].conn;
            let taken = receiver.receive(Instant::from_nanos(world.now), &pdu.pci, None, pdu.udf);
            assert!(taken.is_ok());
        }
        world.drain(1);
        let mut got = world.numbers(1);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3]);
        assert!(!in_order || world.numbers(1).is_sorted());
        assert!(world.ends[1].delivered.iter().all(|d| !d.gap_before));
    }
}

#[test]
fn without_retransmission_a_gap_at_the_start_ends_after_a() {
    let mut world = World::new(1, calm(), || config(false));
    let pdus = first_pdus(&mut world.ends[0].conn, 0..3);
    for pdu in pdus.into_iter().skip(1) {
        world.ends[1]
            .conn
            .receive(Instant::from_nanos(world.now), &pdu.pci, None, pdu.udf)
            .expect("it is taken");
    }
    world.drain(1);
    assert!(world.numbers(1).is_empty());
    world.run(19 * MS);
    assert!(world.numbers(1).is_empty());
    world.run(2 * MS);
    assert_eq!(world.numbers(1), [1, 2]);
    assert!(world.ends[1].delivered[0].gap_before);
}

#[test]
fn a_repeated_first_pdu_is_no_new_run() {
    let mut world = World::new(1, calm(), || config(true));
    let pdus = first_pdus(&mut world.ends[0].conn, 0..5);
    let receiver = &mut world.ends[1].conn;
    for pdu in pdus.iter().chain(&pdus) {
        assert_eq!(pdu.pci.kind, PduType::Data);
        let _ = receiver.receive(Instant::from_secs(1), &pdu.pci, None, pdu.udf.clone());
    }
    world.drain(1);
    assert_eq!(world.numbers(1), [0, 1, 2, 3, 4]);
    let counters = world.ends[1].conn.counters();
    assert_eq!(counters.discarded(Discard::Duplicate), 5);
}
