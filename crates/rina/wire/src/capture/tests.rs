//! Reads files of both formats and of many link types as frames.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::pcap::{file_header, record};
use crate::pcapng::{Direction, Interface, LinkType, Packet, Writer};

/// A pcap file with packets of one link type. Each packet has its original length and its bytes.
fn pcap(link: u16, packets: &[(usize, &[u8])]) -> Vec<u8> {
    let mut file = file_header(65_535).to_vec();
    file[20..22].copy_from_slice(&link.to_le_bytes());
    for (number, (length, bytes)) in packets.iter().enumerate() {
        file.extend(record(number as u64, bytes.len(), *length));
        file.extend(*bytes);
    }
    file
}

/// A pcapng file with one interface for each packet.
fn pcapng(packets: &[(u16, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file);
    for (link, bytes) in packets {
        let interface = writer.interface(
            &mut file,
            &Interface {
                link: LinkType(*link),
                name: String::new(),
                description: String::new(),
                snap_bytes: 0,
            },
        );
        let packet = Packet {
            interface,
            time_ns: u64::from(interface),
            direction: Direction::Unknown,
            bytes,
            original_bytes: bytes.len() as u32,
        };
        assert!(writer.packet(&mut file, &packet));
    }
    file
}

type Frames = Vec<Result<Vec<u8>, NoFrame>>;

fn frames(file: &[u8], step: usize) -> Result<Frames, CaptureError> {
    let mut reader = FrameReader::new(Stations::default());
    let mut frames: Frames = Vec::new();
    for portion in file.chunks(step) {
        reader.feed(portion);
        while let Some(record) = reader.poll()? {
            frames.push(record.frame.map(<[u8]>::to_vec));
            assert_eq!(record.number as usize, frames.len());
            assert_eq!(record.time_ns + 1, record.number);
        }
    }
    reader.end().map(|()| frames)
}

/// The frame made of a packet; checks that both formats give the same.
fn frame(link: u16, packet: &[u8]) -> Result<Vec<u8>, NoFrame> {
    let of_pcap = frames(&pcap(link, &[(packet.len(), packet)]), 64).unwrap();
    assert_eq!(frames(&pcapng(&[(link, packet)]), 64).unwrap(), of_pcap);
    of_pcap.into_iter().next().unwrap()
}

/// An IPv4 packet to this address.
fn ipv4(to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 24];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&to);
    packet
}

fn ethernet(destination: [u8; 6], source: u8, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, source]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn packets_of_ip_get_an_ethernet_header() {
    let packet = ipv4([192, 0, 2, 1]);
    for link in [12, 14, 101, 228] {
        let expected = ethernet(NEXT, 1, 0x0800, &packet);
        assert_eq!(frame(link, &packet), Ok(expected));
    }
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    for link in [101, 229] {
        assert_eq!(frame(link, &packet), Ok(ethernet(NEXT, 1, 0x86dd, &packet)));
    }
    packet[24] = 0xff;
    packet[36..].copy_from_slice(&[1, 2, 3, 4]);
    let group = ethernet([0x33, 0x33, 1, 2, 3, 4], 1, 0x86dd, &packet);
    assert_eq!(frame(101, &packet), Ok(group));
    let packet = ipv4([224, 128, 0, 9]);
    let group = ethernet([1, 0, 0x5e, 0, 0, 9], 1, 0x0800, &packet);
    assert_eq!(frame(101, &packet), Ok(group));
    assert_eq!(frame(101, &[0x75; 20]), Err(NoFrame::Protocol));
    assert_eq!(frame(101, &[]), Err(NoFrame::Short));
}

#[test]
fn loopback_packets_are_of_either_byte_order() {
    let packet = ipv4([127, 0, 0, 1]);
    let expected = ethernet(NEXT, 1, 0x0800, &packet);
    let with = |family: [u8; 4]| [&family[..], &packet].concat();
    for (link, family) in [(0, [2, 0, 0, 0]), (0, [0, 0, 0, 2]), (108, [0, 0, 0, 2])] {
        assert_eq!(frame(link, &with(family)), Ok(expected.clone()));
    }
    for family in [10, 24, 28, 30] {
        let frame = frame(0, &with([family, 0, 0, 0])).unwrap();
        assert_eq!(frame[12..14], [0x86, 0xdd]);
    }
    assert_eq!(frame(0, &with([7, 0, 0, 0])), Err(NoFrame::Protocol));
    assert_eq!(frame(0, &[2, 0, 0]), Err(NoFrame::Short));
}

#[test]
fn cooked_packets_keep_sender_and_ethertype() {
    let packet = ipv4([192, 0, 2, 1]);
    let sll = |kind: u8, hardware: u16, protocol: u16| {
        let mut header = vec![0, kind];
        header.extend(hardware.to_be_bytes());
        header.extend([0, 6, 2, 0, 0, 0, 0, 7, 0xaa, 0xaa]);
        header.extend(protocol.to_be_bytes());
        [header, packet.clone()].concat()
    };
    let sll2 = |kind: u8, hardware: u16, protocol: u16| {
        let mut header = protocol.to_be_bytes().to_vec();
        header.extend([0, 0, 0, 0, 0, 3]);
        header.extend(hardware.to_be_bytes());
        header.extend([kind, 6, 2, 0, 0, 0, 0, 7, 0xaa, 0xaa]);
        [header, packet.clone()].concat()
    };
    for (link, made) in [
        (113, &sll as &dyn Fn(u8, u16, u16) -> Vec<u8>),
        (276, &sll2),
    ] {
        let of = |kind, hardware, protocol| frame(link, &made(kind, hardware, protocol));
        assert_eq!(of(0, 1, 0x0800), Ok(ethernet(NEXT, 7, 0x0800, &packet)));
        let to_all = ethernet([0xff; 6], 7, 0x0806, &packet);
        assert_eq!(of(1, 1, 0x0806), Ok(to_all));
        // IEEE 802.3: the header has a length in place of the Ethertype.
        let length = packet.len() as u16;
        assert_eq!(of(0, 1, 4), Ok(ethernet(NEXT, 7, length, &packet)));
        assert_eq!(of(4, 824, 0), Err(NoFrame::Protocol));
        assert_eq!(of(0, 280, 12), Err(NoFrame::Protocol));
        assert_eq!(frame(link, &made(0, 1, 0x0800)[..15]), Err(NoFrame::Short));
        // A tunnel has no MAC address.
        let mut tunnel = made(0, 768, 0x0800);
        tunnel[if link == 113 { 5 } else { 11 }] = 4;
        assert_eq!(frame(link, &tunnel), Ok(ethernet(NEXT, 1, 0x0800, &packet)));
    }
}

#[test]
fn a_vlan_is_put_into_frames_that_are_made() {
    let stations = Stations {
        vlan: Some(42),
        ..Stations::default()
    };
    let packet = ipv4([192, 0, 2, 1]);
    let whole = ethernet([5; 6], 1, 0x0800, &packet);
    let mut reader = FrameReader::new(stations);
    reader.feed(&pcapng(&[(101, &packet), (1, &whole)]));
    let made = reader.poll().unwrap().unwrap();
    assert_eq!(made.frame.unwrap()[12..18], [0x81, 0, 0, 42, 8, 0]);
    assert_eq!(made.link, LinkType(101));
    let kept = reader.poll().unwrap().unwrap();
    assert_eq!(
        (kept.frame, kept.link),
        (Ok(&whole[..]), LinkType::ETHERNET)
    );
}

#[test]
fn packets_that_are_no_frames_are_counted_by_reason() {
    let whole = [7; 60];
    let file = pcap(
        1,
        &[(60, &whole), (90, &whole), (13, &whole[..13]), (0, &whole)],
    );
    let found = frames(&file, 64).unwrap();
    let whole = Ok(whole.to_vec());
    let expected = [whole.clone(), Err(NoFrame::Cut), Err(NoFrame::Short), whole];
    assert_eq!(found, expected);
    let cut = frames(&pcap(101, &[(90, &ipv4([0; 4]))]), 64).unwrap();
    assert_eq!(cut, [Err(NoFrame::Cut)]);
    assert_eq!(frame(127, &[0; 60]), Err(NoFrame::LinkType(LinkType(127))));
    let mut skipped = Skipped::default();
    for reason in [
        NoFrame::LinkType(LinkType(127)),
        NoFrame::Cut,
        NoFrame::Short,
        NoFrame::Cut,
    ] {
        skipped.count(reason);
    }
    assert_eq!((skipped.total(), skipped.of(NoFrame::Cut)), (4, 2));
    assert_eq!(
        skipped.to_string(),
        "2 are cut short by the capture (snap length), 1 is shorter than a header, \
         1 is of link type 127 (IEEE802_11_RADIOTAP), not Ethernet"
    );
}

#[test]
fn what_is_no_capture_file_is_named() {
    let why = |bytes: &[u8]| frames(bytes, 1).unwrap_err().to_string();
    assert!(why(b"text").contains("it begins with 74 65 78 74"));
    assert!(why(&[0x1f, 0x8b, 8, 0]).contains("gunzip"));
    assert!(why(&[0x28, 0xb5, 0x2f, 0xfd]).contains("unzstd"));
    assert!(why(b"").contains("empty"));
    assert!(why(&[0x0a, 0x0d]).contains("of which 2 bytes"));
    let file = pcap(1, &[(60, &[7; 60])]);
    assert!(why(&file[..20]).contains("of which 20 bytes"));
    assert!(why(&file[..file.len() - 1]).contains("of which 75 bytes"));
}

#[test]
fn long_blocks_of_unknown_types_are_passed_over() {
    let (whole, length) = ([7; 60], 5 << 20);
    let mut file = pcapng(&[(1, &whole)]);
    // After the section header and the interface block.
    let packet = file.split_off(28 + usize::from(file[28 + 4]));
    for word in [0xbadu32, length] {
        file.extend(word.to_le_bytes());
    }
    file.resize(file.len() + length as usize - 12, 0x55);
    file.extend(length.to_le_bytes());
    assert_eq!(
        frames(&file[..file.len() - 8], 1 << 16),
        Err(CaptureError::Cut(0))
    );
    file.extend(packet);
    assert_eq!(frames(&file, 1 << 16), Ok(vec![Ok(whole.to_vec())]));
    let mut reader = Reader::new();
    for portion in file.chunks(1 << 16) {
        reader.feed(portion);
        while reader.poll().unwrap().is_some() {}
        let Kind::Pcapng(blocks) = &reader.kind else {
            panic!("not pcapng");
        };
        assert!(blocks.rest() <= 1 << 16, "{} bytes are kept", blocks.rest());
    }
}

proptest! {
    #[test]
    fn portions_of_any_size_give_the_same_frames(
        link in prop::sample::select(vec![0u16, 1, 101, 105, 108, 113, 276]),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        step in 1usize..100,
    ) {
        for mut file in [pcap(link, &[(bytes.len(), &bytes), (90, &bytes)]),
                         pcapng(&[(link, &bytes), (1, &bytes)])] {
            let length = file.len();
            for (at, byte) in &flips {
                file[at.index(length)] ^= byte;
            }
            let all = |step| {
                let mut reader = FrameReader::new(Stations::default());
                let mut found: Vec<Result<Vec<u8>, NoFrame>> = Vec::new();
                for portion in file.chunks(step) {
                    reader.feed(portion);
                    loop {
                        match reader.poll() {
                            Ok(Some(record)) => found.push(record.frame.map(<[u8]>::to_vec)),
                            Ok(None) => break,
                            Err(error) => return (found, Err(error)),
                        }
                    }
                }
                (found, reader.end())
            };
            prop_assert_eq!(all(step), all(length));
        }
    }
}
