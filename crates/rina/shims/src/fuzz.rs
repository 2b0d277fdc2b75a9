//! Fuzz target for the frames that a network may send to shims over IP.

use carina_netdev::{Deframer, StreamFraming, plain_frames};

use crate::udp::frame::Frame;

/// Decodes bytes from a network. The first byte selects what they are: a datagram of the UDP shim,
/// a stream of the TCP shim in either framing (split into reads by the second byte), or a frame
/// with work that an earlier app has left to do.
///
/// # Panics
/// A decoder breaks a promise: what decodes encodes to the same bytes, frames lie inside the
/// stream, and segments carry the payload.
pub fn shim_frames(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => datagram(rest),
        1 => stream(StreamFraming::Short, rest),
        2 => stream(StreamFraming::Long, rest),
        _ => segments(rest),
    }
}

/// Whether [`shim_frames`] can decode anything in `data`.
#[must_use]
pub fn reads_shim_frames(data: &[u8]) -> bool {
    match data.split_first() {
        Some((kind, rest)) if kind % 4 == 0 => Frame::decode(rest).is_some(),
        Some((kind, rest)) if kind % 4 == 3 => {
            let (header, frame) = rest.split_at(rest.len().min(10));
            plain_frames(header, frame, |_| {}).is_ok()
        }
        Some((kind, [_, rest @ ..])) => {
            let framing = match kind % 4 {
                1 => StreamFraming::Short,
                _ => StreamFraming::Long,
            };
            let mut deframer = Deframer::new(framing);
            let mut rest = rest;
            deframer.fill(&mut rest).is_ok() && matches!(deframer.frame(), Ok(Some(_)))
        }
        _ => false,
    }
}

fn datagram(bytes: &[u8]) {
    if let Some(frame) = Frame::decode(bytes) {
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{frame:?}");
    }
}

fn stream(framing: StreamFraming, bytes: &[u8]) {
    let Some((&cut, mut bytes)) = bytes.split_first() else {
        return;
    };
    let (mut deframer, mut taken, total) = (Deframer::new(framing), 0, bytes.len());
    while !bytes.is_empty() {
        let (mut read, rest) = bytes.split_at(bytes.len().min(usize::from(cut) + 1));
        let _ = deframer.fill(&mut read);
        // Bytes that did not fit are read again.
        bytes = &bytes[bytes.len() - rest.len() - read.len()..];
        loop {
            match deframer.frame() {
                Ok(Some((payload, _))) => taken += framing.head_bytes() + payload.len(),
                Ok(None) => break,
                Err(_) => return,
            }
            deframer.consume();
        }
    }
    assert_eq!(taken + deframer.left(), total);
}

fn segments(bytes: &[u8]) {
    let (header, frame) = bytes.split_at(bytes.len().min(10));
    let (mut count, mut longest) = (0, 0);
    let whole = plain_frames(header, frame, |plain| {
        count += 1;
        longest = longest.max(plain.len());
    });
    assert!(longest <= frame.len() && count <= frame.len().max(1));
    assert!(whole.is_err() || count > 0 || frame.len() >= 14);
}
