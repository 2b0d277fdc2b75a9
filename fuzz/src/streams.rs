//! Targets of the VMPI over streams: packets of a guest's vsock device, lines of the handshake of
//! Firecracker, frames of a VMPI stream.

use carina_vmpi::ll::vsock::frame::{
    FRAME_HEADER_BYTES, Frame, PREFACE_BYTES, RECORD_BYTES_MAX, parse, parse_preface, preface,
};
use carina_vsock::hybrid::{LINE_BYTES_MAX, connect_line, ok_line, parse_connect, parse_ok};
use carina_vsock::{
    BUFFER_BYTES, CONNECTIONS_MAX, HEADER_BYTES, HOST_CID, Header, Machine, Outcome,
};

/// The packets of a guest, as headers one behind the other. Every header reads back; no packet
/// exceeds the bounds of connections, buffers and answers.
pub fn vsock_packets(data: &[u8]) {
    let mut machine = Machine::new(GUEST_CID);
    let mut waiting = std::collections::BTreeMap::new();
    for packet in data.chunks(HEADER_BYTES) {
        let Ok(header) = Header::decode(packet) else {
            continue;
        };
        assert_eq!(
            header.encode()[..],
            packet[..HEADER_BYTES],
            "a header reads back"
        );
        let answers = machine.packets();
        let bytes = header.len as usize;
        match machine.handle(&header, bytes) {
            // Ports with an even number listen.
            Outcome::Incoming(key) if key.host_port & 1 == 0 => machine.accept(key),
            Outcome::Incoming(key) => machine.refuse(key),
            Outcome::Data(key) => {
                let held = waiting.entry(key).or_insert(0);
                *held += bytes;
                assert!(
                    *held <= BUFFER_BYTES as usize,
                    "a guest stays within its credit"
                );
                if header.flags & 1 != 0 {
                    machine.forwarded(key, std::mem::take(held));
                }
            }
            Outcome::Finished(key) => {
                machine.reset(key);
                waiting.remove(&key);
            }
            Outcome::Ended(key) => {
                waiting.remove(&key);
            }
            Outcome::Connected(key) | Outcome::Changed(key) | Outcome::EndOfData(key) => {
                let credit = machine.credit(key).min(1 << 16) as u32;
                let sent = machine.data_header(key, credit);
                assert!(sent.is_none_or(|sent| sent.len == credit));
            }
            Outcome::Done => {}
        }
        assert!(
            machine.packets() <= answers + 2,
            "a packet has at most two answers"
        );
        assert!(machine.connections() <= CONNECTIONS_MAX);
        if header.flags & 2 != 0 && machine.connections() < CONNECTIONS_MAX {
            // The host connects, too.
            assert!(machine.connect(header.source_port).is_ok());
        }
        while let Some(answer) = machine.poll_packet() {
            assert_eq!((answer.source_cid, answer.len), (HOST_CID, 0));
            assert_eq!(Header::decode(&answer.encode()), Ok(answer));
        }
    }
}

/// A line of the hybrid handshake, of either side. A line that is accepted reads back.
pub fn vsock_hybrid(data: &[u8]) {
    if let Ok(Some((port, len))) = parse_connect(data) {
        assert!(len <= LINE_BYTES_MAX && data[len - 1] == b'\n');
        let line = connect_line(port);
        assert_eq!(parse_connect(line.as_bytes()), Ok(Some((port, line.len()))));
    }
    if let Ok(Some((port, len))) = parse_ok(data) {
        assert!(len <= LINE_BYTES_MAX && parse_connect(data).is_err());
        let line = ok_line(port);
        assert_eq!(parse_ok(line.as_bytes()), Ok(Some((port, line.len()))));
    }
}

/// A VMPI stream. Frames that are accepted cover the stream without gaps, within their bounds.
pub fn vmpi_stream(data: &[u8]) {
    let mut rest = data;
    if let Ok(Some(window)) = parse_preface(rest) {
        assert_eq!(preface(window)[..], rest[..PREFACE_BYTES]);
        rest = &rest[PREFACE_BYTES..];
    }
    while let Ok(Some((frame, len))) = parse(rest) {
        assert!((FRAME_HEADER_BYTES..=FRAME_HEADER_BYTES + RECORD_BYTES_MAX).contains(&len));
        if let Frame::Record(bytes) = frame {
            assert_eq!(len, FRAME_HEADER_BYTES + bytes);
        }
        rest = &rest[len..];
    }
}

const GUEST_CID: u64 = 3;
