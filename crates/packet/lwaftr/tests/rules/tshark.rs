//! Reads frames with tshark, in place of the code under test.

use std::collections::BTreeMap;
use std::process::Command;

/// The fields of a frame by name, as tshark prints them. If a frame has several IP packets (a
/// tunnel, a quotation), a field has the values of all, separated by commas.
#[derive(Clone, Debug)]
pub(super) struct Seen(BTreeMap<&'static str, String>);

const FIELDS: &[&str] = &[
    "eth.src",
    "eth.dst",
    "vlan.id",
    "frame.len",
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ip.ttl",
    "ip.len",
    "ip.id",
    "ip.proto",
    "ip.dsfield",
    "ip.flags.df",
    "ip.flags.mf",
    "ip.frag_offset",
    "ip.checksum.status",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "ipv6.tclass",
    "ipv6.flow",
    "ipv6.plen",
    "ipv6.nxt",
    "ipv6.fraghdr.offset",
    "ipv6.fraghdr.more",
    "ipv6.fraghdr.nxt",
    "udp.srcport",
    "udp.dstport",
    "udp.checksum.status",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.checksum.status",
    "icmp.type",
    "icmp.code",
    "icmp.mtu",
    "icmp.ident",
    "icmp.seq",
    "icmp.checksum.status",
    "icmpv6.type",
    "icmpv6.code",
    "icmpv6.pointer",
    "icmpv6.checksum.status",
    "icmpv6.echo.identifier",
    "icmpv6.nd.ns.target_address",
    "icmpv6.nd.na.target_address",
    "icmpv6.nd.na.flag.s",
    "icmpv6.nd.na.flag.r",
    "icmpv6.nd.na.flag.o",
    "icmpv6.opt.type",
    "icmpv6.opt.linkaddr",
    "arp.opcode",
    "arp.src.hw_mac",
    "arp.src.proto_ipv4",
    "arp.dst.hw_mac",
    "arp.dst.proto_ipv4",
    "_ws.malformed",
    "_ws.expert.message",
];

/// Reads a capture. Prints SKIP and returns `None` if tshark is not installed.
pub(super) fn read(capture: &[u8]) -> Option<Vec<Seen>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left.pcap");
    std::fs::write(&file, capture).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(&file);
    for preference in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "ip.check_checksum:TRUE",
        "udp.check_checksum:TRUE",
        "tcp.check_checksum:TRUE",
        "tcp.analyze_sequence_numbers:FALSE",
    ] {
        command.args(["-o", preference]);
    }
    // Packets of these protocols have nothing behind their ports, which tshark would call
    // malformed.
    command.args(["--disable-protocol", "dccp", "--disable-protocol", "sctp"]);
    command.args(["-T", "fields", "-E", "separator=|", "-E", "aggregator=,"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP: the program tshark (package tshark): {error}");
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tshark: {stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let seen = text.lines().map(|line| {
        let values: Vec<&str> = line.split('|').collect();
        assert_eq!(values.len(), FIELDS.len(), "{line}");
        // Versions of tshark write booleans differently.
        let value = |text: &str| text.replace("True", "1").replace("False", "0");
        Seen(
            FIELDS
                .iter()
                .copied()
                .zip(values.into_iter().map(value))
                .collect(),
        )
    });
    Some(seen.collect())
}

impl Seen {
    fn field(&self, name: &str) -> &str {
        let value = self.0.get(name);
        value.unwrap_or_else(|| panic!("{name} is not asked for"))
    }

    /// All fields of the frame that are not empty.
    pub(super) fn text(&self) -> String {
        let present = self.0.iter().filter(|(_, value)| !value.is_empty());
        let words: Vec<String> = present
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }

    /// Describes each field that differs from the `FIELD=VALUE` words of `wanted`, each wrong
    /// checksum, and anything that tshark calls malformed.
    pub(super) fn differences(&self, wanted: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for word in wanted.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap();
            let found = self.field(name);
            if found != value {
                wrong.push(format!("{name} is {found:?}, not {value:?}"));
            }
        }
        for name in FIELDS.iter().filter(|name| name.ends_with(".status")) {
            // 1 is good, 0 is bad, and 2 is unverified, as in a fragment.
            if self.field(name).split(',').any(|status| status == "0") {
                wrong.push(format!("{name} is {}", self.field(name)));
            }
        }
        // The first IPv6 fragment is shorter than the inner packet says, which tshark calls
        // malformed.
        let is_cut = self.field("ipv6.fraghdr.more") == "1";
        if !is_cut && !self.field("_ws.malformed").is_empty() {
            wrong.push(format!("malformed: {}", self.field("_ws.expert.message")));
        }
        if !wrong.is_empty() {
            wrong.push(self.text());
        }
        wrong
    }
}
