//! Tests of the load generator's packets: fields, checksums, and mixes that are refused.

use carina_wire::capture::NoFrame;
use carina_wire::inet::pseudo_sum6;
use carina_wire::pcap::{file_header, record};

use super::*;

fn synthesis() -> Synthesis {
    Synthesis {
        sizes: "64x2,1500".parse().unwrap(),
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        source: Ipv4Addr::new(198, 18, 0, 1).into(),
        destinations: "198.19.0.0/30".parse().unwrap(),
        port: 9,
        flows: 3,
    }
}

#[test]
fn packets_carry_what_was_stamped_on_them() {
    let packets = Packets::made(synthesis()).unwrap();
    assert_eq!((packets.round(), packets.longest()), (3, 1500));
    let lengths: Vec<usize> = (0..4).map(|n| packets.bytes(n).len()).collect();
    assert_eq!(lengths, [64, 64, 1500, 64]);
    for number in [0, 5, 1 << 40] {
        let mut frame = packets.bytes(number).to_vec();
        let stamp = Stamp {
            trial: 7,
            number,
            time_ns: 123_456,
        };
        packets.stamp(&mut frame, stamp);
        assert_eq!(Stamp::of(&frame), Some(stamp));
        assert_eq!(checksum(&frame[14..34], 0), 0);
        assert_eq!(frame[33], (number % 4) as u8);
        let flow = u16::from_be_bytes([frame[34], frame[35]]);
        assert_eq!(u64::from(flow), 1024 + number % 3);
        frame.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(Stamp::of(&frame), Some(stamp));
    }
    for length in 0..60 {
        assert_eq!(Stamp::of(&packets.bytes(0)[..length]), None);
    }
}

#[test]
fn packets_over_ipv6_carry_the_same_with_right_checksums() {
    let synthesis = Synthesis {
        sizes: "80x2,1499".parse().unwrap(),
        source: "2001:2::1".parse().unwrap(),
        destinations: "2001:2:0:1::/64".parse().unwrap(),
        ..synthesis()
    };
    let packets = Packets::made(synthesis.clone()).unwrap();
    for number in [0, 1, 2, 1 << 40] {
        let mut frame = packets.bytes(number).to_vec();
        let stamp = Stamp {
            trial: 7,
            number,
            time_ns: 123_456,
        };
        packets.stamp(&mut frame, stamp);
        assert_eq!(Stamp::of(&frame), Some(stamp));
        let (head, udp) = frame.split_at(54);
        let pseudo = pseudo_sum6(head[22..].first_chunk().unwrap(), udp.len(), 17);
        assert_eq!(checksum(udp, pseudo), 0);
        assert_eq!(u16::from_be_bytes([head[18], head[19]]) as usize, udp.len());
        assert_eq!(head[46..], number.to_be_bytes());
        frame.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(Stamp::of(&frame), Some(stamp));
    }
    for length in 0..80 {
        assert_eq!(Stamp::of(&packets.bytes(0)[..length]), None);
    }
    let refusal = |synthesis| Packets::made(synthesis).unwrap_err().to_string();
    let sizes = Mix::default();
    let short = Synthesis {
        sizes,
        ..synthesis.clone()
    };
    assert!(refusal(short).starts_with("frames of 64 bytes: must be 80 to 1514 bytes over IPv6"));
    let source = Ipv4Addr::LOCALHOST.into();
    let mixed = Synthesis {
        source,
        ..synthesis
    };
    assert!(refusal(mixed).contains("both must have the same IP version"));
}

#[test]
fn wrong_mixes_and_flows_are_refused() {
    let refusal = |text: &str| text.parse::<Mix>().unwrap_err().to_string();
    assert!(refusal("64y7").contains("64x7,594x3,1500"));
    assert!(refusal("64x0").contains("write lengths of frames"));
    assert!(refusal("59").contains("must be 60 to 1514 bytes"));
    assert!(refusal("64x5000").contains("at most 4096"));
    let none = Synthesis {
        flows: 0,
        ..synthesis()
    };
    assert!(
        Packets::made(none)
            .unwrap_err()
            .to_string()
            .contains("1 to 64512")
    );
}

#[test]
fn a_file_is_replayed_but_for_what_is_no_whole_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in.pcap");
    let refusal = || {
        let refused = Packets::of_file(&path, Stations::default());
        refused.unwrap_err().to_string()
    };
    assert!(refusal().contains("in.pcap: No such file"));
    std::fs::write(&path, "no capture file at all").unwrap();
    assert!(refusal().contains("neither a pcap nor a pcapng file"));
    // One whole frame, and one of which 20 bytes were captured.
    let file = |link: u32, packets: &[(usize, usize)]| {
        let mut file = file_header(65_535).to_vec();
        file[20..24].copy_from_slice(&link.to_le_bytes());
        for (kept, was) in packets {
            file.extend(record(0, *kept, *was));
            file.extend(vec![0x47; *kept]);
        }
        std::fs::write(&path, file).unwrap();
    };
    let replayed = || Packets::of_file(&path, Stations::default()).unwrap();
    file(1, &[(64, 64), (20, 64)]);
    let packets = replayed();
    assert_eq!((packets.round(), packets.is_stamped()), (1, false));
    assert_eq!(packets.notes.skipped.of(NoFrame::Cut), 1);
    assert_eq!(packets.bytes(9), [0x47; 64]);
    // Frames with an FCS of four bytes; the second has lost two of them.
    file(0x2400_0001, &[(64, 64), (62, 64)]);
    let packets = replayed();
    assert_eq!((packets.round(), packets.longest()), (2, 60));
    file(101, &[(40, 40)]);
    let packets = replayed();
    assert_eq!(packets.notes.given_stations, Some((1, LinkType(101))));
    assert_eq!(packets.bytes(0)[..6], [2, 0, 0, 0, 0, 2]);
    file(105, &[(40, 40), (20, 40)]);
    assert!(refusal().contains("2 are of link type 105 (IEEE802_11), not Ethernet"));
    file(1, &[]);
    assert!(refusal().ends_with("in.pcap has no packet"));
}
