//! Files that are written and read again, files of other writers, and damaged files.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn interface() -> Interface {
    Interface {
        link: LinkType::PDU,
        name: "blue".into(),
        description: "carina normal dif=blue".into(),
        snap_bytes: 0,
    }
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        time_ns: 1_700_000_000_123_456_789,
        direction: Direction::Out,
        bytes,
        original_bytes: 1400,
    }
}

fn file() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out);
    assert_eq!(writer.interface(&mut out, &interface()), 0);
    assert!(writer.packet(&mut out, &packet(b"hello")));
    out
}

/// What a reader returns for a file in portions of `step` bytes, as text.
fn items(file: &[u8], step: usize) -> Result<Vec<String>, CaptureError> {
    let mut reader = Reader::new();
    let mut items = Vec::new();
    for portion in file.chunks(step) {
        reader.feed(portion);
        while let Some(item) = reader.poll()? {
            items.push(alloc::format!("{item:?}"));
        }
    }
    if reader.rest() > 0 {
        items.push("cut".to_string());
    }
    Ok(items)
}

#[test]
fn what_is_written_reads_in_portions_of_any_size() {
    let file = file();
    let expected: Vec<String> = [
        Item::Section,
        Item::Interface(&interface()),
        Item::Packet(packet(b"hello")),
    ]
    .iter()
    .map(|item| alloc::format!("{item:?}"))
    .collect();
    for step in 1..=file.len() {
        assert_eq!(items(&file, step).as_ref(), Ok(&expected), "{step}");
    }
    let cut = items(&file[..file.len() - 1], 7).unwrap();
    assert_eq!(cut.last().map(String::as_str), Some("cut"));
}

#[test]
fn file_says_how_many_packets_it_misses() {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out);
    for _ in 0..2 {
        writer.interface(&mut out, &interface());
    }
    let begin = out.len();
    // The last count of an interface applies. A count of an undescribed interface is ignored.
    for (interface, missed) in [(0, 3), (1, 4), (0, 5), (9, 100)] {
        let statistics = Statistics {
            interface,
            time_ns: 1 << 32,
            packets: 7,
            missed,
        };
        writer.statistics(&mut out, &statistics);
    }
    let block = [
        [5, 52, 0, 1, 0].map(u32::to_le_bytes).concat(),
        vec![4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0],
        vec![5, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        vec![0, 0, 0, 0, 52, 0, 0, 0],
    ];
    assert_eq!(out[begin..begin + 52], block.concat());
    let mut reader = Reader::new();
    reader.feed(&out);
    while reader.poll().unwrap().is_some() {}
    assert_eq!((reader.missed(), reader.rest()), (9, 0));
    // The block ends inside its contents.
    let mut short = out[..begin].to_vec();
    short.extend([5, 16, 0, 16].map(u32::to_le_bytes).concat());
    reader.feed(&short);
    reader.poll().unwrap();
    assert_eq!(reader.missed(), 0);
    while reader.poll() != Err(CaptureError::Block) {}
}

#[test]
fn blocks_have_these_bytes() {
    let hex: Vec<u8> = [
        "0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffffffffffff 1c000000",
        "01000000 44000000 93000000 00000000 02000400 626c7565",
        "03001600 636172696e61206e6f726d616c206469663d626c75650000",
        "09000100 09000000 00000000 44000000",
    ]
    .concat()
    .split_whitespace()
    .collect::<String>()
    .as_bytes()
    .chunks(2)
    .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
    .collect();
    assert_eq!(file()[..hex.len()], hex);
}

#[test]
fn the_other_byte_order_and_time_units_read_too() {
    let mut out = Vec::new();
    let words = |out: &mut Vec<u8>, words: &[u32]| {
        for word in words {
            out.extend_from_slice(&word.to_be_bytes());
        }
    };
    words(
        &mut out,
        &[SECTION, 28, MAGIC, 0x0001_0000, u32::MAX, u32::MAX, 28],
    );
    words(&mut out, &[INTERFACE, 20, 1 << 16, 96, 20]);
    // An unknown block, a packet with a time in microseconds, and a simple packet.
    words(&mut out, &[0xbad, 12, 12]);
    words(&mut out, &[PACKET, 36, 0, 0, 7, 2, 2, 0xabcd_0000, 36]);
    words(&mut out, &[SIMPLE_PACKET, 20, 3, 0x0102_0300, 20]);
    let mut reader = Reader::new();
    reader.feed(&out);
    assert_eq!(reader.poll(), Ok(Some(Item::Section)));
    assert!(matches!(reader.poll(), Ok(Some(Item::Interface(i))) if i.link == LinkType::ETHERNET));
    let Ok(Some(Item::Packet(first))) = reader.poll() else {
        panic!("no packet");
    };
    assert_eq!((first.time_ns, first.bytes), (7000, &[0xab, 0xcd][..]));
    let Ok(Some(Item::Packet(second))) = reader.poll() else {
        panic!("no packet");
    };
    assert_eq!(second.bytes, [1, 2, 3]);
    assert_eq!(reader.poll(), Ok(None));
}

#[test]
fn units_offsets_and_check_sequences_of_an_interface_count() {
    /// A section with an interface that has these options, and an old and a new packet with time 5.
    fn file(options: &[(u16, &[u8])], flags: u32) -> Vec<u8> {
        let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
        for (code, value) in options {
            interface.extend(code.to_le_bytes());
            interface.extend((value.len() as u16).to_le_bytes());
            interface.extend(*value);
            interface.resize(padded(interface.len()), 0);
        }
        let mut packet = words(&[0, 5, 8, 8, 0x0403_0201, 0x0807_0605]);
        packet.extend([2, 0, 4, 0]);
        packet.extend(words(&[flags]));
        let old = [vec![0, 0, 0xff, 0xff], packet.clone()].concat();
        let new = [vec![0; 4], packet].concat();
        let mut file = Vec::new();
        Writer::begin(&mut file);
        for (kind, body) in [(INTERFACE, interface), (OLD_PACKET, old), (PACKET, new)] {
            let length = body.len() as u32 + 12;
            file.extend(words(&[kind, length]));
            file.extend(body);
            file.extend(words(&[length]));
        }
        file
    }
    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().copied().flat_map(u32::to_le_bytes).collect()
    }
    let offset = |seconds: i64| seconds.to_le_bytes();
    for (options, flags, time_ns, length) in [
        (&[][..], 0, 5000, 8),
        (&[(9, &[9][..])], 0, 5, 8),
        (&[(9, &[0])], 0, 5_000_000_000, 8),
        (&[(9, &[12])], 0, 0, 8),
        (&[(9, &[0x81])], 0, 2_500_000_000, 8),
        (&[(9, &[9]), (14, &offset(2))], 0, 2_000_000_005, 8),
        (&[(9, &[0]), (14, &offset(-3))], 0, 2_000_000_000, 8),
        (&[(14, &offset(i64::MIN))], 0, 0, 8),
        (&[(14, &offset(i64::MAX))], 0, u64::MAX, 8),
        // The FCS length in bits; in bytes, as some writers give it; and as the packet itself
        // states it.
        (&[(13, &[32])], 0, 5000, 4),
        (&[(13, &[4])], 0, 5000, 4),
        (&[(13, &[4])], 2 << 5, 5000, 6),
        (&[], 4 << 5 | 1, 5000, 4),
    ] {
        let file = file(options, flags);
        let mut reader = Reader::new();
        reader.feed(&file);
        let mut packets = 0;
        while let Some(item) = reader.poll().unwrap() {
            if let Item::Packet(packet) = item {
                let found = (packet.time_ns, packet.bytes.len(), packet.original_bytes);
                assert_eq!(found, (time_ns, length, length as u32), "{options:?}");
                assert_eq!(packet.direction, Direction::from_bits(flags));
                packets += 1;
            }
        }
        assert_eq!((packets, reader.is_at_end()), (2, true));
    }
}

#[test]
fn what_is_no_capture_says_so() {
    let why = |file: &[u8]| items(file, 64).unwrap_err();
    assert_eq!(why(b"\xd4\xc3\xb2\xa1 pcap of old"), CaptureError::Foreign);
    let good = file();
    for (at, byte, error) in [
        (8, 0, CaptureError::Foreign),
        (4, 29, CaptureError::Block),
        (24, 0, CaptureError::Block),
        (32, 0xff, CaptureError::Block),
        (104, 1, CaptureError::Interface),
        (117, 0xff, CaptureError::Block),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(why(&bad), error, "byte {at}");
    }
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    let mut out = Vec::new();
    let writer = Writer::begin(&mut out);
    let before = out.clone();
    assert!(!writer.packet(&mut out, &packet(b"no interface")));
    let mut with_interface = Writer::begin(&mut Vec::new());
    with_interface.interface(&mut Vec::new(), &interface());
    let long = vec![0; BLOCK_BYTES_MAX];
    assert!(!with_interface.packet(&mut out, &packet(&long)));
    assert_eq!(out, before);
}

proptest! {
    #[test]
    fn no_bytes_panic_a_reader(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        step in 1usize..200,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = file();
        let length = bytes.len();
        for (at, byte) in flips {
            bytes[at.index(length)] ^= byte;
        }
        bytes.truncate(cut.index(length + 1));
        let whole = items(&bytes, length);
        let portions = items(&bytes, step);
        prop_assert_eq!(whole.is_err(), portions.is_err());
    }
}
