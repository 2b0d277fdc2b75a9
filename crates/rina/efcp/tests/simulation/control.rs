//! Windows, rates, acknowledgements, rollover.

use carina_efcp::{
    AckPolicy, ConnEvent, ConnectionConfig, FailReason, QueueLimits, RateControl, WindowControl,
};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::PduType;

use crate::simulation::channel::{MS, S, Weather, World};

fn windowed(retransmission: bool, credit: u32) -> ConnectionConfig {
    ConnectionConfig {
        retransmission,
        window: Some(WindowControl {
            credit_max: credit,
            initial_credit: credit,
        }),
        ..ConnectionConfig::default()
    }
}

const CALM: Weather = Weather {
    loss_percent: 0,
    repeat_percent: 0,
    reorder_percent: 0,
    jitter_ns: 0,
    delay_ns: MS,
    mark_percent: 0,
};

#[test]
fn a_reader_that_stops_stops_the_writer_and_nothing_is_lost() {
    for retransmission in [false, true] {
        let mut world = World::new(1, CALM, || windowed(retransmission, 16));
        world.ends[1].appetite = Some(0);
        let written = world.write(0, 0, 1000, S);
        // The receiver holds a full window, and the sender's queue is full.
        let held = world.ends[1].conn.status().held;
        assert_eq!(held, 16);
        assert_eq!(written, 16 + 256);
        // For a minute, rendezvous PDUs find the window closed.
        world.run(60 * S);
        assert!(world.ends[0].conn.counters().rendezvous_sent > 30);
        world.ends[1].appetite = None;
        let end = world.write(0, written, 1000, 20 * S);
        world.run(5 * S);
        assert_eq!(end, 1000);
        assert_eq!(world.numbers(1), (0..1000).collect::<Vec<_>>());
    }
}

#[test]
fn credit_follows_the_readers_room() {
    let mut world = World::new(1, CALM, || windowed(true, 64));
    world.write(0, 0, 10, S);
    world.run(S);
    world.ends[1]
        .conn
        .set_credit(Instant::from_nanos(world.now), 1);
    world.write(0, 10, 500, 10 * S);
    let status = world.ends[1].conn.status();
    assert!(status.receiver_right - status.receiver_left <= 1);
    assert!(world.ends[0].conn.status().outstanding <= 1);
    world.ends[1]
        .conn
        .set_credit(Instant::from_nanos(world.now), 64);
    world.write(0, 500, 600, 10 * S);
    world.run(10 * S);
    assert_eq!(world.numbers(1).len(), 600);
}

#[test]
fn lost_control_pdus_never_stop_a_connection() {
    for seed in 0..50 {
        for retransmission in [false, true] {
            let weather = Weather {
                loss_percent: 40,
                ..CALM
            };
            let mut world = World::new(seed, weather, || windowed(retransmission, 4));
            let written = world.write(0, 0, 100, 300 * S);
            assert_eq!(written, 100, "seed {seed}");
            world.run(60 * S);
            assert_eq!(world.ends[0].conn.status().queued, 0, "seed {seed}");
        }
    }
}

#[test]
fn lost_pdus_leak_no_credit() {
    // All PDUs after the first are lost, so the receiver does not know of them.
    let mut world = World::new(1, CALM, || windowed(false, 8));
    world.write(0, 0, 1, S);
    world.run(10 * MS);
    world.weather.loss_percent = 100;
    world.write(0, 1, 40, MS);
    world.run(MS);
    assert_eq!(world.ends[0].conn.status().credit, 0);
    world.weather.loss_percent = 0;
    world.run(2 * S);
    assert_eq!(world.ends[0].conn.status().queued, 0);
    let got = world.numbers(1);
    assert_eq!(got[0], 0);
    // The receiver granted the first window before the reader fetched the first UDF.
    assert_eq!(got[1..], (8..40).collect::<Vec<_>>());
    assert!(world.ends[1].delivered[1].gap_before);
}

#[test]
fn a_rate_is_kept() {
    for window in [None, Some(WindowControl::default())] {
        let mut world = World::new(1, CALM, || ConnectionConfig {
            retransmission: false,
            window,
            rate: Some(RateControl {
                pdus: 100,
                frame_ms: 50,
            }),
            ..ConnectionConfig::default()
        });
        world.write(0, 0, u64::MAX, S);
        let sent = world.ends[0].conn.counters().sent;
        assert!((1990..=2012).contains(&sent), "{sent}");
        // The receiver grants a lower rate.
        let now = world.now;
        world.ends[1].conn.set_rate(
            Instant::from_nanos(now),
            RateControl {
                pdus: 10,
                frame_ms: 50,
            },
        );
        world.drain(1);
        world.run(100 * MS);
        let before = world.ends[0].conn.counters().sent;
        world.write(0, 0, u64::MAX, S);
        let slow = world.ends[0].conn.counters().sent - before;
        assert!((195..=203).contains(&slow), "{slow}");
    }
}

#[test]
fn acknowledgements_follow_the_policy() {
    // Bursts of 8 PDUs, 20 ms apart.
    let acks = |ack: AckPolicy| {
        let mut world = World::new(1, CALM, || ConnectionConfig {
            ack,
            a: Duration::from_millis(10),
            ..ConnectionConfig::default()
        });
        for burst in 0..100 {
            world.write(0, burst * 8, burst * 8 + 8, S);
            world.run(20 * MS);
        }
        assert_eq!(world.numbers(1).len(), 800);
        assert_eq!(world.ends[0].conn.counters().retransmitted, 0);
        world.ends[0].conn.counters().control_received
    };
    let each = acks(AckPolicy { every: 1, burst: 1 });
    let per_burst = acks(AckPolicy {
        every: 64,
        burst: 2,
    });
    let lazy = acks(AckPolicy {
        every: 1000,
        burst: 1000,
    });
    // All PDUs of a burst arrive at the same time here, so there is one acknowledgement for each
    // burst.
    assert!((100..=104).contains(&per_burst), "{per_burst}");
    assert!((100..=104).contains(&lazy), "{lazy}");
    assert!((100..=104).contains(&each), "{each}");
}

#[test]
fn a_lone_pdu_is_acknowledged_after_a() {
    let mut world = World::new(1, CALM, ConnectionConfig::default);
    world.write(0, 0, 1, S);
    world.run(2 * MS);
    assert!(
        world.ends[0].conn.is_drained(),
        "the first of a run at once"
    );
    world.write(0, 1, 2, S);
    world.run(20 * MS);
    assert!(!world.ends[0].conn.is_drained());
    world.run(3 * MS);
    assert!(world.ends[0].conn.is_drained());
    assert_eq!(world.ends[0].conn.counters().probes, 0);
}

#[test]
fn a_late_clock_does_not_make_a_lone_pdu_go_twice() {
    let calm = Weather {
        delay_ns: MS / 20,
        ..CALM
    };
    let mut world = World::new(1, calm, ConnectionConfig::default);
    for number in 0..40 {
        world.write(0, number, number + 1, S);
        world.run(100 * MS);
        assert!(world.ends[0].conn.is_drained());
        // Timers and schedulers of both sides together may be late by many round-trip times.
        world.weather.delay_ns = if number % 16 == 14 { 2 * MS } else { MS / 20 };
    }
    let counters = world.ends[0].conn.counters();
    assert_eq!((counters.probes, counters.timeouts), (0, 0));
}

#[test]
fn numbers_run_out_with_a_warning() {
    let mut world = World::new(1, CALM, || ConnectionConfig {
        seq_bits: 8,
        window: Some(WindowControl {
            credit_max: 16,
            initial_credit: 16,
        }),
        ..ConnectionConfig::default()
    });
    world.write(0, 0, 400, 10 * S);
    world.run(S);
    let events = &world.ends[0].events;
    assert_eq!(events[0], ConnEvent::Rollover);
    assert_eq!(events[1..], [ConnEvent::Failed(FailReason::Exhausted)]);
    let got = world.numbers(1);
    assert!(got.len() >= 191 && got.len() < 256, "{}", got.len());
    assert!(got.iter().enumerate().all(|(index, n)| index as u64 == *n));
}

#[test]
fn a_queue_is_bounded_in_bytes_too() {
    let mut world = World::new(1, CALM, || ConnectionConfig {
        queue: QueueLimits {
            pdus: 100,
            bytes: 1000,
            ..QueueLimits::default()
        },
        ..windowed(true, 1)
    });
    let conn = &mut world.ends[0].conn;
    let mut written = 0;
    while conn.room() > 0
        && conn
            .write(Instant::from_secs(1), Bytes::from(vec![0; 300]))
            .is_ok()
    {
        written += 1;
    }
    // The last UDF exceeds the limit; it was accepted because there was room before it.
    assert_eq!(written, 4);
    assert!(
        conn.write(Instant::from_secs(1), Bytes::from(vec![0; 1]))
            .is_err()
    );
    assert_eq!(conn.counters().refused, 1);
}

#[test]
fn what_is_outstanding_is_bounded_in_bytes_whatever_the_window() {
    let mut world = World::new(1, CALM, || ConnectionConfig {
        queue: QueueLimits {
            flight_bytes: 1000,
            ..QueueLimits::default()
        },
        ..windowed(true, 64)
    });
    let conn = &mut world.ends[0].conn;
    for _ in 0..10 {
        conn.write(Instant::from_secs(1), Bytes::from(vec![0; 300]))
            .unwrap();
    }
    let mut sent = 0;
    while conn.poll_transmit(Instant::from_secs(1)).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 4, "the last of them goes beyond the limit");
    assert!(
        conn.poll_transmit(Instant::from_secs(2)).is_none(),
        "they are not acknowledged"
    );
}

#[test]
fn silence_fails_a_reliable_connection_after_r() {
    let mut world = World::new(1, CALM, ConnectionConfig::default);
    world.write(0, 0, 5, S);
    world.run(S);
    world.weather.loss_percent = 100;
    world.write(0, 5, 10, MS);
    world.run(25 * S);
    assert!(world.ends[0].events.is_empty());
    world.run(10 * S);
    let failed = ConnEvent::Failed(FailReason::NoProgress);
    assert_eq!(world.ends[0].events, [failed]);
    assert!(world.ends[0].conn.poll_timeout().is_none());
    let counters = world.ends[0].conn.counters();
    assert!((5..40).contains(&counters.timeouts), "{counters:?}");
}

#[test]
fn policies_change_while_data_flows() {
    let weather = Weather {
        loss_percent: 2,
        ..CALM
    };
    let mut world = World::new(1, weather, ConnectionConfig::default);
    let mut next = 0;
    for name in ["cubic", "aimd", "dctcp", "none"] {
        let policy = carina_efcp::congestion::by_name(name, &Default::default());
        world.ends[0]
            .conn
            .set_congestion(policy.expect("it exists"));
        assert_eq!(world.ends[0].conn.status().congestion, name);
        next = world.write(0, next, next + 500, 60 * S);
    }
    world.run(10 * S);
    assert_eq!(world.numbers(1), (0..2000).collect::<Vec<_>>());
}

#[test]
fn rendezvous_tells_how_far_data_was_sent() {
    let mut world = World::new(1, CALM, || windowed(false, 2));
    world.weather.loss_percent = 100;
    world.write(0, 0, 5, S);
    world.weather.loss_percent = 0;
    let next = world.ends[0].conn.status().next_seq;
    let at = world.ends[0].conn.poll_timeout().expect("rendezvous");
    world.now = (at.max(Instant::from_nanos(world.now))).as_nanos();
    world.ends[0]
        .conn
        .handle_timeout(Instant::from_nanos(world.now));
    let transmit = world.ends[0]
        .conn
        .poll_transmit(Instant::from_nanos(world.now));
    let transmit = transmit.expect("a rendezvous PDU");
    assert_eq!(transmit.kind, PduType::Rendezvous);
    let window = transmit.control.and_then(|control| control.window);
    assert_eq!(window.map(|window| window.my_left), Some(next));
}
