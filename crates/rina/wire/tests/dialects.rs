//! The layouts of rlite and IRATI. PDUs that those stacks sent are decoded and encoded to the same
//! bytes. Round trips are tested with all widths, and decoders with arbitrary bytes.

use carina_wire::dif::{
    Ack, Address, CepId, Control, Dialect, PCI_BYTES_MAX, Pci, PciError, PduType, QosId, Sack,
    Syntax, Widths, Window,
};
use proptest::prelude::*;

use crate::headers::{bytes, decode, encode, replay};

const RLITE: Syntax = Syntax::of_dialect(Dialect::Rlite);
const IRATI: Syntax = Syntax::of_dialect(Dialect::Irati);

/// PDUs of rlite over UDP and Ethernet, between two IPCPs with addresses 1 and 3.
const RLITE_SENT: &[&str] = &[
    "00808000000040000000000001000000030000000000000030000000 02",
    "00808000000040000000000003000000010000000000000020000000 00",
    "0080000000004000010000000100000003000000010001001e000000 0000",
    "0080000000004000020000000300000001000000030003001e000000 0200",
    "0080000000004000010000000300000001000000000000003c000000 02",
    "00cc0000000040000000000003000000010000000200020034000000 \
     000000000100000001020000010000000000000000020000",
    "00cc0000000040000000000003000000010000000300030034000000 \
     000000000200000002020000020000000000000000020000",
    "00cc0000000040000100000003000000010000000300030034000000 \
     000000000300000003020000030000000100000001020000",
    "00cc0000000040000200000003000000010000000300030034000000 \
     010000000400000004020000040000000200000002020000",
    "00cc0000000040000200000001000000030000000300030034000000 \
     020000000300000003020000030000000400000004020000",
    "0040000000004000000000000000000001000000000000005900000008491000180220002a00",
    "0040000000004000000000000000000003000000000000004700000008001011180620002a0a",
    "004000000000400000000000010000000300000000000000ef0000000800100c20002a06615f",
];

/// PDUs of IRATI over Ethernet, between two IPCPs with addresses 16 and 17.
const IRATI_SENT: &[&str] = &[
    "010000110001000000000040009700 00000000 0873100018012a00",
    "010000100001000000000040007c00 00000000 0873100118012a00",
    "011000110001000100010080802700 72ea630b 03",
    "011100100001000100010080801700 62883cb5 00",
    "011000110001000200020080801500 869c9a99 0000",
    "011000110002000400040080802700 243c0ee7 00",
    "0111001000010001000100c4002700 01000000 a4ea630b 00000000 93883cb5 00000000 00000000",
    "0110001100010001000100c4002700 01000000 94883cb5 72ea630b a4ea630b 00000000 00000000",
    "0111001000010002000200c4002700 03000000 b99c9a99 99a61c2a cba61c2a 00000000 00000000",
    "0111001000020003000300c5003300 01000000 8633620c 00000000 8633620c b833620c 00000000 \
     3f779e63 00000000 00000000",
    "0110001100020003000300c5003300 01000000 0e779e63 01000000 0e779e63 40779e63 8733620c \
     b833620c 00000000 00000000",
    "0111001000020004000400c5003300 03000000 263c0ee7 01000000 263c0ee7 583c0ee7 bbad457c \
     ecad457c 00000000 00000000",
];

#[test]
fn the_examples_of_the_documentation_are_written_the_same() {
    let document = include_str!("../../../../docs/explanation/pci.md");
    let mut count = 0;
    for (syntax, name) in [(RLITE, "rlite"), (IRATI, "irati")] {
        for part in document.split(&format!("\n```{name}-")).skip(1) {
            let (kind, rest) = part.split_once('\n').expect("a line");
            let (hex, _) = rest.split_once("```").expect("the end of the example");
            let (header, control) = replay(syntax, hex);
            assert_eq!(header.pdu_bytes, bytes(hex).len(), "{kind}");
            let expected = match kind {
                "data" => PduType::Data,
                "management" => PduType::Management,
                _ => PduType::Control,
            };
            assert_eq!(header.pci.kind, expected);
            let has_parts =
                control.map(|control| (control.ack.is_some(), control.window.is_some()));
            match kind {
                "window" => assert_eq!(has_parts, Some((false, true))),
                "acknowledgement-and-window" => assert_eq!(has_parts, Some((true, true))),
                _ => assert_eq!(has_parts, None),
            }
            count += 1;
        }
    }
    assert_eq!(count, 7);
}

#[test]
fn what_rlite_sent_is_written_the_same() {
    for hex in RLITE_SENT {
        let (header, _) = replay(RLITE, hex);
        assert_eq!(header.hop_limit, 64);
        assert_eq!(header.pci.qos, QosId(0));
    }
}

#[test]
fn what_irati_sent_is_written_the_same() {
    for hex in IRATI_SENT {
        let (header, control) = replay(IRATI, hex);
        let is_data = header.pci.kind == PduType::Data;
        assert_eq!(header.pci.drf, is_data, "{hex}");
        assert_eq!(control.is_some(), header.pci.src_cep.0 != 0 && !is_data);
    }
}

#[test]
fn the_first_data_pdu_of_rlite_means_this() {
    let (header, _) = replay(RLITE, RLITE_SENT[0]);
    let expected = Pci {
        kind: PduType::Data,
        dst: Address(1),
        src: Address(3),
        qos: QosId(0),
        dst_cep: CepId(0),
        src_cep: CepId(0),
        drf: true,
        ecn: false,
        seq: 0,
    };
    assert_eq!(header.pci, expected);
    assert_eq!((header.header_bytes, header.pdu_bytes), (28, 48));
    let (second, _) = replay(RLITE, RLITE_SENT[2]);
    assert_eq!((second.pci.seq, second.pci.drf), (1, false));
    assert_eq!((second.pci.dst_cep, second.pdu_bytes), (CepId(1), 30));
}

#[test]
fn an_acknowledgement_of_rlite_means_this() {
    let (header, control) = replay(RLITE, RLITE_SENT[5]);
    assert_eq!(header.pci.kind, PduType::Control);
    assert_eq!((header.pci.seq, header.pdu_bytes), (0, 52));
    let expected = Control {
        seq: 0,
        last_seq: 0,
        ack: Some(Ack {
            next: 1,
            sack: Sack::default(),
            cause: 0,
            delay_us: 0,
            ecn_marks: 0,
        }),
        // The wire carries right edges as the last number that may be sent: 513 and 512.
        window: Some(Window {
            left: 1,
            right: 514,
            my_left: 0,
            my_right: 513,
            rate: 0,
            frame: 0,
        }),
    };
    assert_eq!(control, Some(expected));
}

#[test]
fn control_pdus_of_irati_mean_this() {
    let (_, flow_control) = replay(IRATI, IRATI_SENT[7]);
    let expected = Window {
        left: 0,
        right: 0xb53c_8895,
        // The sender has sent 0x0b63ea72 and nothing after it.
        my_left: 0x0b63_ea73,
        my_right: 0x0b63_eaa5,
        rate: 0,
        frame: 0,
    };
    let flow_control = flow_control.expect("a control PDU");
    assert_eq!((flow_control.seq, flow_control.ack), (1, None));
    assert_eq!(flow_control.window, Some(expected));

    let (_, both) = replay(IRATI, IRATI_SENT[10]);
    let both = both.expect("a control PDU");
    let ack = both.ack.expect("an acknowledgement");
    assert_eq!((both.seq, both.last_seq), (1, 1));
    assert_eq!((ack.next, ack.cause), (0x639e_770f, 0x639e_770e));
    let expected = Window {
        left: 0x639e_770f,
        right: 0x639e_7741,
        my_left: 0x0c62_3387,
        my_right: 0x0c62_33b9,
        rate: 0,
        frame: 0,
    };
    assert_eq!(both.window, Some(expected));
}

#[test]
fn every_documented_type_is_decoded_or_refused_by_name() {
    let type_of = |syntax: Syntax, kind: u8| {
        let at = if syntax == RLITE { 1 } else { 11 };
        let mut pdu = vec![0; 64];
        pdu[0] = u8::from(syntax == IRATI);
        pdu[at] = kind;
        syntax.peek(&pdu).map(|route| route.kind)
    };
    let known = [
        (RLITE, 0x40, PduType::Management),
        (RLITE, 0x80, PduType::Data),
        (RLITE, 0xc0, PduType::Control),
        (RLITE, 0xc4, PduType::Control),
        (RLITE, 0xc8, PduType::Control),
        (RLITE, 0xcc, PduType::Control),
        (IRATI, 0x40, PduType::Management),
        (IRATI, 0x80, PduType::Data),
        (IRATI, 0xc0, PduType::Control),
        (IRATI, 0xc1, PduType::Control),
        (IRATI, 0xc4, PduType::Control),
        (IRATI, 0xc5, PduType::Control),
        (IRATI, 0xcf, PduType::Rendezvous),
    ];
    for (syntax, kind, expected) in known {
        assert_eq!(type_of(syntax, kind), Ok(expected), "{kind:x}");
    }
    let reserved = [
        (RLITE, 0xc5, "nack"),
        (RLITE, 0xc6, "sack"),
        (RLITE, 0xc7, "snack"),
        (RLITE, 0xcd, "nack"),
        (IRATI, 0xc2, "nack"),
        (IRATI, 0xc6, "nack and flow control"),
        (IRATI, 0xc9, "sack"),
        (IRATI, 0xca, "snack"),
        (IRATI, 0xcd, "sack and flow control"),
        (IRATI, 0xce, "snack and flow control"),
    ];
    for (syntax, kind, name) in reserved {
        let error = type_of(syntax, kind).expect_err(name);
        assert_eq!(error, PciError::ReservedType(name));
        assert!(error.to_string().contains(name));
    }
    for (syntax, kind) in [(RLITE, 0xcf), (RLITE, 0x00), (IRATI, 0xc8), (IRATI, 0xcc)] {
        let error = type_of(syntax, kind).expect_err("no such type");
        assert!(error == PciError::Type || kind == 0xcf, "{kind:x}");
    }
}

#[test]
fn a_relay_counts_the_ttl_down_and_the_checksum_follows() {
    let mut pdu = bytes(RLITE_SENT[2]);
    RLITE.write_checksum(&mut pdu);
    assert!(RLITE.has_valid_checksum(&pdu));
    for hop_limit in (0..64).rev() {
        let marked = RLITE.mark_bytes();
        RLITE.mark(&mut pdu[..marked], hop_limit, hop_limit < 10);
        assert!(RLITE.has_valid_checksum(&pdu), "{hop_limit}");
        let route = RLITE.peek(&pdu).expect("a PDU");
        assert_eq!((route.hop_limit, route.ecn), (hop_limit, hop_limit < 10));
    }
    for at in 0..pdu.len() {
        let mut damaged = pdu.clone();
        damaged[at] ^= 0x10;
        assert!(!RLITE.has_valid_checksum(&damaged), "byte {at}");
    }
    // A relay does not add a checksum to a PDU without one.
    let mut bare = bytes(RLITE_SENT[2]);
    assert!(!RLITE.has_valid_checksum(&bare));
    RLITE.mark(&mut bare, 9, true);
    assert_eq!(bare[4..6], [0, 0]);
    assert!(!IRATI.has_checksum());
}

#[test]
fn irati_has_no_hop_limit_to_count() {
    let mut pdu = bytes(IRATI_SENT[2]);
    let before = pdu.clone();
    IRATI.mark(&mut pdu[..IRATI.mark_bytes()], 3, false);
    assert_eq!(pdu, before);
    IRATI.mark(&mut pdu[..IRATI.mark_bytes()], 3, true);
    let route = IRATI.peek(&pdu).expect("a PDU");
    assert_eq!((route.hop_limit, route.ecn), (255, true));
}

#[test]
fn what_a_dialect_has_no_field_for_is_refused() {
    let pci = |kind| Pci {
        kind,
        dst: Address(1),
        src: Address(2),
        qos: QosId(1),
        dst_cep: CepId(1),
        src_cep: CepId(1),
        drf: false,
        ecn: false,
        seq: 0,
    };
    let mut out = [0; PCI_BYTES_MAX];
    let mut refuses = |syntax: Syntax, kind, control: &Control| {
        syntax
            .encode(&pci(kind), Some(control), 0, 64, &mut out)
            .is_err()
    };
    let mut sack = Sack::default();
    assert!(sack.push(5, 6));
    let ranges = Control {
        ack: Some(Ack {
            sack,
            ..Ack::default()
        }),
        ..Control::default()
    };
    let rate = Control {
        window: Some(Window {
            rate: 7,
            frame: 1,
            ..Window::default()
        }),
        ..Control::default()
    };
    assert!(refuses(RLITE, PduType::Control, &ranges));
    assert!(refuses(IRATI, PduType::Control, &ranges));
    assert!(refuses(RLITE, PduType::Control, &rate));
    assert!(!refuses(IRATI, PduType::Control, &rate));
    assert!(refuses(RLITE, PduType::Rendezvous, &rate));
    assert!(!refuses(IRATI, PduType::Rendezvous, &rate));
}

#[test]
fn ids_that_cannot_exist_are_refused() {
    let widths = Widths {
        cep: 8,
        qos: 8,
        ..Widths::RLITE
    };
    let wide = Syntax { widths, ..RLITE };
    assert_eq!(wide.check(), Ok(()));
    let mut pdu = vec![0; 64];
    pdu[1] = 0x80;
    pdu[20 + 7] = 1;
    assert_eq!(wide.peek(&pdu), Err(PciError::Range));
    pdu[20 + 7] = 0;
    assert!(wide.peek(&pdu).is_ok());
}

fn dialects() -> impl Strategy<Value = Syntax> {
    let one = |of: &'static [u8]| proptest::sample::select(of);
    let rlite = (
        one(&[1, 2, 4, 8]),
        one(&[1, 2, 4, 8]),
        one(&[1, 2, 4, 8]),
        one(&[1, 2, 4, 8]),
        one(&[1, 2, 4, 8]),
    )
        .prop_map(|(address, cep, qos, seq, length)| Syntax {
            dialect: Dialect::Rlite,
            widths: Widths {
                address,
                cep,
                qos,
                seq,
                ctrl_seq: seq,
                length,
                ..Widths::RLITE
            },
        });
    let irati = (
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
        one(&[1, 2, 4]),
    )
        .prop_map(|(address, cep, qos, seq, length, rate, frame)| Syntax {
            dialect: Dialect::Irati,
            widths: Widths {
                address,
                cep,
                qos,
                seq,
                ctrl_seq: seq,
                length,
                rate,
                frame,
            },
        });
    prop_oneof![rlite, irati]
}

fn cut(value: u64, width: u8) -> u64 {
    value & (u64::MAX >> (64 - 8 * u32::from(width)))
}

/// PDU types that occur in either dialect.
const KINDS: &[u8] = &[0x40, 0x80, 0xc0, 0xc1, 0xc4, 0xc5, 0xc8, 0xcc, 0xcf];

proptest! {
    #[test]
    fn data_survives_all_widths(
        syntax in dialects(),
        (dst, src, seq) in any::<(u64, u64, u64)>(),
        (dst_cep, src_cep, qos) in any::<(u32, u32, u16)>(),
        (drf, ecn) in any::<(bool, bool)>(),
        user in 0_usize..100,
    ) {
        prop_assert_eq!(syntax.check(), Ok(()));
        let w = syntax.widths;
        let pci = Pci {
            kind: PduType::Data,
            dst: Address(cut(dst, w.address)),
            src: Address(cut(src, w.address)),
            qos: QosId(cut(u64::from(qos), w.qos) as u16),
            dst_cep: CepId(cut(u64::from(dst_cep), w.cep) as u32),
            src_cep: CepId(cut(u64::from(src_cep), w.cep) as u32),
            drf,
            ecn,
            seq,
        };
        let mut out = [0; PCI_BYTES_MAX];
        let length = syntax.encode(&pci, None, user, 64, &mut out).expect("fits");
        prop_assert_eq!(length, syntax.pci_bytes(PduType::Data));
        let header = syntax.decode(&out[..length], length + user).expect("a PDU");
        let seq = cut(seq, w.seq);
        prop_assert_eq!(header.pci, Pci { seq, ..pci });
        prop_assert_eq!(header.pdu_bytes, length + user);
        for short in 0..length {
            prop_assert!(syntax.decode(&out[..short], length + user).is_err());
        }
    }

    #[test]
    fn control_survives_all_widths(
        syntax in dialects(),
        numbers in any::<[u64; 6]>(),
        (has_ack, has_window) in any::<(bool, bool)>(),
    ) {
        let w = syntax.widths;
        let [seq, last_seq, next, right, my_left, my_right] = numbers.map(|n| cut(n, w.seq));
        let is_irati = syntax.dialect == Dialect::Irati;
        let has_window = has_window || (is_irati && !has_ack);
        let control = Control {
            seq,
            // In IRATI, PDUs with only an acknowledgement or only flow control lack this field.
            last_seq: if is_irati && !(has_ack && has_window) { 0 } else { last_seq },
            ack: has_ack.then(|| Ack {
                next,
                cause: cut(next.wrapping_sub(1), w.seq),
                ..Ack::default()
            }),
            window: has_window.then_some(Window {
                left: if is_irati && !has_ack { 0 } else { next },
                right,
                my_left: if my_left == 0 { 1 } else { my_left },
                my_right,
                rate: 0,
                frame: 0,
            }),
        };
        // This value cannot be represented: it means that nothing was sent.
        prop_assume!(!(is_irati && control.window.is_some_and(|window| window.my_left == 1)));
        let pci = Pci {
            kind: PduType::Control,
            dst: Address(1),
            src: Address(2),
            qos: QosId(1),
            dst_cep: CepId(3),
            src_cep: CepId(4),
            drf: false,
            ecn: false,
            seq: 0,
        };
        let mut out = [0; PCI_BYTES_MAX];
        let length = syntax.encode(&pci, Some(&control), 0, 64, &mut out).expect("fits");
        let (header, decoded) = decode(syntax, &out[..length], length).expect("a PDU");
        prop_assert_eq!(header.pci, pci);
        prop_assert_eq!(header.pdu_bytes, length);
        prop_assert_eq!(decoded, Some(control));
    }

    #[test]
    fn any_bytes_are_a_pdu_or_an_error(
        syntax in dialects(),
        kind in proptest::sample::select(KINDS),
        mut pdu in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let w = syntax.widths;
        let at = match syntax.dialect {
            Dialect::Rlite => 1,
            _ => 1 + usize::from(2 * w.address + w.qos + 2 * w.cep),
        };
        if pdu.len() > at {
            pdu[0] = 1;
            pdu[at] = kind;
        }
        if let Ok((header, control)) = decode(syntax, &pdu, pdu.len()) {
            prop_assert!(header.header_bytes <= header.pdu_bytes);
            prop_assert!(header.pdu_bytes <= pdu.len());
            // Decoded types that this encoder never writes are encoded as other types.
            if control.is_none_or(|control| control.ack.is_some() || control.window.is_some()) {
                let again = encode(syntax, &header, control.as_ref());
                let shown = decode(syntax, &again, header.pdu_bytes.max(again.len()));
                prop_assert_eq!(shown.map(|(header, _)| header.pci), Ok(header.pci));
            }
        }
    }
}
