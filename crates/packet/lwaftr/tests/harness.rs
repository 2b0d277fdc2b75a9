//! Runs an AFTR between two captures, on two interfaces and on a stick, with and without VLANs.
//! Reads the headers that leave with `etherparse`, in place of the code under test.

use std::net::{Ipv4Addr, Ipv6Addr};

use carina_lwaftr::check::{Frames, Inputs, Ran, read_frames, run, write_frames};
use carina_lwaftr::config::Rules;
use carina_lwaftr::counters::Counters;
use carina_lwaftr::file::{Loaded, read};
use carina_time::{Duration, Instant};
use etherparse::{
    IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetSlice, PacketBuilder, SlicedPacket,
    TransportSlice,
};

/// The AFTR's own addresses, and those of its neighbours.
pub(crate) const OWN4: [u8; 4] = [10, 1, 1, 1];
pub(crate) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const OWN6: &str = "fd00::1";
/// A host in the Internet.
pub(crate) const HOST: [u8; 4] = [198, 51, 100, 7];
/// An address that two customers share: one has the ports below 32768, the other those above.
pub(crate) const SHARED: [u8; 4] = [192, 0, 2, 1];
/// An address that belongs to one customer alone.
pub(crate) const WHOLE: [u8; 4] = [192, 0, 2, 2];
pub(crate) const B4_LOW: &str = "2001:db8::1";
pub(crate) const B4_HIGH: &str = "2001:db8::2";
pub(crate) const B4_WHOLE: &str = "2001:db8::3";
pub(crate) const BR: &str = "2001:db8:ffff::1";
pub(crate) const BR_WHOLE: &str = "2001:db8:ffff::2";

/// A configuration with these statements inside its two interface blocks.
pub(crate) fn configuration(external: &str, internal: &str) -> String {
    let softwire = |ipv4: [u8; 4], psid: u8, b4: &str, br: &str, bits: u8| {
        format!(
            "softwire {{ ipv4 {}; psid {psid}; b4-ipv6 {b4}; br-address {br}; \
             port-set {{ psid-length {bits}; }} }}\n",
            Ipv4Addr::from(ipv4)
        )
    };
    let side = |ip: &str| {
        format!("ip {ip}; mac 02:00:00:00:00:01; VLAN next-hop {{ mac 02:00:00:00:00:09; }}")
    };
    format!(
        "softwire-config {{ instance {{ device a; queue {{ id 0; \
         external-interface {{ {} }} internal-interface {{ {} }} }} }}\n\
         external-interface {{ mtu 1500; {external} }}\n\
         internal-interface {{ mtu 1500; {internal} }}\n\
         binding-table {{\n{}{}{}}} }}",
        side("10.1.1.1").replace("VLAN", "VLAN4"),
        side(OWN6).replace("VLAN", "VLAN6"),
        softwire(SHARED, 0, B4_LOW, BR, 1),
        softwire(SHARED, 1, B4_HIGH, BR, 1),
        softwire(WHOLE, 0, B4_WHOLE, BR_WHOLE, 0),
    )
}

/// An AFTR, and the frames to send through it.
pub(crate) struct Case {
    pub configuration: String,
    pub rules: Rules,
    pub external: Frames,
    pub internal: Frames,
}

impl Case {
    /// A case whose configuration has these statements in its interface blocks.
    pub(crate) fn with(external: &str, internal: &str) -> Case {
        Case {
            configuration: configuration(external, internal),
            rules: Rules::RFC,
            external: Vec::new(),
            internal: Vec::new(),
        }
    }

    /// A case with the default configuration of the tests.
    pub(crate) fn plain() -> Case {
        Case::with("", "")
    }

    pub(crate) fn like_snabb(mut self) -> Case {
        self.rules = Rules::SNABB;
        self
    }

    /// Adds a frame from the Internet, at second 0.
    pub(crate) fn with_external(mut self, frame: Vec<u8>) -> Case {
        self.external.push((Instant::ZERO, frame));
        self
    }

    /// Adds a frame from the access network, at second 0.
    pub(crate) fn with_internal(mut self, frame: Vec<u8>) -> Case {
        self.internal.push((Instant::ZERO, frame));
        self
    }

    /// Moves the last frame of each side to this time, in seconds.
    pub(crate) fn later(mut self, seconds: u64) -> Case {
        for frames in [&mut self.external, &mut self.internal] {
            if let Some((time, _)) = frames.last_mut() {
                *time = Instant::ZERO + Duration::from_secs(seconds);
            }
        }
        self
    }

    /// Runs the case in four variants (with and without VLANs, on two interfaces and on a stick),
    /// whose results must not differ. Returns what left, without tags.
    pub(crate) fn run(&self) -> Ran {
        let mut ran: Option<Ran> = None;
        for (tags, is_stick) in [
            ([None, None], false),
            ([None, None], true),
            ([Some(7), Some(4094)], false),
            ([Some(7), Some(8)], true),
        ] {
            let new = self.run_with(tags, is_stick);
            if let Some(first) = &ran {
                let what = format!("tags {tags:?}, stick {is_stick}");
                assert_same(&first.external, &new.external, &what);
                assert_same(&first.internal, &new.internal, &what);
                assert_eq!(first.counters, new.counters, "{what}");
            }
            ran.get_or_insert(new);
        }
        ran.unwrap()
    }

    pub(crate) fn loaded(&self, [tag4, tag6]: [Option<u16>; 2]) -> Loaded {
        let vlan = |tag: Option<u16>| tag.map_or(String::new(), |tag| format!("vlan-tag {tag};"));
        let text = self.configuration.replace("VLAN4", &vlan(tag4));
        read(
            &text.replace("VLAN6", &vlan(tag6)),
            self.rules.reserves_two_to_the_bits,
        )
        .unwrap()
    }

    pub(crate) fn run_with(&self, tags: [Option<u16>; 2], is_stick: bool) -> Ran {
        let tagged = |frames: &Frames, tag: Option<u16>| -> Frames {
            let frames = frames
                .iter()
                .map(|(time, frame)| (*time, with_tag(frame, tag)));
            frames.collect()
        };
        let inputs = Inputs {
            external: tagged(&self.external, tags[0]),
            internal: tagged(&self.internal, tags[1]),
            is_stick,
        };
        let mut ran = run(&self.loaded(tags), self.rules, &inputs).unwrap();
        for (frames, tag) in [(&mut ran.external, tags[0]), (&mut ran.internal, tags[1])] {
            // What leaves is also written to a file and read back.
            let file = read_frames(&write_frames(frames)[..]).unwrap();
            for (frame, (_, read)) in frames.iter_mut().zip(file) {
                assert_eq!(*frame, read);
                if let Some(tag) = tag {
                    let [high, low] = u16::to_be_bytes(tag);
                    assert_eq!(frame[12..16], [0x81, 0, high, low]);
                    frame.drain(12..16);
                }
            }
        }
        ran
    }
}

/// Adds a VLAN tag to a frame, if there is one.
pub(crate) fn with_tag(frame: &[u8], tag: Option<u16>) -> Vec<u8> {
    match tag {
        None => frame.to_vec(),
        Some(tag) => {
            let [high, low] = u16::to_be_bytes(tag);
            [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
        }
    }
}

fn assert_same(one: &[Vec<u8>], other: &[Vec<u8>], what: &str) {
    let differences = carina_lwaftr::check::differences(one, other);
    assert!(differences.is_empty(), "{what}: {differences:?}");
}

/// The value of the counter `name`.
pub(crate) fn counter(counters: &Counters, name: &str) -> u64 {
    let all = counters.all();
    let found = all.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Asserts values of counters, and that no other drop counter has changed.
pub(crate) fn assert_counters(ran: &Ran, expected: &[(&str, u64)]) {
    for (name, value) in expected {
        assert_eq!(
            counter(&ran.counters, name),
            *value,
            "{name}: {:?}",
            nonzero(ran)
        );
    }
    for (name, value) in nonzero(ran) {
        let is_drop = name.starts_with("drop-") && !name.starts_with("drop-all-");
        let is_expected =
            expected.iter().any(|(known, _)| *known == name) || name.ends_with("-bytes");
        assert!(!is_drop || is_expected, "{name} is {value}");
    }
}

fn nonzero(ran: &Ran) -> Vec<(String, u64)> {
    let all = ran.counters.all().into_iter();
    all.filter(|(_, value)| *value > 0).collect()
}

/// A frame from the next hop to the AFTR.
pub(crate) fn ether(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let [high, low] = ethertype.to_be_bytes();
    [&OWN_MAC[..], &NEXT_MAC, &[high, low], packet].concat()
}

/// An IPv4 packet with a UDP datagram, made by etherparse.
pub(crate) fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(source.0, destination.0, 64)
        .udp(source.1, destination.1)
        .write(&mut packet, payload)
        .unwrap();
    // etherparse sets DF.
    edit4(&mut packet, |header| header.dont_fragment = false);
    packet
}

/// Changes the header of an IPv4 packet, and updates its checksum.
pub(crate) fn edit4(packet: &mut Vec<u8>, edit: impl FnOnce(&mut Ipv4Header)) {
    let (mut header, rest) = Ipv4Header::from_slice(packet).unwrap();
    let rest = rest.to_vec();
    edit(&mut header);
    header.header_checksum = header.calc_header_checksum();
    packet.clear();
    header.write(packet).unwrap();
    packet.extend(rest);
}

/// Encapsulates an IPv4 packet as a B4 does.
pub(crate) fn tunnel(b4: &str, br: &str, inner: &[u8]) -> Vec<u8> {
    ipv6(b4, br, 4, inner)
}

/// An IPv6 packet.
pub(crate) fn ipv6(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: payload.len() as u16,
        next_header: IpNumber(next),
        hop_limit: 64,
        source: source.parse::<Ipv6Addr>().unwrap().octets(),
        destination: destination.parse::<Ipv6Addr>().unwrap().octets(),
    };
    let mut packet = Vec::new();
    header.write(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

/// A frame with an IPv4 packet, and one with an IPv6 packet.
pub(crate) fn frame4(packet: &[u8]) -> Vec<u8> {
    ether(0x0800, packet)
}

pub(crate) fn frame6(packet: &[u8]) -> Vec<u8> {
    ether(0x86dd, packet)
}

/// An ICMPv4 message whose checksum etherparse computes.
pub(crate) fn icmp4(ends: [[u8; 4]; 2], kind: u8, code: u8, word: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(ends[0], ends[1], 64)
        .icmpv4_raw(kind, code, word.to_be_bytes())
        .write(&mut packet, payload)
        .unwrap();
    edit4(&mut packet, |header| header.dont_fragment = false);
    packet
}

/// An ICMPv6 message whose checksum etherparse computes.
pub(crate) fn icmp6(ends: [&str; 2], kind: u8, code: u8, word: u32, payload: &[u8]) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let mut packet = Vec::new();
    PacketBuilder::ipv6(octets(ends[0]), octets(ends[1]), 64)
        .icmpv6_raw(kind, code, word.to_be_bytes())
        .write(&mut packet, payload)
        .unwrap();
    packet
}

/// What etherparse reads in an IPv4 packet that left, by itself or inside a tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub ttl: u8,
    pub class: u8,
    pub bytes: usize,
    /// ICMP type, code, third word, and the quoted bytes.
    pub icmp: Option<(u8, u8, u32, Vec<u8>)>,
    pub payload: Vec<u8>,
}

/// Parses a whole IPv4 packet, and checks its checksums.
pub(crate) fn see4(packet: &[u8]) -> Seen4 {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let Some(NetSlice::Ipv4(ipv4)) = &sliced.net else {
        panic!("no IPv4: {packet:02x?}");
    };
    let header = ipv4.header();
    assert_eq!(
        header.header_checksum(),
        header.to_header().calc_header_checksum()
    );
    assert_eq!(usize::from(header.total_len()), packet.len());
    let icmp = match &sliced.transport {
        Some(TransportSlice::Icmpv4(icmp)) => {
            let icmp = icmp.slice();
            assert_eq!(ones_sum(icmp), 0xffff, "checksum of ICMP");
            let word = u32::from_be_bytes(icmp[4..8].try_into().unwrap());
            Some((icmp[0], icmp[1], word, icmp[8..].to_vec()))
        }
        _ => None,
    };
    Seen4 {
        source: header.source(),
        destination: header.destination(),
        ttl: header.ttl(),
        class: packet[1],
        bytes: packet.len(),
        icmp,
        payload: ipv4.payload().payload.to_vec(),
    }
}

/// Parses a frame towards the Internet.
pub(crate) fn out4(frame: &[u8]) -> Seen4 {
    assert_eq!((&frame[..6], &frame[6..12]), (&NEXT_MAC[..], &OWN_MAC[..]));
    assert_eq!(frame[12..14], [8, 0]);
    see4(&frame[14..])
}

/// Parses a frame towards the access network into its IPv6 header and its payload.
pub(crate) fn out6(frame: &[u8]) -> (Ipv6Header, Vec<u8>) {
    assert_eq!((&frame[..6], &frame[6..12]), (&NEXT_MAC[..], &OWN_MAC[..]));
    assert_eq!(frame[12..14], [0x86, 0xdd]);
    let (header, rest) = Ipv6Header::from_slice(&frame[14..]).unwrap();
    assert_eq!(usize::from(header.payload_length), rest.len());
    (header, rest.to_vec())
}

/// Parses a frame into a softwire, and checks both ends of the tunnel.
pub(crate) fn into(frame: &[u8], br: &str, b4: &str) -> Seen4 {
    let (header, inner) = out6(frame);
    assert_eq!(
        Ipv6Addr::from(header.source),
        br.parse::<Ipv6Addr>().unwrap()
    );
    assert_eq!(
        Ipv6Addr::from(header.destination),
        b4.parse::<Ipv6Addr>().unwrap()
    );
    assert_eq!(header.next_header, IpNumber::IPV4);
    let seen = see4(&inner);
    assert_eq!(header.traffic_class, seen.class);
    seen
}

/// The one's complement sum of RFC 1071; 0xffff over data with a right checksum.
pub(crate) fn ones_sum(bytes: &[u8]) -> u32 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
