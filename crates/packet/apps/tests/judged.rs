//! Checks packets that apps build with independent parsers: `etherparse`, tshark and tcpdump.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use carina_wire::pcap::{file_header, record};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::notation::frame;
use crate::scripts::through;

const ENDS4: &str = "local = \"10.0.0.1\"\nremote = \"10.0.0.2\"\n";
const ENDS6: &str = "local = \"fd00::1\"\nremote = \"fd00::2\"\n";
const MACS: &str = "mac = \"02:00:00:00:00:01\"\nnext_mac = \"02:00:00:00:00:02\"\n";
const KEYS: &str = "kind = \"esp\"\nspi = 4660\n\
    transmit_key = \"00112233445566778899aabbccddeeff\"\ntransmit_salt = \"01020304\"\n\
    receive_key = \"ffeeddccbbaa99887766554433221100\"\nreceive_salt = \"01020304\"\nextended = false\n";
const COOKIES: &str = "kind = \"l2tpv3\"\nlocal_cookie = \"0011223344556677\"\n\
    remote_cookie = \"0011223344556677\"\nsession = 7\n";

fn inner() -> Vec<u8> {
    frame(":8 > :9 | ip 10.1.0.1 > 10.1.0.2 | udp 5000 > 9999 | \"inner\"")
}

/// A packet of each tunnel, with its protocols as tshark names them.
fn packets() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let made = |config: String| {
        let mut made = through(&config, "north", &[inner()], "south");
        assert_eq!(made.len(), 1, "{config}");
        made.remove(0)
    };
    let all = [
        (
            "gre",
            format!("kind = \"gre\"\nkey = 5\n{ENDS4}{MACS}"),
            "ip:gre:eth:ethertype:ip:udp",
        ),
        (
            "gre6",
            format!("kind = \"gre\"\n{ENDS6}{MACS}"),
            "ipv6:gre:eth:ethertype:ip:udp",
        ),
        (
            "gre-ip",
            format!("kind = \"gre\"\npayload = \"ip\"\n{ENDS4}{MACS}"),
            "ip:gre:ip:udp",
        ),
        (
            "vxlan",
            format!("kind = \"vxlan\"\nvni = 70000\n{ENDS4}{MACS}"),
            "ip:udp:vxlan:eth:ethertype:ip:udp",
        ),
        (
            "vxlan6",
            format!("kind = \"vxlan\"\nvni = 70000\n{ENDS6}{MACS}"),
            "ipv6:udp:vxlan:eth:ethertype:ip:udp",
        ),
        (
            "ipip",
            format!("kind = \"ipip\"\n{ENDS4}{MACS}"),
            "ip:ip:udp",
        ),
        (
            "ipip6",
            format!("kind = \"ipip\"\n{ENDS6}{MACS}"),
            "ipv6:ip:udp",
        ),
        ("l2tpv3", format!("{COOKIES}{ENDS6}{MACS}"), "ipv6:l2tp"),
    ];
    all.map(|(name, config, protocols)| (name, made(config), protocols))
        .into()
}

/// Packets with sequence numbers of 32 bits; tshark cannot verify those of 64 bits.
fn esp_packets() -> Vec<Vec<u8>> {
    let inner = [
        frame(":1 > :2 | ip6 fd00::1 > fd00::2 | udp 5000 > 9 | \"secret\""),
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5000 > 9 | \"secret\""),
    ];
    through(KEYS, "north", &inner, "south")
}

#[test]
fn outer_headers_are_right_to_a_parser_that_is_not_ours() {
    for (name, packet, _) in packets() {
        let sliced = SlicedPacket::from_ethernet(&packet)
            .unwrap_or_else(|error| panic!("{name}: {error} in {packet:02x?}"));
        let payload = match sliced.net.expect(name) {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                let sum = header.to_header().calc_header_checksum();
                assert_eq!(header.header_checksum(), sum, "{name}");
                assert!(
                    header.dont_fragment() && !header.is_fragmenting_payload(),
                    "{name}"
                );
                assert_eq!(header.ttl(), 64);
                let ends = [header.source_addr(), header.destination_addr()].map(IpAddr::V4);
                assert_eq!(ends.map(|end| end.to_string()), ["10.0.0.1", "10.0.0.2"]);
                assert_eq!(usize::from(header.total_len()), packet.len() - 14, "{name}");
                ip.payload().payload
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                let ends = [header.source_addr(), header.destination_addr()].map(IpAddr::V6);
                assert_eq!(ends.map(|end| end.to_string()), ["fd00::1", "fd00::2"]);
                assert_eq!(
                    usize::from(header.payload_length()),
                    packet.len() - 54,
                    "{name}"
                );
                if let Some(TransportSlice::Udp(udp)) = &sliced.transport {
                    let addresses = (header.source(), header.destination());
                    let sum = udp
                        .to_header()
                        .calc_checksum_ipv6_raw(addresses.0, addresses.1, udp.payload())
                        .unwrap();
                    assert_eq!(udp.checksum(), sum, "{name}");
                }
                ip.payload().payload
            }
            NetSlice::Arp(_) => panic!("{name} is no ARP"),
        };
        let carried = if name.ends_with("ip") || name.starts_with("ipip") {
            inner()[14..].to_vec()
        } else {
            inner()
        };
        assert!(payload.ends_with(&carried), "{name}");
    }
}

#[test]
fn solicitations_have_right_checksums_to_etherparse() {
    let config = "kind = \"nd\"\naddress = \"fd00::1\"\nmac = \"02:00:00:00:00:01\"\n\
                  next = \"fd00::2\"\n";
    let asked = frame(
        ":7 > 33:33:ff:00:00:01 | ip6 fd00::7 > ff02::1:ff00:1 hops 255 \
         | neighbour 135 00 fd00::1 1 :7",
    );
    let made = through(config, "south", &[asked], "south");
    assert_eq!(made.len(), 2, "a solicitation and an advertisement");
    for packet in made {
        let sliced = SlicedPacket::from_ethernet(&packet).unwrap();
        let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) =
            (sliced.net, sliced.transport)
        else {
            panic!("no ICMPv6: {packet:02x?}");
        };
        let header = ip.header();
        assert_eq!(header.hop_limit(), 255);
        assert!(icmp.is_checksum_valid(header.source(), header.destination()));
    }
}

/// A capture file of these frames, in a temporary directory.
pub(crate) fn file_of(frames: &[Vec<u8>]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frames.pcap");
    let mut file = file_header(65535).to_vec();
    for frame in frames {
        file.extend(record(1_000_000_000, frame.len(), frame.len()));
        file.extend(frame);
    }
    std::fs::write(&path, file).unwrap();
    (directory, path)
}

/// The output of a program that reads captures. Prints the package's name and returns `None` if it
/// is missing.
pub(crate) fn read_by(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(program)
        .arg("-r")
        .arg(file)
        .args(arguments)
        .output();
    match output {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{program}: {error}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("SKIP: the program {program} (package {program}): {error}");
            None
        }
    }
}

#[test]
fn tshark_reads_every_tunnel_as_it_is_meant() {
    let packets = packets();
    let frames: Vec<Vec<u8>> = packets.iter().map(|(_, bytes, _)| bytes.clone()).collect();
    let (_directory, file) = file_of(&frames);
    let arguments = [
        "-o",
        "l2tp.cookie_size:8 Byte Cookie",
        "-o",
        "l2tp.l2_specific:None",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
        "-T",
        "fields",
        "-e",
        "frame.protocols",
        "-e",
        "gre.key",
        "-e",
        "vxlan.vni",
        "-e",
        "l2tp.sid",
        "-e",
        "l2tp.cookie",
        "-e",
        "_ws.expert.message",
    ];
    let Some(text) = read_by("tshark", &arguments, &file) else {
        return;
    };
    assert_eq!(text.lines().count(), packets.len(), "{text}");
    for (line, (name, _, protocols)) in text.lines().zip(&packets) {
        let fields: Vec<&str> = line.split('\t').collect();
        let wanted = format!("eth:ethertype:{protocols}");
        assert!(fields[0].starts_with(&wanted), "{name}: {line}");
        let key = if *name == "gre" { "0x00000005" } else { "" };
        let vni = if name.starts_with("vxlan") {
            "70000"
        } else {
            ""
        };
        assert_eq!(fields[1..3], [key, vni], "{name}: {line}");
        if *name == "l2tpv3" {
            assert_eq!(fields[3..5], ["0x00000007", "0011223344556677"], "{line}");
        }
        assert!(
            !line.contains("Malformed") && !line.contains("ncorrect"),
            "{name}: {line}"
        );
    }
}

#[test]
fn tshark_decrypts_esp_and_finds_its_check_value_right() {
    let (_directory, file) = file_of(&esp_packets());
    let association = |version: &str| {
        format!(
            "uat:esp_sa:\"{version}\",\"*\",\"*\",\"0x00001234\",\
             \"AES-GCM with 16 octet ICV [RFC4106]\",\
             \"0x00112233445566778899aabbccddeeff01020304\",\"NULL\",\"\""
        )
    };
    let (four, six) = (association("IPv4"), association("IPv6"));
    let mut arguments = vec!["-o", "esp.enable_encryption_decode:TRUE"];
    arguments.extend(["-o", "esp.enable_authentication_check:TRUE"]);
    arguments.extend(["-o", "ip.check_checksum:TRUE", "-o", &four, "-o", &six]);
    arguments.extend(["-T", "fields"]);
    for field in [
        "frame.protocols",
        "esp.spi",
        "esp.sequence",
        "udp.dstport",
        "udp.payload",
        "esp.icv_good",
        "ip.checksum.status",
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
    assert_eq!(lines.len(), 2, "{text}");
    for (fields, (protocols, sequence, checksum)) in
        lines.iter().zip([("ipv6", "1", ""), ("ip", "2", "1")])
    {
        let wanted = format!("eth:ethertype:{protocols}:esp:udp");
        assert!(fields[0].starts_with(&wanted), "{text}");
        assert_eq!(fields[1..4], ["0x00001234", sequence, "9"], "{text}");
        let wanted = ["736563726574", "1", checksum];
        assert_eq!(fields[4..], wanted, "secret, a right ICV, a right header");
    }
}

#[test]
fn tcpdump_reads_what_pcap_write_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("written.pcap");
    let config = format!("kind = \"pcap_write\"\nfile = {path:?}\n");
    crate::scripts::into(&config, &[&[inner()][..], &esp_packets()].concat());
    let Some(text) = read_by("tcpdump", &["-nn", "-t"], &path) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("IP 10.1.0.1.5000 > 10.1.0.2.9999"),
        "{text}"
    );
    assert!(lines[1].contains("ESP(spi=0x00001234,seq=0x1)"), "{text}");
    assert!(lines[2].contains("ESP(spi=0x00001234,seq=0x2)"), "{text}");
}
