//! Captures of IPCPs, read as tools read them.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use carina_api::control::{CaptureCreate, ClientError, DifCreate, DifRole, MemberState};
use carina_api::ipc::Mode;
use carina_api::{ErrorCode, FlowSpec};
use carina_wire::dif::{PduType, Syntax, Widths};
use carina_wire::pcapng::{Direction, Item, LinkType, Reader};
use carina_wire::vmpi::{Control, DataHeader};
use serde_json::json;

use crate::support::members::routed;
use crate::support::pair::Pair;
use crate::support::*;

const WIDTHS: Widths = Widths {
    address: 4,
    ..Widths::DEFAULT
};

/// Adds a member of DIF `net` over the VMPI.
fn member(house: &House, role: DifRole, ipcp: &str) {
    let config = json!({ "widths": { "address": 4 } });
    let create = DifCreate {
        name: dif("net"),
        role,
        over: vec![dif("hv.x")],
        ipcp: Some(ipcp.parse().unwrap()),
        via: None,
        auth: None,
        dialect: Default::default(),
        config: (role == DifRole::Create).then_some(config),
    };
    house.control().create_dif(&create).unwrap();
    eventually("the member is enrolled", || {
        let ipcps = house.control().ipcps().unwrap();
        let info = ipcps.into_iter().find(|info| info.name.as_str() == ipcp);
        info.unwrap().member.unwrap().state == MemberState::Enrolled
    });
}

fn begin(house: &House, ipcp: &str, snap_bytes: Option<u32>) -> (u64, String) {
    let create = CaptureCreate {
        ipcp: ipcp.into(),
        snap_bytes,
    };
    let info = house.control().create_capture(&create).unwrap();
    (info.id, info.description)
}

/// Reads a capture until `is_enough`: direction, bytes and original length of each packet.
fn packets(
    house: &House,
    id: u64,
    link: LinkType,
    is_enough: impl Fn(&[(Direction, Vec<u8>, u32)]) -> bool,
) -> Vec<(Direction, Vec<u8>, u32)> {
    let mut reader = Reader::new();
    let mut found = Vec::new();
    eventually("the packets are captured", || {
        let portion = house
            .control()
            .read_capture(id, Duration::from_millis(50))
            .unwrap();
        reader.feed(&portion);
        while let Some(item) = reader.poll().unwrap() {
            match item {
                Item::Section => {}
                Item::Interface(interface) => assert_eq!(interface.link, link),
                Item::Packet(packet) => {
                    let bytes = packet.bytes.to_vec();
                    found.push((packet.direction, bytes, packet.original_bytes));
                }
            }
        }
        assert_eq!(reader.rest(), 0, "portions end with a block");
        is_enough(&found)
    });
    found
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn pdus_and_vmpi_records_are_captured_both_ways() {
    let pair = Pair::new("capture", "");
    let host = &pair.host;
    let (hv, _) = begin(host, "hv.x", Some(64));
    member(host, DifRole::Create, "net.host");
    let (net, description) = begin(host, "net.host", None);
    assert!(
        description.starts_with("carina normal address=4 cep=2"),
        "{description}"
    );
    assert!(description.ends_with("delimiting=standard"));
    assert_eq!(
        begin(host, "hv.x", None).1.split(' ').nth(2),
        Some("address=4")
    );
    member(&pair.guest, DifRole::Join, "net.guest");

    let server = host.conn();
    server.register("echo", Some("net")).unwrap();
    eventually("the name is known", || {
        let difs = pair.guest.control().difs().unwrap();
        difs.iter()
            .any(|found| found.name == dif("net") && found.names.contains(&app("echo")))
    });
    routed(&pair.guest, "net", "net.host");
    let caller = pair.guest.conn();
    caller.ask_with("echo", Some("net"), FlowSpec::reliable(), Mode::Ring);
    server.accept(server.flow_request().request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    mine.send(b"words to be captured");
    assert_eq!(theirs.recv().unwrap(), b"words to be captured");
    theirs.send(b"and their answer");
    assert_eq!(mine.recv().unwrap(), b"and their answer");

    let syntax = Syntax {
        widths: WIDTHS,
        ..Syntax::default()
    };
    let ends_with = |pdu: &[u8], text: &[u8]| pdu.ends_with(text);
    let pdus = packets(host, net, LinkType::PDU, |pdus| {
        let is = |direction, text: &[u8]| {
            let mut all = pdus.iter();
            all.any(|(of_pdu, pdu, _)| *of_pdu == direction && ends_with(pdu, text))
        };
        is(Direction::In, b"words to be captured") && is(Direction::Out, b"and their answer")
    });
    let words = pdus
        .iter()
        .find(|(_, pdu, _)| ends_with(pdu, b"to be captured"));
    let (_, pdu, original) = words.unwrap();
    let header = syntax.decode(pdu, pdu.len()).unwrap();
    assert_eq!(header.pci.kind, PduType::Data);
    assert_eq!(
        (header.pdu_bytes, *original as usize),
        (pdu.len(), pdu.len())
    );
    // Before the guest had the DIF's configuration, it used the format of PDUs between neighbours.
    let (direction, first, _) = &pdus[0];
    assert_eq!(*direction, Direction::In);
    let greeting = Syntax::default().decode(first, first.len()).unwrap();
    assert_eq!(
        (greeting.pci.kind, greeting.hop_limit),
        (PduType::Management, 0)
    );

    let records = packets(host, hv, LinkType::VMPI, |records| records.len() > 10);
    let is_of_flow = |record: &[u8]| {
        let header = DataHeader::decode(*record.first_chunk().unwrap()).unwrap();
        let control = header
            .channel
            .is_control()
            .then(|| Control::decode(&record[4..]));
        matches!(control, Some(Ok(Control::Allocate { destination, .. })) if destination == "net")
    };
    assert!(records.iter().any(|(direction, record, _)| {
        *direction == Direction::In && record.len() <= 64 && is_of_flow(record)
    }));
    assert!(
        records
            .iter()
            .any(|(direction, ..)| *direction == Direction::Out)
    );
    assert!(records.iter().all(|(_, record, _)| record.len() <= 64));
    assert!(records.iter().any(|(_, _, original)| *original > 64));

    let end = host.control().end_capture(net).unwrap();
    assert_eq!((end.packets, end.missed), (pdus.len() as u64, 0));
    assert!(host.control().read_capture(net, Duration::ZERO).is_err());
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let house = House::new("capture-none", "");
    let refused = |ipcp: &str| {
        let create = CaptureCreate {
            ipcp: ipcp.into(),
            snap_bytes: None,
        };
        match house.control().create_capture(&create) {
            Err(ClientError::Refused { body, .. }) => body.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused("nobody"), ErrorCode::NotFound);
    assert_eq!(refused("local"), ErrorCode::Unsupported);
}
