//! PCI: the examples of `docs/explanation/pci.md`, round trips with all widths, and arbitrary
//! bytes.

use carina_wire::dif::{
    Ack, Address, CepId, Control, PCI_BYTES_MAX, Pci, PciError, PduType, QosId, SACK_RANGES_MAX,
    Sack, Syntax, Widths, Window, without_neighbour_check,
};
use proptest::prelude::*;

use crate::headers::decode;

const DOCUMENT: &str = include_str!("../../../../docs/explanation/pci.md");

/// The bytes of an example in the document.
fn example(name: &str) -> Vec<u8> {
    let begin = format!("\n```{name}\n");
    let (_, block) = DOCUMENT
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no example {name}"));
    let (block, _) = block.split_once("```").expect("the end of the example");
    block
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect()
}

fn data(syntax: Syntax, name: &str) {
    let pci = Pci {
        kind: PduType::Data,
        dst: Address(2),
        src: Address(1),
        qos: QosId(3),
        dst_cep: CepId(7),
        src_cep: CepId(5),
        drf: true,
        ecn: false,
        seq: 9,
    };
    check(syntax, name, pci, None, 64, b"hello");
}

fn control(name: &str, kind: PduType, qos: u16, control: Control) {
    let (dst, src, dst_cep, src_cep) = match kind {
        PduType::Rendezvous => (2, 1, 7, 5),
        _ => (1, 2, 5, 7),
    };
    let pci = Pci {
        kind,
        dst: Address(dst),
        src: Address(src),
        qos: QosId(qos),
        dst_cep: CepId(dst_cep),
        src_cep: CepId(src_cep),
        drf: false,
        ecn: false,
        seq: 0,
    };
    check(Syntax::default(), name, pci, Some(control), 64, b"");
}

fn check(
    syntax: Syntax,
    name: &str,
    pci: Pci,
    control: Option<Control>,
    hop_limit: u8,
    user: &[u8],
) {
    let expected = example(name);
    let mut out = [0; PCI_BYTES_MAX];
    let header = syntax
        .encode(&pci, control.as_ref(), user.len(), hop_limit, &mut out)
        .expect("values that fit");
    let mut pdu = out[..header].to_vec();
    pdu.extend_from_slice(user);
    assert_eq!(pdu, expected, "{name}");

    let (decoded, decoded_control) = decode(syntax, &pdu, pdu.len() + 20).expect(name);
    assert_eq!(decoded.pci, pci, "{name}");
    assert_eq!(decoded_control, control, "{name}");
    assert_eq!(decoded.hop_limit, hop_limit);
    assert_eq!(decoded.pdu_bytes, pdu.len());
    if control.is_none() {
        assert_eq!(decoded.header_bytes, header);
    }
    assert!(header <= syntax.pci_bytes(pci.kind));
}

fn window(left: u64, right: u64, my_left: u64, my_right: u64) -> Window {
    Window {
        left,
        right,
        my_left,
        my_right,
        rate: 0,
        frame: 0,
    }
}

#[test]
fn data_and_management_are_as_documented() {
    data(Syntax::default(), "data");
    let widths = Widths {
        address: 4,
        cep: 1,
        qos: 2,
        seq: 8,
        length: 4,
        ..Widths::DEFAULT
    };
    let other = Syntax {
        widths,
        ..Syntax::default()
    };
    data(other, "data-of-other-widths");
    let pci = Pci {
        kind: PduType::Management,
        dst: Address::NONE,
        src: Address(1),
        qos: QosId(0),
        dst_cep: CepId(0),
        src_cep: CepId(0),
        drf: false,
        ecn: false,
        seq: 0,
    };
    let pdu = example("management");
    let whole = without_neighbour_check(&pdu).expect("the right check");
    assert!(whole.ends_with(b"cdap"));
    let user = &pdu[whole.len() - 4..];
    check(Syntax::default(), "management", pci, None, 0, user);
}

#[test]
fn control_and_rendezvous_are_as_documented() {
    let mut sack = Sack::default();
    assert!(sack.push(12, 14));
    let ack = Ack {
        next: 10,
        sack,
        cause: 13,
        delay_us: 250,
        ecn_marks: 1,
    };
    let control_of = |seq, last_seq, ack, window| Control {
        seq,
        last_seq,
        ack,
        window,
    };
    control(
        "acknowledgement",
        PduType::Control,
        3,
        control_of(1, 0, Some(ack), None),
    );
    let open = window(10, 74, 5, 69);
    control(
        "window",
        PduType::Control,
        2,
        control_of(2, 1, None, Some(open)),
    );
    let ack = Ack {
        next: 11,
        cause: 10,
        ..Ack::default()
    };
    let paced = Window {
        rate: 1000,
        frame: 10,
        ..window(11, 75, 5, 69)
    };
    control(
        "acknowledgement-and-window",
        PduType::Control,
        3,
        control_of(3, 1, Some(ack), Some(paced)),
    );
    let closed = window(0, 64, 73, 73);
    control(
        "rendezvous",
        PduType::Rendezvous,
        3,
        control_of(4, 3, None, Some(closed)),
    );
}

#[test]
fn what_the_documentation_says_is_discarded_is() {
    let syntax = Syntax::default();
    let why = |pdu: &[u8]| decode(syntax, pdu, pdu.len()).unwrap_err();
    let changed = |name: &str, at: usize, byte: u8| {
        let mut pdu = example(name);
        pdu[at] = byte;
        why(&pdu)
    };
    assert_eq!(changed("data", 0, 0), PciError::Version);
    assert_eq!(changed("data", 1, 0xc4), PciError::Type);
    assert_eq!(changed("data", 2, 0x02), PciError::Reserved);
    assert_eq!(changed("data", 6, 0x19), PciError::Length);
    assert_eq!(changed("data", 6, 18), PciError::Length);
    assert_eq!(changed("acknowledgement", 23, 0x15), PciError::Reserved);
    assert_eq!(changed("acknowledgement", 23, 0x71), PciError::Reserved);
    assert_eq!(changed("acknowledgement", 41, 14), PciError::Reserved);
    assert_eq!(changed("window", 23, 0x12), PciError::Reserved);
    assert_eq!(changed("window", 23, 0x01), PciError::Length);
    for name in ["data", "acknowledgement", "window", "rendezvous"] {
        let pdu = example(name);
        let header = if name == "data" { 19 } else { pdu.len() };
        for short in 0..header {
            let why = decode(syntax, &pdu[..short], pdu.len()).unwrap_err();
            assert_eq!(why, PciError::Short, "{name} {short}");
        }
    }
    let mut longer = example("window");
    longer[6] += 1;
    longer.push(0);
    assert_eq!(why(&longer), PciError::Length);
}

#[test]
fn impossible_widths_are_named_and_never_panic() {
    let good = Syntax::default();
    assert_eq!(good.check(), Ok(()));
    let pdu = example("acknowledgement-and-window");
    let (header, control) = decode(good, &pdu, pdu.len()).unwrap();
    let mut names = Vec::new();
    for field in 0..8 {
        for width in [0, 3, 5, 16, 255] {
            let mut widths = Widths::DEFAULT;
            let fields = [
                &mut widths.address,
                &mut widths.cep,
                &mut widths.qos,
                &mut widths.seq,
                &mut widths.ctrl_seq,
                &mut widths.length,
                &mut widths.rate,
                &mut widths.frame,
            ];
            *fields.into_iter().nth(field).unwrap() = width;
            let odd = Syntax { widths, ..good };
            names.push(odd.check().unwrap_err());
            let mut out = [0; PCI_BYTES_MAX];
            assert!(decode(odd, &pdu, pdu.len()).is_err());
            let encoded = odd.encode(&header.pci, control.as_ref(), 0, 1, &mut out);
            assert!(encoded.is_err(), "{odd:?}");
        }
    }
    names.dedup();
    assert_eq!(names.len(), 8);
}

fn widths() -> impl Strategy<Value = Widths> {
    let any_of = |widths: &'static [u8]| prop::sample::select(widths);
    (
        any_of(&[1, 2, 4, 8]),
        any_of(&[1, 2, 4]),
        any_of(&[1, 2]),
        any_of(&[2, 4, 8]),
        any_of(&[2, 4, 8]),
        any_of(&[2, 4]),
        any_of(&[1, 2, 4]),
        any_of(&[1, 2, 4]),
    )
        .prop_map(
            |(address, cep, qos, seq, ctrl_seq, length, rate, frame)| Widths {
                address,
                cep,
                qos,
                seq,
                ctrl_seq,
                length,
                rate,
                frame,
            },
        )
}

fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width))
}

fn pcis(w: Widths) -> impl Strategy<Value = Pci> {
    let kinds = [
        PduType::Data,
        PduType::Management,
        PduType::Control,
        PduType::Rendezvous,
    ];
    (
        prop::sample::select(kinds.to_vec()),
        any::<[u64; 3]>(),
        any::<[u32; 2]>(),
        any::<(u16, bool, bool)>(),
    )
        .prop_map(move |(kind, [dst, src, seq], ceps, (qos, drf, ecn))| Pci {
            kind,
            dst: Address(dst & mask(w.address)),
            src: Address(src & mask(w.address)),
            qos: QosId((u64::from(qos) & mask(w.qos)) as u16),
            dst_cep: CepId((u64::from(ceps[0]) & mask(w.cep)) as u32),
            src_cep: CepId((u64::from(ceps[1]) & mask(w.cep)) as u32),
            drf,
            ecn,
            seq: if kind == PduType::Data {
                seq & mask(w.seq)
            } else {
                0
            },
        })
}

fn controls(w: Widths) -> impl Strategy<Value = Control> {
    let seq = mask(w.seq);
    let range = (any::<u64>(), any::<u64>()).prop_map(move |(a, b)| (a & seq, b & seq));
    let ack = (
        any::<(u64, u64, u32, u16)>(),
        prop::collection::vec(range, 0..=SACK_RANGES_MAX),
    )
        .prop_map(move |((next, cause, delay_us, ecn_marks), ranges)| {
            let mut sack = Sack::default();
            for (a, b) in ranges {
                sack.push(a.min(b), a.max(b));
            }
            Ack {
                next: next & seq,
                sack,
                cause: cause & seq,
                delay_us,
                ecn_marks,
            }
        });
    let window = any::<([u64; 4], [u32; 2])>().prop_map(move |(edges, paced)| Window {
        rate: (u64::from(paced[0]) & mask(w.rate)) as u32,
        frame: (u64::from(paced[1]) & mask(w.frame)) as u32,
        ..self::window(
            edges[0] & seq,
            edges[1] & seq,
            edges[2] & seq,
            edges[3] & seq,
        )
    });
    (
        any::<[u64; 2]>(),
        prop::option::of(ack),
        prop::option::of(window),
    )
        .prop_map(move |(seqs, ack, window)| Control {
            seq: seqs[0] & mask(w.ctrl_seq),
            last_seq: seqs[1] & mask(w.ctrl_seq),
            ack,
            window,
        })
}

proptest! {
    #[test]
    fn what_is_encoded_decodes(
        (widths, pci, control) in
            widths().prop_flat_map(|w| (Just(w), pcis(w), controls(w))),
        user in 0usize..60_000,
        hop_limit: u8,
        padding in 0usize..64,
    ) {
        let syntax = Syntax { widths, ..Syntax::default() };
        prop_assert_eq!(syntax.check(), Ok(()));
        let is_control = matches!(pci.kind, PduType::Control | PduType::Rendezvous);
        let control = is_control.then_some(control);
        let user = if is_control { 0 } else { user };
        let mut out = [0; PCI_BYTES_MAX];
        let header = syntax.encode(&pci, control.as_ref(), user, hop_limit, &mut out).unwrap();
        let present = header + user + padding;
        let (decoded, decoded_control) = decode(syntax, &out[..header], present).unwrap();
        prop_assert_eq!(decoded.pci, pci);
        prop_assert_eq!(decoded_control, control);
        prop_assert_eq!(decoded.hop_limit, hop_limit);
        prop_assert_eq!(decoded.pdu_bytes, header + user);
        prop_assert!(is_control || decoded.header_bytes == header);
        let route = syntax.peek(&out[..syntax.base_bytes()]).unwrap();
        prop_assert_eq!((route.kind, route.dst, route.src), (pci.kind, pci.dst, pci.src));
        prop_assert_eq!((route.dst_cep, route.src_cep), (pci.dst_cep, pci.src_cep));
        prop_assert_eq!((route.qos, route.hop_limit, route.ecn), (pci.qos, hop_limit, pci.ecn));
        prop_assert_eq!(route.pdu_bytes, header + user);
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes(
        (widths, pci, control) in
            widths().prop_flat_map(|w| (Just(w), pcis(w), controls(w))),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let syntax = Syntax { widths, ..Syntax::default() };
        let is_control = matches!(pci.kind, PduType::Control | PduType::Rendezvous);
        let mut bytes = [0; PCI_BYTES_MAX];
        let header = syntax
            .encode(&pci, is_control.then_some(&control), 0, 9, &mut bytes)
            .unwrap();
        for (at, byte) in flips {
            bytes[at.index(header)] ^= byte;
        }
        if let Ok((decoded, control)) = decode(syntax, &bytes[..header], usize::MAX) {
            let mut again = [0; PCI_BYTES_MAX];
            let user = match control {
                None => decoded.pdu_bytes - decoded.header_bytes,
                Some(_) => 0,
            };
            let length = syntax
                .encode(&decoded.pci, control.as_ref(), user, decoded.hop_limit, &mut again)
                .unwrap();
            prop_assert_eq!(&again[..length], &bytes[..length]);
        }
    }
}
