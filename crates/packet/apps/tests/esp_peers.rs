//! Tests `esp_tunnel` against independent implementations: tshark decrypts; scapy protects and
//! opens.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::judged::{file_of, read_by};
use crate::notation::frame;
use crate::scripts::through;

const KEYS: &str = "transmit_spi = 4660\ntransmit_key = \"00112233445566778899aabbccddeeff\"\n\
    transmit_salt = \"01020304\"\nreceive_spi = 4661\n\
    receive_key = \"ffeeddccbbaa99887766554433221100\"\nreceive_salt = \"05060708\"\n\
    mac = \"02:00:00:00:00:01\"\nnext_mac = \"02:00:00:00:00:02\"\n";
const ENDS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

fn config((local, remote): (&str, &str), extended: bool) -> String {
    format!(
        "kind = \"esp_tunnel\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n{KEYS}\
         extended = {extended}\n"
    )
}

fn inner() -> [Vec<u8>; 2] {
    [
        frame(":8 > :9 | ip 10.1.0.1 > 10.1.0.2 | udp 5000 > 9999 | \"secret\""),
        frame(":8 > :9 | ip6 fd01::1 > fd01::2 | udp 5000 > 9999 | \"secret too\""),
    ]
}

#[test]
fn tshark_decrypts_tunnels_over_both_versions_of_ip() {
    let mut frames = Vec::new();
    for ends in ENDS {
        frames.extend(through(&config(ends, false), "north", &inner(), "south"));
    }
    let (_directory, file) = file_of(&frames);
    let association = |version: &str| {
        format!(
            "uat:esp_sa:\"{version}\",\"*\",\"*\",\"0x00001234\",\
             \"AES-GCM with 16 octet ICV [RFC4106]\",\
             \"0x00112233445566778899aabbccddeeff01020304\",\"NULL\",\"\""
        )
    };
    let (four, six) = (association("IPv4"), association("IPv6"));
    let mut arguments = vec!["-o", "esp.enable_encryption_decode:TRUE", "-o"];
    arguments.extend([
        "esp.enable_authentication_check:TRUE",
        "-o",
        &four,
        "-o",
        &six,
    ]);
    arguments.extend([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]);
    arguments.extend(["-T", "fields"]);
    for field in [
        "frame.protocols",
        "esp.sequence",
        "esp.icv_good",
        "udp.payload",
        "udp.checksum.status",
        "_ws.malformed",
    ] {
        arguments.extend(["-e", field]);
    }
    let Some(text) = read_by("tshark", &arguments, &file) else {
        return;
    };
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(lines.len(), 4, "{text}");
    let carried = ["736563726574", "73656372657420746f6f"];
    for (number, line) in lines.iter().enumerate() {
        let outer = ["ip", "ipv6"][number / 2];
        let within = ["ip", "ipv6"][number % 2];
        let wanted = format!("eth:ethertype:{outer}:esp:{within}:udp");
        assert!(line[0].starts_with(&wanted), "{line:?}");
        assert_eq!(line[1], (number % 2 + 1).to_string());
        assert!(matches!(line[2], "1" | "True"), "{line:?}");
        assert_eq!(line[3..6], [carried[number % 2], "1", ""], "{line:?}");
    }
}

/// A program that reads lines `open HEX` and `make SEQUENCE HEX` with IP packets, and answers each
/// with a packet.
const SCAPY: &str = r#"
import sys
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation

def packet(digits):
    data = bytes.fromhex(digits)
    return IP(data) if data[0] >> 4 == 4 else IPv6(data)

def association(spi, key, header):
    return SecurityAssociation(ESP, spi=spi, crypt_algo='AES-GCM', crypt_key=bytes.fromhex(key),
                               tunnel_header=header, esn_en=sys.argv[3] == 'true')

far, near = sys.argv[1:3]
ip = IPv6 if ':' in far else IP
opens = association(4660, '00112233445566778899aabbccddeeff01020304', ip(src=near, dst=far))
makes = association(4661, 'ffeeddccbbaa9988776655443322110005060708', ip(src=far, dst=near))
for line in sys.stdin:
    verb, *words = line.split()
    if verb == 'open':
        made = opens.decrypt(packet(words[0]))
    else:
        made = makes.encrypt(packet(words[1]), seq_num=int(words[0]))
    print(bytes(made).hex())
"#;

/// The packets that scapy answers. Prints the packages' names and returns `None` if it is missing.
fn scapy((local, remote): (&str, &str), extended: bool, lines: &[String]) -> Option<Vec<Vec<u8>>> {
    // The system's Python has the packages of the distribution.
    const PYTHON: &str = "/usr/bin/python3";
    let there = Command::new(PYTHON)
        .args(["-c", "import scapy.layers.ipsec, cryptography"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("SKIP: scapy (packages python3-scapy, python3-cryptography)");
        return None;
    }
    let mut child = Command::new(PYTHON)
        .args(["-c", SCAPY, remote, local, &extended.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.join("\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str, at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    let packets = text.lines().map(|line| {
        (0..line.len())
            .step_by(2)
            .map(|at| pair(line, at))
            .collect()
    });
    Some(packets.collect())
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.concat()
}

#[test]
fn scapy_opens_what_is_protected_here_and_the_other_way_round() {
    for (number, ends) in ENDS.into_iter().enumerate() {
        for extended in [false, true] {
            let config = config(ends, extended);
            let inner = inner();
            let sent = through(&config, "north", &inner, "south");
            assert_eq!(sent.len(), 2);
            let opens = sent
                .iter()
                .map(|frame| format!("open {}", hex(&frame[14..])));
            let makes = inner
                .iter()
                .enumerate()
                .map(|(at, frame)| format!("make {} {}", at + 1, hex(&frame[14..])));
            let lines: Vec<String> = opens.chain(makes).collect();
            let Some(packets) = scapy(ends, extended, &lines) else {
                return;
            };
            assert_eq!(packets.len(), 4);
            for (packet, frame) in packets[..2].iter().zip(&inner) {
                // scapy decrements the TTL, as a gateway behind a tunnel does.
                let mut wanted = frame[14..].to_vec();
                let place = if wanted[0] >> 4 == 4 { 8 } else { 7 };
                let hops = packet[place];
                assert!(hops == 64 || hops == 63, "{hops} hops");
                wanted[place] = hops;
                let sum = if place == 8 { 10..12 } else { 0..0 };
                wanted[sum.clone()].copy_from_slice(&packet[sum]);
                assert_eq!(*packet, wanted);
            }
            let ethertype = [[8, 0], [0x86, 0xdd]][number];
            let frames: Vec<Vec<u8>> = packets[2..]
                .iter()
                .map(|packet| [&[0; 12][..], &ethertype, packet].concat())
                .collect();
            let came = through(&config, "south", &frames, "north");
            assert_eq!(came.len(), 2, "extended {extended}");
            for (packet, frame) in came.iter().zip(&inner) {
                // All but the TTL and the checksum is unchanged.
                assert_eq!(packet[12..20], frame[12..20]);
                assert_eq!(packet[26..], frame[26..]);
            }
        }
    }
}
