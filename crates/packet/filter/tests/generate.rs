//! Random filters and packets from the same few addresses, ports and lengths, so that many match.

use carina_random::Random;

const ADDRESSES4: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.1.2.3", "192.168.7.255"];
const ADDRESSES6: [&str; 3] = ["fd00::1", "fd00::2", "2001:db8:1:2::3"];
const NETS: [&str; 9] = [
    "10.0.0.0/8",
    "10.0.0.0/30",
    "10",
    "10.1",
    "192.168",
    "0.0.0.0/0",
    "10.1.2.0/24",
    "10.0.0.0 mask 255.254.0.0",
    "128.0.0.0/1",
];
const NETS6: [&str; 4] = ["fd00::/8", "fd00::/127", "2001:db8:1::/48", "::/0"];
const MACS: [&str; 4] = [
    "02:00:00:00:00:01",
    "02:0:0:0:0:2",
    "01:00:5e:00:00:01",
    "ff:ff:ff:ff:ff:ff",
];
const PORTS: [&str; 8] = ["53", "80", "0x50", "443", "6000", "65535", "0", "domain"];
const RANGES: [&str; 5] = ["50-60", "80-80", "6010-6000", "0-65535", "443-500"];
const PROTOCOLS: [&str; 8] = ["6", "17", "1", "58", "47", "50", "\\tcp", "\\gre"];
const PREFIXES: [&str; 14] = [
    "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "pim", "vrrp", "ah",
    "esp",
];
const INDEXED: [&str; 12] = [
    "ether", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "pim",
];
const DIRECTIONS: [&str; 6] = [
    "",
    "src ",
    "dst ",
    "src or dst ",
    "src and dst ",
    "dst or src ",
];

/// A random filter in the part of the language that both compilers support.
pub(crate) fn filter(random: &mut Random) -> String {
    expression(random, 3)
}

fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.index(of.len())]
}

fn expression(random: &mut Random, depth: u32) -> String {
    let mut text = term(random, depth);
    for _ in 0..random.index(3) {
        let joint = one(random, &[" and ", " or ", " && ", " || "]);
        text = format!("{text}{joint}{}", term(random, depth));
    }
    text
}

fn term(random: &mut Random, depth: u32) -> String {
    match random.index(if depth == 0 { 9 } else { 12 }) {
        0 => {
            let not = one(random, &["", "", "not "]);
            let from = one(random, &["", "", "ip ", "arp ", "rarp "]);
            let direction = one(random, &DIRECTIONS);
            format!("{not}{from}{direction}host {}", one(random, &ADDRESSES4))
        }
        1 => {
            let from = one(random, &["", "ip6 "]);
            let direction = one(random, &DIRECTIONS);
            match random.index(2) {
                0 => format!("{from}{direction}host {}", one(random, &ADDRESSES6)),
                _ => format!("{from}{direction}net {}", one(random, &NETS6)),
            }
        }
        2 => format!("{}net {}", one(random, &DIRECTIONS), one(random, &NETS)),
        3 | 4 => ports(random),
        5 => format!(
            "ether {}host {}",
            one(random, &DIRECTIONS),
            one(random, &MACS)
        ),
        6 => one(random, &PREFIXES).to_owned(),
        7 => match random.index(12) {
            0 => "vlan".to_owned(),
            1 => "vlan 5".to_owned(),
            2 => format!("less {}", 40 + random.index(100)),
            3 => format!("greater {}", 40 + random.index(100)),
            4 => one(random, &["broadcast", "ether broadcast"]).to_owned(),
            5 => one(random, &["multicast", "ether multicast"]).to_owned(),
            6 => one(random, &["ip multicast", "ip6 multicast"]).to_owned(),
            7 => format!("proto {}", one(random, &PROTOCOLS)),
            8 => format!("ip proto {}", one(random, &PROTOCOLS)),
            9 => format!("ip6 proto {}", one(random, &PROTOCOLS)),
            10 => format!(
                "ether proto {}",
                one(random, &["\\ip", "\\arp", "0x86dd", "66"])
            ),
            _ => format!("ether proto 0x{:x}", random.index(0x10000) | 0x8800),
        },
        8 => relation(random),
        9 => format!("not {}", term(random, depth - 1)),
        10 => format!("({})", expression(random, depth - 1)),
        _ => relation(random),
    }
}

fn ports(random: &mut Random) -> String {
    let from = one(random, &["", "", "tcp ", "udp ", "sctp "]);
    let direction = one(random, &DIRECTIONS);
    match random.index(4) {
        0 => format!("{from}{direction}portrange {}", one(random, &RANGES)),
        1 => {
            let numbers = &PORTS[..7];
            let (first, second) = (one(random, numbers), one(random, numbers));
            let joint = one(random, &["or", "and", "or not"]);
            match random.index(2) {
                0 => format!("{from}{direction}port ({first} {joint} {second})"),
                _ => format!("{from}{direction}port {first} {joint} {second}"),
            }
        }
        _ if from == "sctp " => format!("{from}{direction}port 80"),
        _ => format!("{from}{direction}port {}", one(random, &PORTS)),
    }
}

fn relation(random: &mut Random) -> String {
    let compare = one(random, &["=", "==", "!=", "<", "<=", ">", ">="]);
    match random.index(4) {
        0 => {
            let flags = one(random, &["tcp-syn", "tcp-ack", "(tcp-syn|tcp-ack)", "0x3f"]);
            format!("tcp[tcpflags] & {flags} {compare} {}", random.index(20))
        }
        1 => format!("{} {compare} {}", bytes(random, 1), random.index(300)),
        _ => {
            let (left, right) = (arithmetic(random, 2), arithmetic(random, 2));
            format!("{left} {compare} {right}")
        }
    }
}

fn arithmetic(random: &mut Random, depth: u32) -> String {
    match random.index(if depth == 0 { 4 } else { 7 }) {
        0 => random.index(100).to_string(),
        1 => format!("0x{:x}", random.next_u64() as u32),
        2 => "len".to_owned(),
        3 => bytes(random, depth),
        // With a constant right operand, libpcap would refuse some filters, or fold them with other
        // limits.
        4 => {
            let operator = one(random, &["/", "%", "<<", ">>"]);
            format!(
                "{} {operator} {}",
                arithmetic(random, depth - 1),
                bytes(random, 0)
            )
        }
        5 => format!("({})", arithmetic(random, depth - 1)),
        _ => {
            let operator = one(random, &["+", "-", "*", "&", "|", "^"]);
            let minus = one(random, &["", "", "", "-"]);
            let left = arithmetic(random, depth - 1);
            format!("{minus}{left} {operator} {}", arithmetic(random, depth - 1))
        }
    }
}

fn bytes(random: &mut Random, depth: u32) -> String {
    let index = match random.index(if depth == 0 { 4 } else { 5 }) {
        0 => "0".to_owned(),
        1..=3 => random.index(30).to_string(),
        _ => arithmetic(random, depth - 1),
    };
    let size = one(random, &["", "", ":1", ":2", ":4"]);
    format!("{}[{index}{size}]", one(random, &INDEXED))
}

/// A random packet: usually well formed, sometimes truncated, sometimes with a changed byte.
pub(crate) fn packet(random: &mut Random) -> Vec<u8> {
    let mac = |random: &mut Random| match random.index(4) {
        0 => vec![2, 0, 0, 0, 0, 1],
        1 => vec![2, 0, 0, 0, 0, 2],
        2 => vec![1, 0, 0x5e, 0, 0, 1],
        _ => vec![0xff; 6],
    };
    let mut frame = [mac(random), mac(random)].concat();
    for _ in 0..[0, 0, 0, 1, 2][random.index(5)] {
        frame.extend([[0x81, 0], [0x88, 0xa8], [0x91, 0]][random.index(3)]);
        frame.extend([random.index(256) as u8, 5]);
    }
    match random.index(10) {
        0..=3 => packet4(random, &mut frame),
        4..=6 => packet6(random, &mut frame),
        7 => arp(random, &mut frame),
        8 => {
            // A length in place of the Ethertype.
            frame.extend([0, 40, 66, 66, 3]);
            frame.extend((0..40).map(|_| random.next_u64() as u8));
        }
        _ => frame.extend((0..random.index(80)).map(|_| random.next_u64() as u8)),
    }
    if random.index(5) == 0 {
        frame.truncate(random.index(frame.len() + 1));
    }
    if random.index(5) == 0 && !frame.is_empty() {
        let at = random.index(frame.len());
        frame[at] = random.next_u64() as u8;
    }
    frame
}

fn address4(random: &mut Random) -> [u8; 4] {
    let text = one(random, &ADDRESSES4);
    let address: std::net::Ipv4Addr = text.parse().unwrap();
    address.octets()
}

fn packet4(random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend([8, 0]);
    let options = [0, 0, 0, 1, 10][random.index(5)];
    let protocol = protocol(random);
    let fragment = [[0, 0], [0, 0], [0x40, 0], [0x20, 0], [0, 9]][random.index(5)];
    let mut header = vec![
        0x45 + options as u8,
        0,
        0,
        60,
        0,
        0,
        fragment[0],
        fragment[1],
    ];
    header.extend([random.index(256) as u8, protocol, 0, 0]);
    header.extend([address4(random), address4(random)].concat());
    header.extend(vec![1; options * 4]);
    frame.extend(header);
    transport(random, protocol, frame);
}

fn packet6(random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend([0x86, 0xdd]);
    let address = |random: &mut Random| match random.index(4) {
        0 => [0xff; 16],
        _ => {
            let address: std::net::Ipv6Addr = one(random, &ADDRESSES6).parse().unwrap();
            address.octets()
        }
    };
    let protocol = protocol(random);
    let is_fragment = random.index(5) == 0;
    frame.extend([
        0x60,
        0,
        0,
        0,
        0,
        40,
        if is_fragment { 44 } else { protocol },
        64,
    ]);
    frame.extend([address(random), address(random)].concat());
    if is_fragment {
        frame.extend([protocol, 0, 0, 1, 0, 0, 0, 1]);
    }
    transport(random, protocol, frame);
}

fn protocol(random: &mut Random) -> u8 {
    [6, 6, 6, 17, 17, 132, 1, 58, 2, 47, 50, 51, 103, 112][random.index(14)]
}

fn transport(random: &mut Random, protocol: u8, frame: &mut Vec<u8>) {
    if [6, 17, 132].contains(&protocol) {
        for _ in 0..2 {
            let port = [53, 80, 443, 6000, 6005, 65535, 0][random.index(7)] as u16;
            frame.extend(port.to_be_bytes());
        }
    }
    frame.extend((0..random.index(60)).map(|_| random.next_u64() as u8 & 0x1f));
}

fn arp(random: &mut Random, frame: &mut Vec<u8>) {
    frame.extend([[8, 6], [0x80, 0x35]][random.index(2)]);
    frame.extend([
        0,
        1,
        8,
        0,
        6,
        4,
        0,
        1 + random.index(2) as u8,
        2,
        0,
        0,
        0,
        0,
        1,
    ]);
    frame.extend(address4(random));
    frame.extend([0; 6]);
    frame.extend(address4(random));
}
