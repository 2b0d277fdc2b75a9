//! Tests of traffic between ports and an uplink.

use crate::packets::{BROADCAST, mac, tagged, udp};
use crate::simulated::{Bench, UPLINK, port};

const OUT: [(u8, u16); 2] = [(1, 5000), (9, 53)];
const IN: [(u8, u16); 2] = [(9, 53), (1, 5000)];

fn address(n: u8) -> String {
    format!("mac = \"02:00:00:00:00:{n:02x}\"\n")
}

#[test]
fn ports_have_tags_at_the_uplink_only() {
    let text = UPLINK.to_owned()
        + &port("a", &(address(1) + "vlan = 5"))
        + &port("b", &(address(2) + "vlan = 5"))
        + &port("c", &(address(1) + "vlan = 6"));
    let mut bench = Bench::new(&text);
    let out = udp(mac(1), mac(9), OUT, 60);
    let near = udp(mac(1), mac(2), OUT, 60);
    let all = udp(mac(1), BROADCAST, OUT, 60);
    for frame in [&out, &near, &all] {
        bench.send("a", frame);
    }
    let back = udp(mac(9), mac(1), IN, 60);
    bench.send("uplink", &tagged(&back, 6));
    bench.send("uplink", &tagged(&back, 7));
    bench.send("uplink", &back);
    bench.breathe();
    assert_eq!(bench.seen("uplink"), [tagged(&out, 5), tagged(&all, 5)]);
    assert_eq!(bench.seen("b"), [near, all]);
    assert_eq!(bench.seen("c"), [back]);
    assert_eq!(bench.seen("a"), [[0; 0]; 0]);
    let counts = bench.counts();
    assert_eq!(counts.drops["other_station"], 2);
    assert_eq!(
        (counts.ports[0].from_packets, counts.ports[0].from_bytes),
        (3, 180)
    );
    let uplink = counts.uplink.unwrap();
    assert_eq!((uplink.to_packets, uplink.to_bytes), (2, 128));
}

#[test]
fn filter_blocks_a_port_and_state_lets_answers_in() {
    let ingress = "ingress_filter = \"udp dst port 80\"\n";
    let stateful = format!("{}{ingress}stateful = true\n", address(1));
    let stateless = format!(
        "{}{ingress}egress_filter = \"not udp port 53\"\n",
        address(2)
    );
    let text = UPLINK.to_owned() + &port("a", &stateful) + &port("b", &stateless);
    let mut bench = Bench::new(&text);
    let answer = |to| udp(mac(9), mac(to), IN, 60);
    // An answer without a request, and a packet that the filter accepts.
    bench.send("uplink", &answer(1));
    let web = udp(mac(9), mac(1), [(9, 4000), (1, 80)], 60);
    bench.send("uplink", &web);
    bench.breathe();
    assert_eq!(bench.seen("a"), [web]);
    // The same answer, now after a request.
    for from in [1, 2] {
        let name = ["", "a", "b"][usize::from(from)];
        bench.send(name, &udp(mac(from), mac(9), OUT, 60));
    }
    bench.breathe();
    assert_eq!(bench.seen("uplink").len(), 1, "b must not ask");
    bench.send("uplink", &answer(1));
    bench.send("uplink", &answer(2));
    bench.breathe();
    assert_eq!(
        (bench.seen("a"), bench.seen("b").len()),
        (vec![answer(1)], 0)
    );
    // The refused frames are counted under their filters.
    let counts = bench.counts();
    assert_eq!(counts.ports[0].drops["ingress_filter"], 1);
    assert_eq!(counts.ports[1].drops["ingress_filter"], 1);
    assert_eq!(counts.ports[1].drops["egress_filter"], 1);
}

/// Number of frames of 1000 bytes that pass within `millis` ms, while 10 arrive per millisecond (80
/// Mb/s).
fn passed(config: &str, from: &str, to: &str, millis: u64) -> u64 {
    let text = UPLINK.to_owned() + &port("a", &(address(1) + config)) + &port("b", &address(2));
    let mut bench = Bench::new(&text);
    let frame = match from {
        "a" => udp(mac(1), mac(9), OUT, 1000),
        _ => udp(mac(9), mac(1), IN, 1000),
    };
    let mut passed = 0;
    for _ in 0..millis {
        for _ in 0..10 {
            bench.send(from, &frame);
        }
        bench.breathe();
        passed += bench.seen(to).len() as u64;
    }
    let reason = if from == "a" {
        "egress_rate"
    } else {
        "ingress_rate"
    };
    let counts = bench.counts();
    assert_eq!(counts.ports[0].drops[reason], millis * 10 - passed);
    passed
}

#[test]
fn rates_hold_to_the_frame_in_both_directions() {
    // A full bucket of one second's worth, and then the rate for 9999 ms, because the first frames
    // arrive at time 0.
    let wanted = (1_250_000 + 1_250_000 * 9_999 / 1_000) / 1_000;
    assert_eq!(passed("egress_mbps = 10", "a", "uplink", 10_000), wanted);
    assert_eq!(passed("ingress_mbps = 10", "uplink", "a", 10_000), wanted);
    // With a small bucket almost only the rate counts.
    let config = "egress_mbps = 8.0\negress_burst_bytes = 3000";
    assert_eq!(passed(config, "a", "uplink", 1_000), 3 + 999);
}

#[test]
fn other_ports_lose_nothing_while_one_changes() {
    let steady = UPLINK.to_owned()
        + &port(
            "a",
            &(address(1) + "egress_filter = \"udp\"\ningress_mbps = 1000"),
        )
        + &port("b", &(address(2) + "stateful = true"));
    let files = [
        steady.clone(),
        steady.clone() + &port("c", &address(3)),
        steady.clone() + &port("c", &(address(3) + "vlan = 9\negress_mbps = 3")),
        steady.clone() + &port("c", &(address(4) + "ingress_filter = \"icmp\"")) + &port("d", ""),
        port("c", "vlan = 5") + &steady,
    ];
    let mut bench = Bench::new(&steady);
    let out = udp(mac(1), mac(9), OUT, 100);
    let back = udp(mac(9), mac(1), IN, 100);
    let across = udp(mac(2), mac(1), IN, 100);
    let mut sent = 0;
    let mut seen = [0, 0];
    for round in 0..500 {
        for _ in 0..20 {
            bench.send("a", &out);
            bench.send("uplink", &back);
            bench.send("b", &across);
            sent += 1;
        }
        // Frames are on every link while the file changes.
        let steps = bench.configure(&files[(round * 7 + round / 5) % files.len()]);
        let apps = [
            &steps.added,
            &steps.removed,
            &steps.changed,
            &steps.replaced,
        ];
        for app in apps.into_iter().flatten() {
            assert!(
                app.starts_with("c_") || app.starts_with("d_") || app == "mux",
                "{steps}"
            );
        }
        bench.breathe();
        seen[0] += bench.seen("uplink").len();
        seen[1] += bench.seen("a").len();
    }
    assert_eq!(seen, [sent, 2 * sent]);
    let counts = bench.counts();
    assert!(
        counts.ports.iter().all(|port| port.dropped() == 0),
        "{counts:?}"
    );
}
