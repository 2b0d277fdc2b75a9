//! Traffic between ports and an uplink.

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
    // An answer to nothing, and what the filter lets in.
    bench.send("uplink", &answer(1));
    let web = udp(mac(9), mac(1), [(9, 4000), (1, 80)], 60);
    bench.send("uplink", &web);
    bench.breathe();
    assert_eq!(bench.seen("a"), [web]);
    // The same answer when it is one.
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
    // After its time the connection is forgotten.
    let counts = bench.counts();
    assert_eq!(counts.ports[0].drops["ingress_filter"], 1);
    assert_eq!(counts.ports[1].drops["ingress_filter"], 1);
    assert_eq!(counts.ports[1].drops["egress_filter"], 1);
}

/// Frames of 1000 bytes that pass in so many milliseconds when 10 a millisecond, 80 Mb/s, come.
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
    // A full bucket, one second's worth, and then the rate: of 9999 ms, as the first frames come
    // at 0.
    let wanted = (1_250_000 + 1_250_000 * 9_999 / 1_000) / 1_000;
    assert_eq!(passed("egress_mbps = 10", "a", "uplink", 10_000), wanted);
    assert_eq!(passed("ingress_mbps = 10", "uplink", "a", 10_000), wanted);
    // A small bucket: the rate alone.
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
        // Frames are under way, on every link, when the file changes.
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

#[test]
fn frames_go_through_a_tunnel_and_come_back() {
    let ends = ["2001:db8::1", "2001:db8::2"];
    let side = |own: usize| {
        let tunnel = format!(
            "[ports.tunnel]\nlocal_ip = \"{}\"\nremote_ip = \"{}\"\nlocal_cookie = \
             \"000000000000000{own}\"\nremote_cookie = \"000000000000000{}\"\n\
             next_mac = \"02:00:00:00:00:0{}\"\n",
            ends[own],
            ends[1 - own],
            1 - own,
            2 - own
        );
        UPLINK.to_owned() + &port("a", &(address(own as u8 + 1) + &tunnel))
    };
    let (mut near, mut far) = (Bench::new(&side(0)), Bench::new(&side(1)));
    let inner = udp(mac(0x77), mac(0x78), OUT, 200);
    near.send("a", &inner);
    near.breathe();
    let outer = near.seen("uplink");
    assert_eq!(outer.len(), 1);
    // Ethernet, IPv6 with next header 115, session, cookie, frame. (RFC 8159)
    let head = &outer[0][..66];
    assert_eq!((&head[..6], &head[6..12]), (&mac(2)[..], &mac(1)[..]));
    assert_eq!((head[12..14].to_vec(), head[20]), (vec![0x86, 0xdd], 115));
    assert_eq!(
        head[54..66],
        [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(outer[0][66..], inner);
    far.send("uplink", &outer[0]);
    // Another cookie is refused, and counted.
    let mut forged = outer[0].clone();
    forged[65] = 9;
    far.send("uplink", &forged);
    far.breathe();
    assert_eq!(far.seen("a"), [inner]);
    assert_eq!(far.counts().ports[0].drops["tunnel_cookie"], 1);
}

/// One frame from each end of a tunnel over IPv4 to the other, whose ends ask each other for their
/// MAC addresses first.
fn frames_cross(config: &str) {
    let side = |own: usize| {
        let (here, there) = (own + 1, 2 - own);
        let tunnel = format!(
            "[ports.tunnel]\n{config}\nlocal_ip = \"192.0.2.{here}\"\n\
             remote_ip = \"192.0.2.{there}\"\nnext_hop = \"192.0.2.{there}\"\n"
        );
        UPLINK.to_owned() + &port("a", &(address(here as u8) + &tunnel))
    };
    let (mut near, mut far) = (Bench::new(&side(0)), Bench::new(&side(1)));
    let (out, back) = (
        udp(mac(0x77), mac(0x78), OUT, 200),
        udp(mac(0x78), mac(0x77), IN, 90),
    );
    let mut seen = [Vec::new(), Vec::new()];
    // Requests, replies, and then the frames.
    for _ in 0..300 {
        near.breathe();
        far.breathe();
        for frame in near.seen("uplink") {
            far.send("uplink", &frame);
        }
        for frame in far.seen("uplink") {
            near.send("uplink", &frame);
        }
    }
    near.send("a", &out);
    far.send("a", &back);
    for _ in 0..3 {
        near.breathe();
        far.breathe();
        for frame in near.seen("uplink") {
            far.send("uplink", &frame);
        }
        for frame in far.seen("uplink") {
            near.send("uplink", &frame);
        }
        seen[0].extend(near.seen("a"));
        seen[1].extend(far.seen("a"));
    }
    assert_eq!(seen, [vec![back], vec![out]], "{config}");
    for side in [&mut near, &mut far] {
        assert_eq!(side.counts().ports[0].dropped(), 0, "{config}");
    }
}

#[test]
fn frames_cross_tunnels_of_other_types_over_ipv4() {
    frames_cross("type = \"vxlan\"\nvni = 70000");
    frames_cross("type = \"gre\"");
    frames_cross("type = \"gre\"\nkey = 5");
}

#[test]
fn protected_tunnel_is_opened_by_its_other_end() {
    let ends = ["2001:db8::1", "2001:db8::2"];
    let keys = [
        "000102030405060708090a0b0c0d0e0f",
        "f0e0d0c0b0a090807060504030201000",
    ];
    let side = |own: usize| {
        let (other, next) = (1 - own, 2 - own);
        let tunnel = format!(
            "[ports.tunnel]\nlocal_ip = \"{}\"\nremote_ip = \"{}\"\nlocal_cookie = \
             \"0000000000000000\"\nremote_cookie = \"0000000000000000\"\n\
             next_mac = \"02:00:00:00:00:0{next}\"\n\
             [ports.esp]\nspi = 256\ntransmit_key = \"{}\"\ntransmit_salt = \"0000000{own}\"\n\
             receive_key = \"{}\"\nreceive_salt = \"0000000{other}\"\n",
            ends[own], ends[other], keys[own], keys[other],
        );
        UPLINK.to_owned() + &port("a", &(address(own as u8 + 1) + &tunnel))
    };
    let (mut near, mut far) = (Bench::new(&side(0)), Bench::new(&side(1)));
    let inner = udp(mac(0x77), mac(0x78), OUT, 200);
    near.send("a", &inner);
    near.breathe();
    let outer = near.seen("uplink");
    assert_eq!(outer[0][20], 50, "ESP");
    assert!(!outer[0].windows(42).any(|part| part == &inner[..42]));
    far.send("uplink", &outer[0]);
    far.breathe();
    assert_eq!(far.seen("a"), [inner]);
}
