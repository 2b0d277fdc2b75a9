//! Goodput under loss, delay and reordering, in PDUs of virtual time.

use carina_efcp::{ConnectionConfig, WindowControl, congestion};

use crate::simulation::channel::{MS, S, US, Weather, World};

fn config(policy: &str) -> ConnectionConfig {
    ConnectionConfig {
        window: Some(WindowControl {
            credit_max: 4096,
            initial_credit: 64,
        }),
        ecn: policy == "dctcp",
        congestion: congestion::by_name(policy, &Default::default()).expect("a policy"),
        queue: carina_efcp::QueueLimits {
            pdus: 4096,
            bytes: 1 << 24,
            flight_bytes: 1 << 24,
        },
        ..ConnectionConfig::default()
    }
}

/// PDUs delivered in order within `seconds` of writing without pause.
fn goodput(policy: &str, weather: Weather, pdu_ns: u64, seconds: u64) -> (u64, World) {
    let mut world = World::new(7, weather, || config(policy));
    world.pdu_ns = pdu_ns;
    world.drop_tail = if policy == "none" { usize::MAX } else { 200 };
    world.write(0, 0, u64::MAX, seconds * S);
    let got = world.numbers(1);
    assert!(got.iter().enumerate().all(|(index, n)| index as u64 == *n));
    (got.len() as u64, world)
}

#[test]
fn one_percent_of_loss_costs_what_the_policy_says() {
    let weather = Weather {
        loss_percent: 1,
        delay_ns: 10 * MS,
        reorder_percent: 2,
        jitter_ns: 2 * MS,
        ..Weather::default()
    };
    // Mathis: for AIMD, about 12 PDUs in a round trip of 20 ms at 1 % loss. Without congestion
    // control only the window of 4096 PDUs limits the sender, which repairs 200 losses at any time.
    for (policy, min, max) in [
        ("none", 120_000, 400_000),
        ("aimd", 2_000, 10_000),
        ("cubic", 2_000, 15_000),
    ] {
        let (got, world) = goodput(policy, weather, 10 * US, 4);
        let counters = world.ends[0].conn.counters();
        assert!((min..=max).contains(&got), "{policy}: {got}, {counters:?}");
        assert!(counters.timeouts <= 4, "{policy}: {counters:?}");
        // About one PDU in a hundred is retransmitted, and few of them unnecessarily.
        let again = counters.retransmitted * 100;
        assert!(again < 4 * counters.sent, "{policy}: {counters:?}");
        let control = counters.control_received;
        assert!(control < counters.sent, "{policy}: {counters:?}");
    }
}

#[test]
fn a_bottleneck_is_filled() {
    // 20,000 PDU/s, 20 ms round trip, a queue of 200: rate times round trip is 400.
    let weather = Weather {
        delay_ns: 10 * MS,
        mark_percent: 0,
        ..Weather::default()
    };
    for policy in ["aimd", "cubic"] {
        let (got, world) = goodput(policy, weather, 50 * US, 20);
        let counters = world.ends[0].conn.counters();
        assert!(got > 320_000, "{policy}: {got} of 400,000, {counters:?}");
        assert_eq!(counters.timeouts, 0, "{policy}: {counters:?}");
    }
}

#[test]
fn marks_keep_the_queue_short() {
    let weather = Weather {
        delay_ns: MS,
        mark_percent: 1,
        ..Weather::default()
    };
    let (got, world) = goodput("dctcp", weather, 50 * US, 10);
    let counters = world.ends[0].conn.counters();
    assert!(got > 170_000, "{got} of 200,000, {counters:?}");
    assert!(counters.marks_echoed > 100, "{counters:?}");
    assert!(counters.lost < 200, "{counters:?}");
}

#[test]
fn reordering_alone_costs_little() {
    let weather = Weather {
        delay_ns: 10 * MS,
        reorder_percent: 10,
        jitter_ns: 3 * MS,
        ..Weather::default()
    };
    let (got, world) = goodput("cubic", weather, 50 * US, 20);
    let counters = world.ends[0].conn.counters();
    assert!(got > 250_000, "{got} of 400,000, {counters:?}");
    assert!(counters.retransmitted * 20 < counters.sent, "{counters:?}");
}
