//! Tests of traffic through tunnels of ports, and of their encryption.

use crate::packets::{BROADCAST, mac, udp};
use crate::simulated::{Bench, UPLINK, port};

const OUT: [(u8, u16); 2] = [(1, 5000), (9, 53)];
const IN: [(u8, u16); 2] = [(9, 53), (1, 5000)];

fn address(n: u8) -> String {
    format!("mac = \"02:00:00:00:00:{n:02x}\"\n")
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
    // Ethernet; IPv6 with next header 115; session, cookie, frame. (RFC 8159)
    let head = &outer[0][..66];
    assert_eq!((&head[..6], &head[6..12]), (&mac(2)[..], &mac(1)[..]));
    assert_eq!((head[12..14].to_vec(), head[20]), (vec![0x86, 0xdd], 115));
    assert_eq!(
        head[54..66],
        [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(outer[0][66..], inner);
    far.send("uplink", &outer[0]);
    // A frame with a wrong cookie is refused and counted.
    let mut forged = outer[0].clone();
    forged[65] = 9;
    far.send("uplink", &forged);
    far.breathe();
    assert_eq!(far.seen("a"), [inner]);
    assert_eq!(far.counts().ports[0].drops["tunnel_cookie"], 1);
}

/// The ESP keys of one of the two ends.
fn esp(own: usize) -> String {
    let keys = [
        "000102030405060708090a0b0c0d0e0f",
        "f0e0d0c0b0a090807060504030201000",
    ];
    let other = 1 - own;
    format!(
        "[ports.esp]\nspi = 256\ntransmit_key = \"{}\"\ntransmit_salt = \"0000000{own}\"\n\
         receive_key = \"{}\"\nreceive_salt = \"0000000{other}\"\n",
        keys[own], keys[other],
    )
}

/// Two NFV processes, each with a port `a`, whose uplinks are on one segment.
struct Pair {
    sides: [Bench; 2],
    /// The frames that crossed the segment.
    between: Vec<Vec<u8>>,
}

impl Pair {
    /// Ports with tunnels over IPv4 or IPv6, whose ends resolve each other's MAC addresses.
    fn new(config: [&str; 2], net: &str, is_protected: bool) -> Pair {
        let side = |own: usize| {
            let (near, far, config) = (own + 1, 2 - own, config[own]);
            let tunnel = format!(
                "[ports.tunnel]\n{config}\nlocal_ip = \"{net}{near}\"\n\
                 remote_ip = \"{net}{far}\"\nnext_hop = \"{net}{far}\"\n"
            );
            let esp = if is_protected {
                esp(own)
            } else {
                String::new()
            };
            Bench::new(&(UPLINK.to_owned() + &port("a", &(address(near as u8) + &tunnel + &esp))))
        };
        Pair {
            sides: [side(0), side(1)],
            between: Vec::new(),
        }
    }

    fn breathe(&mut self, times: usize) {
        for _ in 0..times {
            self.sides.iter_mut().for_each(Bench::breathe);
            for from in 0..2 {
                for frame in self.sides[from].seen("uplink") {
                    self.sides[1 - from].send("uplink", &frame);
                    self.between.push(frame);
                }
            }
        }
    }

    /// Sends a frame from each station, and returns what each received.
    fn exchange(&mut self, out: &[u8], back: &[u8]) -> [Vec<Vec<u8>>; 2] {
        self.between.clear();
        self.sides[0].send("a", out);
        self.sides[1].send("a", back);
        self.breathe(3);
        [self.sides[0].seen("a"), self.sides[1].seen("a")]
    }

    fn has_lost_nothing(&mut self, what: &str) {
        for side in &mut self.sides {
            let counts = side.counts();
            assert_eq!(counts.ports[0].dropped(), 0, "{what}: {counts:?}");
        }
    }
}

#[test]
fn frames_cross_tunnels_of_every_type() {
    let out = udp(mac(0x77), mac(0x78), OUT, 200);
    let back = udp(mac(0x78), mac(0x77), IN, 90);
    for net in ["192.0.2.", "2001:db8::"] {
        for config in [
            "type = \"vxlan\"\nvni = 70000",
            "type = \"gre\"",
            "type = \"gre\"\nkey = 5",
        ] {
            for is_protected in [false, true] {
                let what = format!("{config}, {net}, {is_protected}");
                let mut pair = Pair::new([config; 2], net, is_protected);
                // Lets the ends resolve each other. These messages are not protected, as a router
                // must understand them.
                pair.breathe(300);
                let seen = pair.exchange(&out, &back);
                assert_eq!(seen, [vec![back.clone()], vec![out.clone()]], "{what}");
                let protocol = if net.contains('.') { 23 } else { 20 };
                for frame in &pair.between {
                    assert_eq!(frame[protocol] == 50, is_protected, "{what}");
                }
                pair.has_lost_nothing(&what);
            }
        }
    }
}

/// An ARP message for IPv4 in a frame of 60 bytes.
fn arp(operation: u8, [from, to]: [[u8; 6]; 2], ips: [u8; 2], is_to_all: bool) -> Vec<u8> {
    let mut frame = if is_to_all { BROADCAST } else { to }.to_vec();
    frame.extend(from);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(from);
    frame.extend([10, 0, 0, ips[0]]);
    frame.extend(to);
    frame.extend([10, 0, 0, ips[1]]);
    frame.resize(60, 0);
    frame
}

#[test]
fn stations_reach_each_other_through_ipip() {
    let config = [(1, 254), (9, 253)].map(|(station, gateway)| {
        format!(
            "type = \"ipip\"\nstation_ip = \"10.0.0.{station}\"\ngateway_ip = \"10.0.0.{gateway}\""
        )
    });
    // A packet with the IPv4 checksum that the far end of the tunnel verifies.
    let packet = |to: [u8; 6], from: [u8; 6], ends| {
        let mut frame = udp(from, to, ends, 100);
        let sum = carina_wire::inet::checksum(&frame[14..34], 0);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for (net, is_protected) in [
        ("192.0.2.", false),
        ("192.0.2.", true),
        ("2001:db8::", true),
    ] {
        let mut pair = Pair::new([&config[0], &config[1]], net, is_protected);
        let stations = [(mac(0x71), 1, mac(0), 254), (mac(0x79), 9, mac(3), 253)];
        pair.breathe(300);
        for (side, (own, ip, router, gateway)) in stations.into_iter().enumerate() {
            // The gateway asks for the station, and the station for the gateway.
            let asked = pair.sides[side].seen("a");
            assert_eq!(asked, [arp(1, [router, [0; 6]], [gateway, ip], true)]);
            pair.sides[side].send("a", &arp(2, [own, router], [ip, gateway], false));
            pair.sides[side].send("a", &arp(1, [own, [0; 6]], [ip, gateway], true));
            pair.breathe(1);
            let answer = arp(2, [router, own], [gateway, ip], false);
            assert_eq!(pair.sides[side].seen("a"), [answer]);
        }
        let [near, far] = stations.map(|(own, _, router, _)| (own, router));
        let seen = pair.exchange(&packet(near.1, near.0, OUT), &packet(far.1, far.0, IN));
        let wanted = [packet(near.0, near.1, IN), packet(far.0, far.1, OUT)];
        assert_eq!(seen, wanted.map(|packet| vec![packet]), "{net}");
        pair.has_lost_nothing(net);
    }
}

#[test]
fn protected_tunnel_is_opened_by_its_other_end() {
    let ends = ["2001:db8::1", "2001:db8::2"];
    let side = |own: usize| {
        let (near, far) = (ends[own], ends[1 - own]);
        let tunnel = format!(
            "[ports.tunnel]\nlocal_ip = \"{near}\"\nremote_ip = \"{far}\"\nlocal_cookie = \
             \"0000000000000000\"\nremote_cookie = \"0000000000000000\"\n\
             next_mac = \"02:00:00:00:00:0{}\"\n",
            2 - own,
        );
        UPLINK.to_owned() + &port("a", &(address(own as u8 + 1) + &tunnel + &esp(own)))
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
