//! Tests with packets made by hand: the text of each, and that no packet causes a panic.

use std::fmt::Write;

use carina_cdap::{Message, Opcode, Party, Value};
use carina_wire::FlowSpec;
use carina_wire::dif::{Ack, Address, CepId, Control, Window};
use carina_wire::dif::{
    NEIGHBOUR_CHECK_BYTES, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax, Widths,
    append_neighbour_check,
};
use carina_wire::pcapng::Direction;
use carina_wire::vmpi;

use super::*;

fn interface(link: LinkType, description: &str) -> Interface {
    Interface {
        link,
        name: "x".into(),
        description: description.into(),
        snap_bytes: 0,
    }
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        time_ns: 0,
        direction: Direction::In,
        bytes,
        original_bytes: bytes.len() as u32,
    }
}

/// The summaries of packets of one interface, one line for each packet.
fn gist(link: LinkType, description: &str, packets: &[&[u8]]) -> String {
    let mut dissector = Dissector::new(Settings::default());
    let added = dissector.add_interface(&interface(link, description));
    added.expect("an interface");
    let mut text = String::new();
    for bytes in packets {
        let layers = dissector.dissect(&packet(bytes));
        let words: Vec<&str> = layers.iter().map(|layer| layer.summary.as_str()).collect();
        writeln!(text, "{}", words.join(" | ")).expect("a string takes everything");
        for layer in &layers {
            assert!(layer.to_json()["layer"].is_string());
            assert!(!layer.to_lines().is_empty());
        }
    }
    text
}

fn pci(kind: PduType) -> Pci {
    Pci {
        kind,
        dst: Address(2),
        src: Address(1),
        qos: QosId(3),
        dst_cep: CepId(7),
        src_cep: CepId(5),
        drf: kind == PduType::Data,
        ecn: false,
        seq: if kind == PduType::Data { 9 } else { 0 },
    }
}

fn pdu(syntax: Syntax, pci: &Pci, control: Option<&Control>, user: &[u8]) -> Vec<u8> {
    let mut out = [0; PCI_BYTES_MAX];
    let length = syntax
        .encode(pci, control, user.len(), 64, &mut out)
        .expect("it fits");
    [&out[..length], user].concat()
}

fn native(pci: &Pci, user: &[u8]) -> Vec<u8> {
    pdu(Syntax::default(), pci, None, user)
}

#[test]
fn pdus_say_what_they_are() {
    let connect = Message {
        invoke_id: 1,
        ..Message::connect(Party::of("a.1"), Party::of("a.2"))
    };
    let mut management = pci(PduType::Management);
    management.dst = Address::NONE;
    let read = Message {
        invoke_id: 2,
        ..Message::object(Opcode::Read, "", "/routing/table")
    };
    let answer = read.answer().with_error(-2, "no such object");
    let whole = |bytes: &[u8]| native(&pci(PduType::Data), &[&[0], bytes].concat());
    let control = Control {
        seq: 3,
        last_seq: 1,
        ack: Some(Ack {
            next: 11,
            ..Ack::default()
        }),
        window: Some(Window {
            left: 11,
            right: 75,
            ..Window::default()
        }),
    };
    let control = pdu(
        Syntax::default(),
        &pci(PduType::Control),
        Some(&control),
        b"",
    );
    assert_eq!(
        gist(
            LinkType::PDU,
            "carina normal dif=blue",
            &[
                &native(&management, &connect.encode()),
                &whole(&answer.encode()),
                &whole(b"hello"),
                &native(&pci(PduType::Data), b"\x40\0\x02hi\0\x03you"),
                &native(&pci(PduType::Data), b"\xa0\0begin"),
                &native(&pci(PduType::Data), b"\x90\x07end"),
                &native(&pci(PduType::Data), b"\xd0\0\0\0\x01\0\0\x05\0end"),
                &control,
                b"\x02\x80",
            ]
        ),
        "management 1 > neighbour, 20 bytes | M_CONNECT #1 a.1 > a.2\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 38 bytes | whole | M_READ_R #2 /routing/table result -2 \
         \"no such object\"\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 6 bytes | whole | 5 bytes\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 10 bytes | 2 SDUs | 2 bytes | 3 bytes\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 7 bytes | fragment 0 first, 5 bytes\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 5 bytes | fragment 7 last, 3 bytes\n\
         data 1:5 > 2:7 cube 3 seq 9 DRF, 12 bytes | fragment of SDU 1 at 1280 last, 3 bytes\n\
         control 1:5 > 2:7 #3 ack 11 window 11..75\n\
         malformed: the PDU ends within its header\n"
            .replace(
                "management 1 > neighbour, 20 bytes",
                &format!("management 1 > neighbour, {} bytes", connect.encode().len())
            )
            .replace(
                "DRF, 38 bytes",
                &format!("DRF, {} bytes", answer.encode().len() + 1)
            )
    );
}

#[test]
fn management_between_neighbours_ends_with_its_check() {
    let connect = Message {
        invoke_id: 1,
        ..Message::connect(Party::of("a.1"), Party::of("a.2"))
    };
    let message = connect.encode();
    let management = Pci {
        dst: Address::NONE,
        dst_cep: CepId(0),
        src_cep: CepId(0),
        ..pci(PduType::Management)
    };
    let mut out = [0; PCI_BYTES_MAX];
    let user_bytes = message.len() + NEIGHBOUR_CHECK_BYTES;
    let length = Syntax::default().encode(&management, None, user_bytes, 0, &mut out);
    let mut whole = [&out[..length.expect("it fits")], &message].concat();
    append_neighbour_check(&mut whole);
    let gist = format!(
        "management 1 > neighbour, {} bytes | M_CONNECT #1 a.1 > a.2",
        message.len()
    );

    let mut dissector = Dissector::new(Settings::default());
    let added = dissector.add_interface(&interface(LinkType::PDU, "carina normal dif=blue"));
    added.expect("an interface");
    let mut look = |bytes: &[u8]| {
        let packet = Packet {
            original_bytes: whole.len() as u32,
            ..packet(bytes)
        };
        let layers = dissector.dissect(&packet);
        let words: Vec<&str> = layers.iter().map(|layer| layer.summary.as_str()).collect();
        let check = layers[0].to_json()["check"].clone();
        (words.join(" | "), check)
    };
    assert_eq!(look(&whole), (gist.clone(), "right".into()));
    assert_eq!(
        look(&whole[..whole.len() - 1]),
        (gist.clone(), "unknown".into())
    );
    let mut damaged = whole.clone();
    damaged[7] ^= 1;
    let (shown, check) = look(&damaged);
    assert!(shown.contains("bytes, wrong check | M_CONNECT"), "{shown}");
    assert_eq!(check, "wrong");
}

#[test]
fn the_interface_says_how_wide_fields_are() {
    let widths = Widths {
        address: 4,
        seq: 8,
        ..Widths::DEFAULT
    };
    let wide = Syntax {
        widths,
        ..Syntax::default()
    };
    let bytes = pdu(wide, &pci(PduType::Data), None, b"x");
    let shown = gist(
        LinkType::PDU,
        "carina normal dif=blue address=4 seq=8 delimiting=none",
        &[&bytes],
    );
    assert_eq!(
        shown,
        "data 1:5 > 2:7 cube 3 seq 9 DRF, 1 bytes | 1 bytes\n"
    );

    // Neighbours that do not know the DIF's widths yet use the default widths.
    let mut out = [0; PCI_BYTES_MAX];
    let neighbour = pci(PduType::Data);
    let length = Syntax::default().encode(&neighbour, None, 2, 0, &mut out);
    let between = [&out[..length.expect("it fits")], b"\0x"].concat();
    let shown = gist(
        LinkType::PDU,
        "carina normal dif=blue address=4 seq=8 delimiting=none",
        &[&between],
    );
    let expected = "data 1:5 > 2:7 cube 3 seq 9 DRF, 2 bytes | whole | 1 bytes\n";
    assert_eq!(shown, expected);

    let given: Settings = "address=4,seq=8,delimiting=none".parse().expect("settings");
    assert_eq!(given.syntax, wide);
    for wrong in [
        "address",
        "address=3",
        "colour=2",
        "delimiting=yes",
        "seq=x",
    ] {
        assert!(wrong.parse::<Settings>().is_err(), "{wrong}");
    }
    let fallback = Settings::of_interface("eth0 of another tool", given);
    assert_eq!(fallback, Ok(given));
    assert!(Settings::of_interface("carina normal address=9", given).is_err());
}

#[test]
fn frames_hold_arp_and_pdus_with_padding() {
    let macs = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    let mut tagged = [&macs[..], &[0x81, 0, 0, 10, 0xd1, 0xf0]].concat();
    tagged.extend(native(&pci(PduType::Data), b"\0hello"));
    tagged.resize(60, 0);
    let arp = carina_wire::arp::Arp {
        operation: carina_wire::arp::Operation::Request,
        sender_mac: "02:00:00:00:00:01".parse().expect("a MAC address"),
        sender: "blue.1",
        target_mac: carina_wire::ether::Mac::ZERO,
        target: "blue.2",
    };
    let mut request = [&macs[..], &[8, 6]].concat();
    request.extend(arp.encode().expect("names"));
    let ip = [&macs[..], &[8, 0, 0x45]].concat();
    assert_eq!(
        gist(LinkType::ETHERNET, "", &[&tagged, &request, &ip, &macs]),
        "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff vlan 10 | data 1:5 > 2:7 cube 3 seq 9 DRF, 6 bytes \
         | whole | 5 bytes\n\
         02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff | blue.1 asks for blue.2\n\
         02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff | malformed: a short header\n\
         the frame ends within its header\n"
    );
}

#[test]
fn vmpi_records_are_followed_over_pieces() {
    let record = |channel: u16, more: bool, payload: &[u8]| {
        let channel = vmpi::Channel::new(channel);
        let header = vmpi::DataHeader { channel, more };
        [&header.encode()[..], payload].concat()
    };
    let control = |message: vmpi::Control<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        record(0, false, &bytes)
    };
    let channel = vmpi::Channel::new(2);
    assert_eq!(
        gist(
            LinkType::VMPI,
            "carina hv",
            &[
                &control(vmpi::Control::Register { name: "echo" }),
                &control(vmpi::Control::Allocate {
                    channel,
                    window_bytes: 4096,
                    spec: FlowSpec::reliable(),
                    source: "ping",
                    destination: "echo",
                }),
                &control(vmpi::Control::Deallocate {
                    channel,
                    reason: "",
                }),
                &record(2, true, b"abc"),
                &record(4, false, &native(&pci(PduType::Data), b"\0x")),
                &record(2, false, b"de"),
                &record(2, false, b"f"),
                b"\0",
            ]
        ),
        "REGISTER echo\n\
         ALLOCATE channel 2 ping > echo\n\
         DEALLOCATE channel 2\n\
         channel 2 piece of 3 bytes at 0, more follows\n\
         channel 4 | data 1:5 > 2:7 cube 3 seq 9 DRF, 2 bytes | whole | 1 bytes\n\
         channel 2 last piece, of an SDU of 5 bytes\n\
         channel 2 | 1 bytes\n\
         malformed: no header\n"
    );
}

#[test]
fn values_of_objects_are_shown_without_their_schema() {
    let bytes = b"\x08\x03\x12\x04blue\x22\x04\x08\x02\x10\x01\x1d\x01\0\0\0".to_vec();
    let write = Message::object(Opcode::Write, "link", "/routing/links/a-b");
    let encoded = write.with_value(Value::Bytes(bytes)).encode();
    let layer = super::cdap::dissect(&encoded).expect("a message");
    let value = layer.to_json()["value"].clone();
    assert_eq!(value, "{1: 3, 2: \"blue\", 4: {1: 2, 2: 1}, 3: 1}");
    assert_eq!(super::protobuf::describe(b"\x0f"), None);
    assert_eq!(super::protobuf::describe(b"\x0a\x05a"), None);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn what_a_capture_cut_short_is_not_malformed() {
    let gist_of = |link, description: &str, whole: &[u8], kept: usize| {
        let mut dissector = Dissector::new(Settings::default());
        let added = dissector.add_interface(&interface(link, description));
        added.expect("an interface");
        let cut = Packet {
            original_bytes: whole.len() as u32,
            ..packet(&whole[..kept])
        };
        let layers = dissector.dissect(&cut);
        let words: Vec<&str> = layers.iter().map(|layer| layer.summary.as_str()).collect();
        words.join(" | ")
    };
    let data = native(&pci(PduType::Data), b"\0an SDU of 20 bytes..");
    assert_eq!(data.len(), 40);
    let of = |kept: usize| format!("cut short by the capture ({kept} of 40 bytes)");
    for (kept, expected) in [
        (0, of(0)),
        (2, format!("data, {}", of(2))),
        (12, format!("data 1 > 2, {}", of(12))),
        (18, format!("data 1 > 2, {}", of(18))),
    ] {
        assert_eq!(gist_of(LinkType::PDU, "", &data, kept), expected);
    }
    let wide = Widths {
        address: 4,
        ..Widths::DEFAULT
    };
    let wide = Syntax {
        widths: wide,
        ..Syntax::default()
    };
    let wide = pdu(wide, &pci(PduType::Data), None, b"\0hello");
    let about_wide = "carina normal dif=blue address=4";
    for kept in 15..19 {
        let shown = gist_of(LinkType::PDU, about_wide, &wide, kept);
        assert!(shown.starts_with("data 1 > 2, cut short"), "{shown}");
    }
    let header = "data 1:5 > 2:7 cube 3 seq 9 DRF, 21 bytes";
    let bare = gist_of(LinkType::PDU, "", &data, 19);
    assert_eq!(
        bare,
        format!("{header} | cut short by the capture (0 of 21 bytes)")
    );
    let begun = gist_of(LinkType::PDU, "", &data, 25);
    assert_eq!(
        begun,
        format!("{header} | whole | cut short by the capture (5 of 20 bytes)")
    );
    let window = Some(Window::default());
    let control = Control {
        seq: 3,
        window,
        ..Control::default()
    };
    let control = pdu(
        Syntax::default(),
        &pci(PduType::Control),
        Some(&control),
        b"",
    );
    let header = vmpi::DataHeader {
        channel: vmpi::Channel::new(0),
        more: false,
    };
    let mut register = header.encode().to_vec();
    vmpi::Control::Register { name: "echo" }.encode(&mut register);
    let frame = [&[0xff; 12][..], &[8, 6], &[0; 30]].concat();
    for (link, whole) in [
        (LinkType::PDU, &data),
        (LinkType::PDU, &native(&pci(PduType::Data), b"\xa0\0begin")),
        (
            LinkType::PDU,
            &native(&pci(PduType::Data), b"\xd0\0\0\0\x01\0\0\x05\0end"),
        ),
        (LinkType::PDU, &control),
        (LinkType::SDU, &data),
        (LinkType::VMPI, &register),
        (LinkType::ETHERNET, &frame),
    ] {
        for kept in 0..whole.len() {
            let shown = gist_of(link, "", whole, kept);
            assert!(!shown.contains("malformed"), "{kept}: {shown}");
            assert!(!shown.contains("ends"), "{kept}: {shown}");
        }
    }
}

/// Dissects every prefix of every packet, and every packet with one byte changed. Each must have a
/// description and none may cause a panic.
#[test]
fn no_packet_panics() {
    let data = native(&pci(PduType::Data), b"\x40\0\x02hi\0\x09you");
    for link in [
        LinkType::PDU,
        LinkType::SDU,
        LinkType::VMPI,
        LinkType::ETHERNET,
        LinkType(9),
    ] {
        for length in 0..=data.len() {
            for byte in [0, 0x40, 0x80, 0xc0, 0xff] {
                let mut bytes = data[..length].to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last = byte;
                }
                let mut dissector = Dissector::new(Settings::default());
                dissector
                    .add_interface(&interface(link, ""))
                    .expect("an interface");
                let cut = Packet {
                    original_bytes: 4000,
                    ..packet(&bytes)
                };
                for packet in [packet(&bytes), cut] {
                    assert!(!dissector.dissect(&packet).is_empty());
                }
            }
        }
    }
}

#[test]
fn packets_without_ethernet_header_are_shown_as_ip() {
    let mut packet = vec![
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([0, 53, 0, 99, 0, 8, 0, 0]);
    let raw = gist(LinkType(101), "", &[&packet, &[0x75]]);
    assert!(
        raw.starts_with("link type 101 (RAW) | 10.0.0.1 > 10.0.0.2"),
        "{raw}"
    );
    assert!(
        raw.contains("link type 101 (RAW), 1 bytes, of a protocol"),
        "{raw}"
    );
    let cooked = [
        &[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 7, 0, 0, 8, 0][..],
        &packet,
    ]
    .concat();
    let cooked = gist(LinkType(113), "", &[&cooked, &[0; 15]]);
    let expected = "link type 113 (LINUX_SLL) from 02:00:00:00:00:07 | 10.0.0.1 > 10.0.0.2";
    assert!(cooked.starts_with(expected), "{cooked}");
    assert!(cooked.contains("shorter than a header"), "{cooked}");
    let loopback = gist(LinkType(0), "", &[&[&[2, 0, 0, 0][..], &packet].concat()]);
    assert!(loopback.contains("(NULL) | 10.0.0.1 >"), "{loopback}");
    let other = gist(LinkType(127), "", &[&packet]);
    assert_eq!(other, "link type 127 (IEEE802_11_RADIOTAP), 28 bytes\n");
}
