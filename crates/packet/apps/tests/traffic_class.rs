//! Tests how tunnels copy the traffic class out, and a congestion mark back in.

use crate::notation::frame;
use crate::scripts::through;

/// The configurations of a tunnel's two ends.
struct Pair {
    name: String,
    near: String,
    far: String,
    /// Whether the tunnel carries IP packets without Ethernet header.
    is_of_ip: bool,
}

fn pairs() -> Vec<Pair> {
    let ends = |is_ipv6: bool| {
        if is_ipv6 {
            ("fd00::1", "fd00::2")
        } else {
            ("10.0.0.1", "10.0.0.2")
        }
    };
    let mut all = Vec::new();
    for (lines, is_of_ip) in [
        ("kind = \"ipip\"\n", true),
        ("kind = \"gre\"\npayload = \"ip\"\n", true),
        ("kind = \"gre\"\nkey = 5\n", false),
        ("kind = \"vxlan\"\nvni = 5\n", false),
        (
            "kind = \"l2tpv3\"\nlocal_cookie = \"0011223344556677\"\n\
             remote_cookie = \"0011223344556677\"\n",
            false,
        ),
    ] {
        for is_ipv6 in [false, true] {
            if lines.contains("l2tpv3") && !is_ipv6 {
                continue;
            }
            let (one, other) = ends(is_ipv6);
            let with =
                |local, remote| format!("{lines}local = \"{local}\"\nremote = \"{remote}\"\n");
            all.push(Pair {
                name: format!("{lines:?} over IPv6: {is_ipv6}"),
                near: with(one, other),
                far: with(other, one),
                is_of_ip,
            });
        }
    }
    all
}

/// The traffic class of the first packet in a frame.
fn class_of(frame: &[u8]) -> u8 {
    let at = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    match frame[at] >> 4 {
        4 => frame[at + 1],
        _ => frame[at] << 4 | frame[at + 1] >> 4,
    }
}

/// Sets the traffic class of the outer packet, as a router on the path may do.
fn with_class(mut packet: Vec<u8>, class: u8) -> Vec<u8> {
    if packet[14] >> 4 == 6 {
        packet[14] = 0x60 | class >> 4;
        packet[15] = packet[15] & 0x0f | class << 4;
        return packet;
    }
    packet[15] = class;
    packet[24..26].fill(0);
    let words = packet[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn carried(class: u8, is_of_ip: bool) -> Vec<Vec<u8>> {
    let mut frames = vec![frame(&format!(
        ":8 > :9 | ip 10.1.0.1 > 10.1.0.2 class {class} | udp 5 > 9 | \"four\""
    ))];
    if !is_of_ip {
        for text in [
            format!(":8 > :9 | ip6 fd01::1 > fd01::2 class {class} | udp 5 > 9 | \"six\""),
            format!(":8 > :9 | vlan 7 | ip 10.1.0.1 > 10.1.0.2 class {class} | \"tagged\""),
        ] {
            frames.push(frame(&text));
        }
    }
    frames
}

#[test]
fn outer_header_has_the_class_of_the_packet() {
    for pair in pairs() {
        for class in [0, 1, 2, 3, 0xb8, 0xff] {
            let frames = carried(class, pair.is_of_ip);
            let made = through(&pair.near, "north", &frames, "south");
            let classes: Vec<u8> = made.iter().map(|packet| class_of(packet)).collect();
            assert_eq!(classes, vec![class; frames.len()], "{}", pair.name);
            let back = through(&pair.far, "south", &made, "north");
            let classes: Vec<u8> = back.iter().map(|packet| class_of(packet)).collect();
            assert_eq!(classes, vec![class; frames.len()], "{}", pair.name);
        }
    }
}

#[test]
fn mark_of_the_way_comes_back_to_who_knows_it() {
    for pair in pairs() {
        // Inner class sent, outer mark, and inner class received. (RFC 6040 §4.2)
        for (class, outer, expected) in [
            (0xb8, 3, None),
            (0xb9, 3, Some(0xbb)),
            (0xba, 3, Some(0xbb)),
            (0xba, 1, Some(0xb9)),
            (0xb8, 1, Some(0xb8)),
            (0xbb, 0, Some(0xbb)),
            (0xba, 2, Some(0xba)),
        ] {
            let frames = carried(class, pair.is_of_ip);
            let made = through(&pair.near, "north", &frames, "south");
            let marked: Vec<_> = made
                .into_iter()
                .map(|packet| with_class(packet, outer))
                .collect();
            let back = through(&pair.far, "south", &marked, "north");
            let expected = expected.map(|class| carried(class, pair.is_of_ip));
            let payloads = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
                // A tunnel of IP packets writes zeros as MAC addresses, so they are not compared.
                frames.iter().map(|frame| frame[12..].to_vec()).collect()
            };
            assert_eq!(
                payloads(&back),
                payloads(&expected.unwrap_or_default()),
                "{}: {class:#x} within {outer}",
                pair.name
            );
        }
    }
}

#[test]
fn frames_without_a_packet_pass_marked_tunnels() {
    let request = frame(":8 > * | arp request :8 10.0.0.1 > :0 10.0.0.2 | pad 60");
    for pair in pairs().into_iter().filter(|pair| !pair.is_of_ip) {
        let made = through(&pair.near, "north", std::slice::from_ref(&request), "south");
        assert_eq!(class_of(&made[0]), 0);
        let marked = with_class(made[0].clone(), 3);
        let back = through(&pair.far, "south", &[marked], "north");
        assert_eq!(back, std::slice::from_ref(&request), "{}", pair.name);
    }
}
