//! Checks what is delivered, with every combination of features.

use std::collections::BTreeSet;

use carina_efcp::{
    ConnEvent, ConnectionConfig, Discard, RateControl, WindowControl, congestion, rtt,
};
use carina_time::{Duration, Instant};

use crate::simulation::channel::{MS, Random, S, Weather, World};

/// A connection whose features are chosen by the bits of `features`.
fn config(features: u64) -> ConnectionConfig {
    let policy = ["none", "aimd", "cubic", "dctcp"][(features >> 6) as usize % 4];
    let estimator = ["smoothed", "minimum"][(features >> 5) as usize % 2];
    ConnectionConfig {
        in_order: features & 1 != 0,
        retransmission: features & 2 != 0,
        window: (features & 4 != 0).then_some(WindowControl {
            credit_max: 128,
            initial_credit: 16,
        }),
        rate: (features & 8 != 0).then_some(RateControl {
            pdus: 500,
            frame_ms: 100,
        }),
        max_sdu_gap: [None, Some(0)][(features >> 4) as usize % 2],
        ecn: true,
        seq_bits: [16, 32, 64][(features % 3) as usize],
        ctrl_seq_bits: [16, 32][(features % 2) as usize],
        mpl: Duration::from_millis(200),
        congestion: congestion::by_name(policy, &Default::default()).expect("a policy"),
        rtt: rtt::by_name(estimator, &Default::default()).expect("a policy"),
        ..ConnectionConfig::default()
    }
}

fn weather(random: &mut Random) -> Weather {
    Weather {
        loss_percent: random.below(31),
        repeat_percent: random.below(20),
        reorder_percent: random.below(50),
        jitter_ns: random.below(30) * MS,
        delay_ns: random.below(20) * MS,
        mark_percent: random.below(20),
    }
}

/// Writes in both directions, first with impairments, then without, and checks what is delivered.
fn scenario(seed: u64) -> World {
    let mut random = Random::new(seed);
    let features = random.next() % 256;
    let weather = weather(&mut random);
    let mut world = World::new(seed, weather, || config(features));
    let context = format!("seed {seed}, {:?}, {weather:?}", config(features));
    let first = 200 + random.below(200);
    let half = world.write(0, 0, first, 20 * S);
    let back = world.write(1, 0, 50, 5 * S);
    world.run(random.below(3) * S);
    let bad = world.weather;
    world.weather = Weather {
        delay_ns: bad.delay_ns,
        ..Weather::default()
    };
    // Progress after the impairments end: everything that is left is written and arrives.
    let end = world.write(0, half, first + 100, 120 * S);
    assert_eq!(end, first + 100, "the writer is stuck: {context}");
    world.run(10 * S);
    world.ends[0].conn.finish(Instant::from_nanos(world.now));
    world.run(10 * S);
    assert!(world.ends[0].conn.is_drained(), "not drained: {context}");
    for side in 0..2 {
        let failed = |event: &ConnEvent| matches!(event, ConnEvent::Failed(_));
        assert!(
            !world.ends[side].events.iter().any(failed),
            "failed: {context}"
        );
    }
    check(&world, features, [end, back], &context);
    world
}

fn check(world: &World, features: u64, written: [u64; 2], context: &str) {
    let (in_order, reliable) = (features & 1 != 0, features & 2 != 0);
    for side in 0..2 {
        let got = world.numbers(1 - side);
        let distinct: BTreeSet<u64> = got.iter().copied().collect();
        assert_eq!(distinct.len(), got.len(), "repeated: {context}");
        assert!(
            got.iter().all(|n| *n < written[side]),
            "invented: {context}"
        );
        if in_order {
            assert!(got.is_sorted(), "out of order {got:?}: {context}");
        }
        if reliable {
            assert_eq!(got.len() as u64, written[side], "incomplete: {context}");
        } else {
            // Everything sent without impairments has arrived, except the first PDUs after the
            // impairments.
            let late = written[0] - 60;
            let good = distinct.range(late..).count();
            assert!(
                side == 1 || good >= 55,
                "{good} of 60 in good weather: {context}"
            );
        }
        let counters = world.ends[side].conn.counters();
        let beyond = counters.discarded(Discard::BeyondWindow);
        assert_eq!(beyond, 0, "window overrun: {context}");
        let status = world.ends[side].conn.status();
        assert!(status.held <= 1024, "{} held: {context}", status.held);
    }
}

#[test]
fn every_combination_of_features_delivers_what_it_promises() {
    let mut seen = [0; 9];
    for seed in 0..600 {
        let world = scenario(seed);
        for end in &world.ends {
            let counters = end.conn.counters();
            for (sum, count) in seen.iter_mut().zip([
                counters.retransmitted,
                counters.timeouts,
                counters.probes,
                counters.spurious,
                counters.rendezvous_sent,
                counters.given_up,
                counters.marks_echoed,
                counters.control_lost,
                counters.discarded(Discard::Duplicate),
            ]) {
                *sum += count;
            }
        }
    }
    // The impairments were strong enough that every mechanism was used.
    assert!(seen.iter().all(|sum| *sum > 100), "{seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces: Vec<u64> = (0..20).map(|seed| scenario(seed).trace).collect();
    let again: Vec<u64> = (0..20).map(|seed| scenario(seed).trace).collect();
    assert_eq!(traces, again);
    let distinct: BTreeSet<u64> = traces.iter().copied().collect();
    assert_eq!(distinct.len(), traces.len());
}
