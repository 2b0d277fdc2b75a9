//! Connections with the profiles of other implementations. Their PDUs are encoded and decoded in
//! the layouts of those implementations.

use std::collections::BTreeSet;

use carina_efcp::{
    AckPolicy, ConnEvent, Connection, ConnectionConfig, Discard, EfcpProfile, Stall, WindowControl,
    congestion,
};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::{Dialect, PduType, Syntax, Widths};

use crate::simulation::channel::{MS, Pdu, Random, S, Weather, World, pdu};

/// Profile in which runs start with 0, and a sender with a closed window repeats a data PDU.
pub(super) const ZERO: EfcpProfile = EfcpProfile::RLITE;

/// Profile in which every PDU has the data run flag and is answered.
pub(super) const FLAGGED: EfcpProfile = EfcpProfile::IRATI;

fn syntax(profile: EfcpProfile, seq: u8) -> Syntax {
    let dialect = match profile.stall {
        Stall::Repeat => Dialect::Rlite,
        Stall::Rendezvous => Dialect::Irati,
    };
    let widths = Widths {
        seq,
        ctrl_seq: seq,
        ..dialect.widths()
    };
    Syntax { dialect, widths }
}

/// A connection whose features are chosen by the bits of `features`.
fn config(profile: EfcpProfile, features: u64) -> ConnectionConfig {
    let policy = ["none", "cubic"][(features >> 4) as usize % 2];
    let bits = [16, 32][(features >> 5) as usize % 2];
    ConnectionConfig {
        in_order: features & 1 != 0,
        retransmission: features & 2 != 0,
        window: (features & 4 != 0).then_some(WindowControl {
            credit_max: 50,
            initial_credit: 50,
        }),
        max_sdu_gap: [None, Some(0)][(features >> 3) as usize % 2],
        seq_bits: bits,
        ctrl_seq_bits: bits,
        mpl: Duration::from_millis(200),
        r: Duration::from_secs(40),
        profile,
        ack: AckPolicy {
            every: if profile.answers_every { 1 } else { 64 },
            ..AckPolicy::default()
        },
        congestion: congestion::by_name(policy, &Default::default()).expect("a policy"),
        ..ConnectionConfig::default()
    }
}

fn weather(random: &mut Random) -> Weather {
    Weather {
        loss_percent: random.below(25),
        repeat_percent: random.below(20),
        reorder_percent: random.below(50),
        jitter_ns: random.below(30) * MS,
        delay_ns: random.below(20) * MS,
        mark_percent: 0,
    }
}

fn world(seed: u64, profile: EfcpProfile, features: u64, weather: Weather) -> World {
    let config = || config(profile, features);
    let mut world = World::new(seed, weather, config);
    world.syntax = Some(syntax(profile, config().seq_bits / 8));
    world
}

/// Writes in both directions, first with impairments, then without. Pauses are long enough for
/// either side to forget the run. Checks what is delivered.
fn scenario(seed: u64, profile: EfcpProfile) -> World {
    let mut random = Random::new(seed);
    let features = random.next() % 64;
    let weather = weather(&mut random);
    let context = format!("seed {seed}, {:?}, {weather:?}", config(profile, features));
    let mut world = world(seed, profile, features, weather);
    let first = 200 + random.below(200);
    let half = world.write(0, 0, first, 40 * S);
    let back = world.write(1, 0, 50, 10 * S);
    world.run(random.below(3) * S);
    world.weather = Weather {
        delay_ns: weather.delay_ns,
        ..Weather::default()
    };
    let end = world.write(0, half, first + 100, 240 * S);
    assert_eq!(end, first + 100, "the writer is stuck: {context}");
    world.run(random.below(300) * S);
    let last = world.write(0, end, end + 60, 120 * S);
    world.run(30 * S);
    world.ends[0].conn.finish(Instant::from_nanos(world.now));
    world.run(10 * S);
    assert!(world.ends[0].conn.is_drained(), "not drained: {context}");
    check(&world, features, [last, back], &context);
    world
}

fn check(world: &World, features: u64, written: [u64; 2], context: &str) {
    let (in_order, reliable) = (features & 1 != 0, features & 2 != 0);
    for side in 0..2 {
        let failed = |event: &ConnEvent| matches!(event, ConnEvent::Failed(_));
        let events = &world.ends[side].events;
        assert!(!events.iter().any(failed), "{events:?}: {context}");
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
        } else if side == 0 {
            let good = distinct.range(written[0] - 60..).count();
            assert!(good >= 55, "{good} of 60 in good weather: {context}");
        }
        let counters = world.ends[side].conn.counters();
        let beyond = counters.discarded(Discard::BeyondWindow);
        assert_eq!(beyond, 0, "window overrun: {context}");
        assert!(world.ends[side].conn.status().held <= 1024, "{context}");
    }
}

fn many(profile: EfcpProfile) {
    let mut seen = [0; 5];
    for seed in 0..300 {
        let world = scenario(seed, profile);
        for end in &world.ends {
            let counters = end.conn.counters();
            for (sum, count) in seen.iter_mut().zip([
                counters.retransmitted,
                counters.timeouts,
                counters.lost,
                counters.rendezvous_sent,
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
fn runs_from_zero_deliver_what_they_promise() {
    many(ZERO);
}

#[test]
fn runs_with_the_flag_on_every_pdu_deliver_what_they_promise() {
    many(FLAGGED);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for profile in [ZERO, FLAGGED] {
        let traces = || (0..10).map(|seed| scenario(seed, profile).trace);
        assert!(traces().eq(traces()));
    }
}

/// Sequence numbers wrap many times without an effect on users.
#[test]
fn a_run_goes_on_when_its_numbers_begin_anew() {
    let weather = Weather {
        loss_percent: 2,
        repeat_percent: 2,
        reorder_percent: 5,
        jitter_ns: 2 * MS,
        delay_ns: MS,
        ..Weather::default()
    };
    for profile in [ZERO, FLAGGED] {
        for features in [0b01_0111, 0b01_0101] {
            let mut world = world(9, profile, features, weather);
            let written = world.write(0, 0, 150_000, 4000 * S);
            assert_eq!(written, 150_000);
            world.run(20 * S);
            let counters = world.ends[0].conn.counters();
            // If numbers are not reused within a run, a new run follows.
            let runs = if profile == ZERO && features & 2 != 0 {
                3
            } else {
                1
            };
            assert_eq!(counters.runs, runs);
            assert!(!world.ends[0].events.contains(&ConnEvent::Rollover));
            let got = world.numbers(1);
            assert!(got.is_sorted());
            if features & 2 != 0 {
                assert_eq!(got.len(), 150_000);
            } else {
                assert!(got.len() > 140_000, "{}", got.len());
            }
        }
    }
}

/// Fetches the PDUs that an end sends now.
fn sent(world: &mut World, side: usize) -> Vec<Pdu> {
    let now = world.now;
    let conn = &mut world.ends[side].conn;
    std::iter::from_fn(|| conn.poll_transmit(Instant::from_nanos(now)))
        .map(pdu)
        .collect()
}

fn write(world: &mut World, side: usize, count: u64) -> Vec<Pdu> {
    for number in 0..count {
        let udf = Bytes::from(number.to_be_bytes().to_vec());
        world.ends[side]
            .conn
            .write(Instant::from_nanos(world.now), udf)
            .expect("room");
    }
    sent(world, side)
}

fn give(world: &mut World, side: usize, pdu: &Pdu) -> Result<(), Discard> {
    let (now, control) = (world.now, pdu.control.as_ref());
    let conn = &mut world.ends[side].conn;
    conn.receive(Instant::from_nanos(now), &pdu.pci, control, pdu.udf.clone())
        .map(|_| ())
}

const RELIABLE: u64 = 0b10_1111;
const WINDOWED: u64 = 0b10_1101;

#[test]
fn the_first_pdu_goes_alone_until_it_is_acknowledged() {
    for (profile, is_flagged) in [(ZERO, false), (FLAGGED, true)] {
        let mut world = world(3, profile, RELIABLE, Weather::default());
        let first = write(&mut world, 0, 20);
        assert_eq!(first.len(), 1);
        assert!(first[0].pci.drf);
        assert_eq!(first[0].pci.seq == 0, !is_flagged);
        give(&mut world, 1, &first[0]).expect("the first");
        let answer = sent(&mut world, 1);
        assert_eq!(answer.len(), 1);
        let control = answer[0].control.expect("control");
        assert_eq!(control.seq, u64::from(is_flagged));
        assert_eq!(control.last_seq, 0);
        give(&mut world, 0, &answer[0]).expect("an acknowledgement");
        let rest = sent(&mut world, 0);
        assert_eq!(rest.len(), 19);
        assert!(rest.iter().all(|pdu| pdu.pci.drf == is_flagged));
        // Without acknowledgements the sender need not wait.
        let mut world = self::world(3, profile, WINDOWED, Weather::default());
        assert_eq!(write(&mut world, 0, 20).len(), 20);
    }
}

#[test]
fn flagged_pdus_below_and_inside_the_window_belong_to_the_run() {
    let mut world = world(4, FLAGGED, WINDOWED, Weather::default());
    let mut pdus = write(&mut world, 0, 20);
    assert!(pdus.iter().all(|pdu| pdu.pci.drf));
    let late = pdus.remove(0);
    for pdu in &pdus {
        give(&mut world, 1, pdu).expect("of the run");
        let answers = sent(&mut world, 1);
        let kinds: Vec<_> = answers.iter().map(|pdu| pdu.pci.kind).collect();
        assert_eq!(kinds, [PduType::Control], "each is answered");
        assert_eq!(answers[0].control.expect("control").ack, None);
    }
    // This PDU arrives after the second, which the receiver has taken for the first.
    assert_eq!(give(&mut world, 1, &late), Err(Discard::Duplicate));
    assert_eq!(give(&mut world, 1, &pdus[3]), Err(Discard::Duplicate));
    assert_eq!(world.ends[1].conn.status().held, 19);
    // A PDU with a distant number starts another run.
    let mut other = pdus[5].clone();
    other.pci.seq = other.pci.seq.wrapping_add(1 << 20) & 0xffff_ffff;
    give(&mut world, 1, &other).expect("a new run");
    let left = world.ends[1].conn.status().receiver_left;
    assert_eq!(left & 0xffff_ffff, (other.pci.seq + 1) & 0xffff_ffff);
}

#[test]
fn a_first_pdu_without_the_flag_begins_a_run() {
    let mut world = world(5, ZERO, RELIABLE, Weather::default());
    let mut first = write(&mut world, 0, 1).remove(0);
    first.pci.drf = false;
    give(&mut world, 1, &first).expect("number 0");
    assert_eq!(world.ends[1].conn.status().receiver_left & 0xffff, 1);
    // The receiver has forgotten the run, so it accepts any PDU of its middle.
    world.run(200 * S);
    first.pci.seq = 7;
    give(&mut world, 1, &first).expect("after a silence");
    assert_eq!(world.ends[1].conn.status().receiver_left & 0xffff, 8);
    world.drain(1);
    assert_eq!(world.ends[1].delivered.len(), 2);
}

#[test]
fn a_second_pdu_that_overtakes_the_first_waits_for_it() {
    let mut world = world(5, ZERO, RELIABLE, Weather::default());
    let first = write(&mut world, 0, 1).remove(0);
    let mut second = first.clone();
    (second.pci.seq, second.pci.drf) = (1, false);
    give(&mut world, 1, &second).expect("early");
    assert!(sent(&mut world, 1).is_empty());
    give(&mut world, 1, &first).expect("the first");
    let answer = sent(&mut world, 1).remove(0);
    let ack = answer.control.and_then(|control| control.ack);
    assert_eq!(ack.map(|ack| ack.next), Some(2));
    world.drain(1);
    assert_eq!(world.ends[1].delivered.len(), 2);
}

/// A peer with shorter timers restarts its run before this side has forgotten the old one.
#[test]
fn a_run_from_zero_begins_again_after_a_silence() {
    let mut world = world(6, ZERO, RELIABLE, Weather::default());
    let first = write(&mut world, 0, 1).remove(0);
    give(&mut world, 1, &first).expect("the first");
    let answer = sent(&mut world, 1).remove(0);
    give(&mut world, 0, &answer).expect("an acknowledgement");
    assert_eq!(give(&mut world, 1, &first), Err(Discard::Duplicate));
    assert_eq!(sent(&mut world, 1).len(), 1, "a duplicate is acknowledged");
    // Δt is 40.22 s here.
    world.run(41 * S);
    give(&mut world, 1, &first).expect("a new run");
    let control = sent(&mut world, 1).remove(0).control.expect("control");
    assert_eq!(control.seq, 0, "control PDUs are numbered anew");
    world.drain(1);
    assert_eq!(world.ends[1].delivered.len(), 2);
}

#[test]
fn repeated_control_pdus_are_counted_and_change_nothing() {
    for profile in [ZERO, FLAGGED] {
        let mut world = world(7, profile, RELIABLE, Weather::default());
        let first = write(&mut world, 0, 5).remove(0);
        give(&mut world, 1, &first).expect("the first");
        let answer = sent(&mut world, 1).remove(0);
        give(&mut world, 0, &answer).expect("news");
        assert_eq!(give(&mut world, 0, &answer), Err(Discard::OldControl));
        assert_eq!(world.ends[0].conn.status().outstanding, 0);
    }
}

#[test]
fn repeated_acknowledgements_bring_back_what_is_missing() {
    for profile in [ZERO, FLAGGED] {
        let mut world = world(7, profile, RELIABLE, Weather::default());
        let first = write(&mut world, 0, 1).remove(0);
        give(&mut world, 1, &first).expect("the first");
        let answer = sent(&mut world, 1).remove(0);
        give(&mut world, 0, &answer).expect("news");
        let burst = write(&mut world, 0, 10);
        assert_eq!(burst.len(), 10);
        world.now += MS;
        let mut again = Vec::new();
        for pdu in &burst[1..] {
            give(&mut world, 1, pdu).expect("beyond the gap");
            for answer in sent(&mut world, 1) {
                let ack = answer
                    .control
                    .and_then(|control| control.ack)
                    .expect("an ack");
                assert_eq!(ack.next, burst[0].pci.seq);
                assert!(ack.sack.as_slice().is_empty());
                let _ = give(&mut world, 0, &answer);
            }
            again.extend(sent(&mut world, 0));
        }
        let numbers: Vec<u64> = again.iter().map(|pdu| pdu.pci.seq).collect();
        assert_eq!(numbers, [burst[0].pci.seq], "once, and nothing else");
        assert_eq!(again[0].pci.drf, profile.drf_on_every);
        give(&mut world, 1, &again[0]).expect("the missing one");
        let answer = sent(&mut world, 1).remove(0);
        give(&mut world, 0, &answer).expect("news");
        let (status, counters) = (world.ends[0].conn.status(), world.ends[0].conn.counters());
        assert_eq!(status.outstanding, 0);
        assert_eq!(
            (counters.timeouts, counters.lost, counters.retransmitted),
            (0, 1, 1)
        );
        // Retransmitted PDUs give no round-trip sample, nor do PDUs that waited for a
        // retransmission.
        assert!(status.round_trip < Duration::from_millis(1));
    }
}

/// Sends a few PDUs at a time, so that A decides when they are acknowledged. The peer's timer is
/// late by up to three quarters of A. No PDU may be retransmitted.
#[test]
fn what_is_acknowledged_late_is_not_sent_again() {
    let delays = [MS / 20, MS, 10 * MS, 60 * MS];
    for (seed, delay_ns) in (0..40).zip(delays.into_iter().cycle()) {
        let weather = Weather {
            delay_ns,
            ..Weather::default()
        };
        let mut world = world(seed, ZERO, RELIABLE, weather);
        let mut random = Random::new(seed);
        let config = config(ZERO, RELIABLE);
        let a = config.a + Duration::from_nanos(random.below(15) * MS);
        let late = ConnectionConfig { a, ..config };
        world.ends[1].conn = Connection::new(Instant::ZERO, late, seed);
        let mut next = 0;
        for _ in 0..300 {
            // Two PDUs are acknowledged at once, one is not.
            let end = next + 1 + u64::from(random.percent(30));
            next = world.write(0, next, end, 10 * S);
            world.run(random.below(80) * MS);
        }
        world.run(S);
        let counters = world.ends[0].conn.counters();
        let again = (counters.probes, counters.timeouts, counters.retransmitted);
        assert_eq!(again, (0, 0, 0), "seed {seed}, delay {delay_ns}, A {a}");
        assert_eq!(world.numbers(1), (0..next).collect::<Vec<_>>());
    }
}

/// The reader stops, and the control PDU that reopens the window is lost.
#[test]
fn a_window_whose_opening_was_lost_opens_all_the_same() {
    for (profile, features) in [
        (ZERO, RELIABLE),
        (ZERO, WINDOWED),
        (FLAGGED, RELIABLE),
        (FLAGGED, WINDOWED),
    ] {
        let calm = Weather {
            delay_ns: MS,
            ..Weather::default()
        };
        let mut world = world(8, profile, features, calm);
        world.ends[1].appetite = Some(0);
        world.write(0, 0, 200, S);
        world.run(S);
        assert_eq!(world.ends[0].conn.status().credit, 0);
        world.ends[1].appetite = None;
        world.weather.loss_percent = 100;
        world.drain(1);
        world.run(S);
        world.weather.loss_percent = 0;
        let written = world.write(0, 200, 400, 60 * S);
        assert_eq!(written, 400, "{profile:?} {features:b}");
        world.run(20 * S);
        let got = world.numbers(1);
        assert!(got.is_sorted());
        assert!(world.ends[0].conn.counters().rendezvous_sent > 0);
        assert!(got.len() >= 399, "{} {profile:?} {features:b}", got.len());
    }
}
