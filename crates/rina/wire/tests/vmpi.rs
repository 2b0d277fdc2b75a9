//! The codec of the VMPI: expected bytes, round trips, and bytes that an attacker chose.

use std::path::Path;

use carina_wire::vmpi::{BundleHeader, Channel, Control, DataHeader, DecodeError, Hello, Outcome};
use carina_wire::{FlowSpec, check_name};
use proptest::prelude::*;

fn encode(message: &Control<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn golden(message: Control<'_>, bytes: &[u8]) {
    assert_eq!(encode(&message), bytes, "{message:?}");
    assert_eq!(Control::decode(bytes), Ok(message));
}

#[test]
fn data_headers_are_four_little_endian_bytes() {
    let header = |number, more| DataHeader {
        channel: Channel::new(number),
        more,
    };
    for (header, bytes) in [
        (header(0, false), [0, 0, 0, 0]),
        (header(0x1234, false), [0x34, 0x12, 0, 0]),
        (header(65535, true), [0xff, 0xff, 0, 0x80]),
    ] {
        assert_eq!(header.encode(), bytes);
        assert_eq!(DataHeader::decode(bytes), Ok(header));
    }
    for bytes in [[1, 0, 1, 0], [1, 0, 0, 0x40], [0, 0, 0, 0x80]] {
        assert!(DataHeader::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn headers_of_bundles_are_eight_little_endian_bytes() {
    let header = BundleHeader {
        channel: Channel::new(0x1234),
    };
    let bytes = [0x34, 0x12, 0, 0x40, 0, 0, 0, 0];
    assert_eq!(header.encode(), bytes);
    assert_eq!(BundleHeader::decode(bytes), Ok(header));
    assert!(BundleHeader::is_in([0x34, 0x12, 0, 0x40]));
    for (at, byte) in [(2, 1), (3, 0xc0), (3, 0), (4, 1), (7, 0x80)] {
        let mut wrong = bytes;
        wrong[at] = byte;
        assert!(BundleHeader::decode(wrong).is_err(), "{wrong:?}");
    }
    assert!(BundleHeader::decode([0, 0, 0, 0x40, 0, 0, 0, 0]).is_err());
}

#[test]
fn control_messages_have_these_bytes() {
    let hello = Hello {
        sdu_bytes_max: 1 << 30,
        piece_bytes_max: 0x1000,
        channels_max: 1024,
        bundle_bytes_max: 0x0001_0000,
        name: "vm1",
    };
    golden(
        Control::Hello(hello),
        b"\x01\x02\0\0\0\0\x40\0\0\0\0\0\x10\0\0\0\x04\0\0\x01\0\x03vm1",
    );
    golden(Control::Register { name: "a" }, b"\x02\x01a");
    golden(Control::Unregister { name: "a" }, b"\x03\x01a");
    let channel = Channel::new(0x0203);
    golden(
        Control::Allocate {
            channel,
            window_bytes: 0x0010_0000,
            spec: FlowSpec {
                max_delay_us: 1,
                max_jitter_us: 2,
                max_sdu_gap: 3,
                avg_bandwidth_bps: 4,
                max_loss: 10_000,
                in_order: true,
                msg_boundaries: true,
            },
            source: "me",
            destination: "you",
        },
        b"\x04\x03\x02\0\0\x10\0\
          \x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x10\x27\x03\
          \x02me\x03you",
    );
    golden(
        Control::AllocateResponse {
            channel,
            window_bytes: 0,
            outcome: Outcome::UnknownName,
            reason: "no",
        },
        b"\x05\x03\x02\0\0\0\0\x02\x02no",
    );
    golden(
        Control::Deallocate {
            channel,
            reason: "",
        },
        b"\x06\x03\x02\0",
    );
    golden(
        Control::Credit {
            channel,
            limit_bytes: 0x0102_0304_0506_0708,
        },
        b"\x07\x03\x02\x08\x07\x06\x05\x04\x03\x02\x01",
    );
}

#[test]
fn hello_of_another_version_is_found_whatever_follows() {
    assert_eq!(Control::decode(b"\x01\x01\0"), Err(DecodeError::Version(1)));
    assert_eq!(
        Control::decode(b"\x01\xff\xffjunk"),
        Err(DecodeError::Version(0xffff))
    );
}

#[test]
fn forbidden_values_are_refused_by_the_name_of_their_field() {
    let refused = |bytes: &[u8], field| {
        assert_eq!(
            Control::decode(bytes),
            Err(DecodeError::Value(field)),
            "{bytes:?}"
        );
    };
    refused(b"\x06\0\0\0", "channel");
    refused(b"\x05\x01\0\x00\x10\0\0\x09\0", "outcome");
    refused(b"\x05\x01\0\x00\x10\0\0\x01\0", "window_bytes");
    refused(b"\x05\x01\0\x01\0\0\0\0\0", "window_bytes");
    refused(b"\x04\x01\0\x01\0\0\0", "window_bytes");
    refused(
        b"\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\x01a",
        "piece_bytes_max",
    );
    assert_eq!(
        Control::decode(b"\x02\x01a!"),
        Err(DecodeError::Trailing { bytes: 1 })
    );
    assert_eq!(Control::decode(b"\x02\x02a"), Err(DecodeError::Truncated));
    assert_eq!(Control::decode(b"\x02\x01\xff"), Err(DecodeError::Utf8));
    assert_eq!(
        Control::decode(b"\x63"),
        Err(DecodeError::UnknownType(0x63))
    );
    assert!(matches!(
        Control::decode(b"\x02\x01|"),
        Err(DecodeError::Name(_))
    ));
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    let reason = "ä".repeat(200);
    let channel = Channel::new(1);
    let bytes = encode(&Control::Deallocate {
        channel,
        reason: &reason,
    });
    let cut = "ä".repeat(127);
    assert_eq!(
        Control::decode(&bytes),
        Ok(Control::Deallocate {
            channel,
            reason: &cut
        })
    );
}

/// Checks that a decoded message encodes to the same bytes.
fn check(bytes: &[u8]) {
    if let Ok(message) = Control::decode(bytes) {
        assert_eq!(encode(&message), bytes);
    }
    if let Some(header) = bytes.first_chunk()
        && let Ok(decoded) = DataHeader::decode(*header)
    {
        assert_eq!(decoded.encode(), *header);
    }
    if let Some(header) = bytes.first_chunk()
        && let Ok(decoded) = BundleHeader::decode(*header)
    {
        assert_eq!(decoded.encode(), *header);
    }
}

#[test]
fn committed_corpus_decodes_without_panic_and_canonically() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/vmpi-control");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        check(&bytes);
        for cut in 0..bytes.len() {
            check(&bytes[..cut]);
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[cut] ^= 1 << bit;
                check(&flipped);
            }
        }
        count += 1;
    }
    assert!(count >= 10, "{count} corpus files");
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic_and_canonically(
        kind in 0u8..9,
        rest in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        check(&rest);
        check(&[&[kind], &rest[..]].concat());
    }

    #[test]
    fn any_allocation_survives_the_round_trip(
        number in 1u16..,
        window_bytes in 1024u32..,
        delays in any::<(u32, u32)>(),
        gap in any::<u64>(),
        bandwidth in any::<u64>(),
        max_loss in 0u16..=10_000,
        flags in any::<(bool, bool)>(),
        source in "[a-zA-Zä.-]{1,100}",
        destination in "[^\\p{Cc}|]{1,60}",
    ) {
        prop_assert!(check_name(&source).is_ok() && check_name(&destination).is_ok());
        let message = Control::Allocate {
            channel: Channel::new(number),
            window_bytes,
            spec: FlowSpec {
                max_delay_us: delays.0,
                max_jitter_us: delays.1,
                max_sdu_gap: gap,
                avg_bandwidth_bps: bandwidth,
                max_loss,
                in_order: flags.0,
                msg_boundaries: flags.1,
            },
            source: &source,
            destination: &destination,
        };
        let bytes = encode(&message);
        prop_assert!(bytes.len() <= carina_wire::vmpi::CONTROL_BYTES_MAX);
        prop_assert_eq!(Control::decode(&bytes), Ok(message));
    }
}
