//! Compares goodput over a path with loss, duplication and reordering with the response function of
//! the policy.

use carina_efcp::{ConnectionConfig, Discard, congestion};
use carina_time::Instant;
use carina_wire::Bytes;

use crate::simulation::channel::{MS, Rare, S, US, Weather, World, pdu};

/// One-way delay of the path, in ms.
const DELAY_MS: u64 = 10;

fn config(policy: &str) -> ConnectionConfig {
    ConnectionConfig {
        congestion: congestion::by_name(policy, &Default::default()).expect("a policy"),
        ..ConnectionConfig::default()
    }
}

/// Writes without pause for some seconds. Returns the simulation, and the PDUs delivered per round
/// trip.
fn run(policy: &str, seed: u64, delay_ms: u64, rare: Rare, seconds: u64) -> (World, f64) {
    let weather = Weather {
        delay_ns: delay_ms * MS,
        ..Weather::default()
    };
    let mut world = World::new(seed, weather, || config(policy));
    world.rare = rare;
    world.pdu_ns = 12 * US;
    let mut next = 0;
    for _ in 0..seconds {
        next = world.write(0, next, u64::MAX, S);
    }
    let got = world.numbers(1);
    assert!(got.iter().enumerate().all(|(index, n)| index as u64 == *n));
    let round_trips = seconds as f64 * 1000.0 / (2 * delay_ms) as f64;
    (world, got.len() as f64 / round_trips)
}

/// Average number of PDUs in flight when a share of `loss` is lost: the larger value of RFC 9438,
/// section 5.1, and of the equations of its AIMD-friendly region.
fn response(rtt_s: f64, loss: f64) -> f64 {
    let cubic = 1.054 * (rtt_s / loss).powf(0.75);
    cubic.max((1.5 / loss).sqrt())
}

#[test]
fn goodput_is_what_the_response_function_gives() {
    let lost = 100;
    let paths = [
        (0, 0),
        // Each of these PDUs may overtake the PDUs of half a round trip.
        (0, 50),
        (50, 0),
        (50, 50),
    ];
    for (repeated, overtaking) in paths {
        let rare = Rare {
            lost,
            repeated,
            overtaking,
        };
        // CUBIC exceeds the response function once it grows beyond the window before the loss.
        for (policy, part) in [("aimd", 0.97), ("cubic", 1.03)] {
            let mut sum = 0.0;
            for seed in 1..=4 {
                let (world, flight) = run(policy, seed, DELAY_MS, rare, 60);
                sum += flight;
                let counters = world.ends[0].conn.counters();
                let found = format!("{policy} {rare:?} {seed}: {flight:.1}, {counters:?}");
                assert!(counters.timeouts <= 2, "{found}");
                // PDUs are lost in both directions. The sender learns from unnecessary
                // retransmissions.
                let needed = counters.sent / 100;
                assert!(counters.retransmitted < needed * 7 / 5, "{found}");
            }
            let expected = response(0.02, 0.01) * part;
            let mean = sum / 4.0;
            assert!(
                mean >= expected,
                "{policy} {rare:?}: {mean:.2} < {expected:.2}"
            );
        }
    }
}

#[test]
fn a_long_path_with_few_losses_is_used_as_cubic_says() {
    let rare = Rare {
        lost: 1,
        repeated: 10,
        overtaking: 10,
    };
    let (world, flight) = run("cubic", 3, 50, rare, 200);
    let expected = response(0.1, 0.0001);
    let counters = world.ends[0].conn.counters();
    assert!(expected > 187.0 && expected < 188.0, "{expected}");
    assert!(flight >= expected, "{flight:.1}, {counters:?}");
    assert_eq!(counters.timeouts, 0, "{counters:?}");
}

#[test]
fn where_nothing_is_lost_overtaking_costs_nothing() {
    for policy in ["aimd", "cubic", "dctcp"] {
        let rare = Rare {
            overtaking: 50,
            ..Rare::default()
        };
        // 20 ms at 83,333 PDUs per second.
        let (world, flight) = run(policy, 3, DELAY_MS, rare, 5);
        let counters = world.ends[0].conn.counters();
        let found = format!("{policy}: {flight:.0} of 1667, {counters:?}");
        assert!(flight > 1550.0, "{found}");
        assert_eq!(counters.timeouts, 0, "{found}");
        // No retransmission was necessary. The peer reports each one, and after the first round
        // trips there are no more.
        assert_eq!(counters.spurious, counters.retransmitted, "{found}");
        assert!(counters.retransmitted * 500 < counters.sent, "{found}");
        let twice = world.ends[1].conn.counters().discarded(Discard::Duplicate);
        assert_eq!(twice, counters.retransmitted, "{found}");
        assert_eq!(counters.discarded(Discard::AbsurdSack), 0, "{found}");
    }
}

#[test]
fn a_receiver_tells_what_came_twice() {
    let mut world = World::new(1, Weather::default(), || config("none"));
    let [a, b] = &mut world.ends;
    for number in 0..6 {
        let udf = Bytes::from(vec![number; 10]);
        a.conn
            .write(Instant::from_secs(1), udf)
            .expect("there is room");
    }
    let sent: Vec<_> = std::iter::from_fn(|| a.conn.poll_transmit(Instant::from_secs(1)))
        .map(pdu)
        .collect();
    let first = sent[0].pci.seq;
    // The PDUs that arrive together, and the ranges that the acknowledgement then contains.
    let arrivals = [
        (vec![0, 1], vec![]),
        (vec![1], vec![(1, 2)]),
        (vec![0, 1, 1], vec![(0, 2)]),
        (vec![4, 5, 4], vec![(4, 5), (4, 6)]),
        (vec![2], vec![(4, 6)]),
    ];
    for (arriving, expected) in arrivals {
        for index in &arriving {
            let pdu = sent[*index].clone();
            // The receiver refuses the second copy, and its acknowledgement reports it.
            let _ = b
                .conn
                .receive(Instant::from_secs(1), &pdu.pci, None, pdu.udf);
        }
        let answer = pdu(b
            .conn
            .poll_transmit(Instant::from_secs(1))
            .expect("an answer at once"));
        assert!(b.conn.poll_transmit(Instant::from_secs(1)).is_none());
        let control = answer.control.expect("a control PDU");
        let ack = control.ack.as_ref().expect("an acknowledgement");
        let from_first = |(start, end): &(u64, u64)| (start - first, end - first);
        let reported: Vec<_> = ack.sack.as_slice().iter().map(from_first).collect();
        assert_eq!(reported, expected, "{arriving:?}");
        let taken = a
            .conn
            .receive(Instant::from_secs(1), &answer.pci, Some(&control), None);
        assert!(taken.is_ok(), "{taken:?}");
    }
    let counters = a.conn.counters();
    assert_eq!(counters.discarded(Discard::AbsurdSack), 0);
    assert_eq!(counters.spurious, 0, "nothing was sent twice");
}
