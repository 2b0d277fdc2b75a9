//! Fuzz targets: connections and assemblers whose peer is the fuzzer. Every input is a script of
//! actions; assertions check invariants.

use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::dif::{Ack, Address, CepId, Control, Pci, PduType, QosId, Sack, Window};
use carina_wire::{Bytes, Payload};

use crate::delimiting::{Assembler, AssemblerConfig, Delimiting};
use crate::{Connection, ConnectionConfig, Delivered, EfcpProfile, RateControl, WindowControl};

/// Reads a script byte by byte; after its end every byte is 0.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn number(&mut self, near: u64) -> u64 {
        // Mostly returns numbers close to the current state, because distant numbers are rejected
        // at once.
        match self.byte() {
            0xff => (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte())),
            0xfe => u64::MAX,
            offset => near.wrapping_add(u64::from(offset)).wrapping_sub(0x40),
        }
    }
}

const CREDIT: u32 = 32;

/// The EFCP profile of one of three implementations.
fn profile(kind: u8) -> EfcpProfile {
    match kind % 3 {
        0 => EfcpProfile::default(),
        1 => EfcpProfile::RLITE,
        _ => EfcpProfile::IRATI,
    }
}

fn config(kind: u8, features: u8) -> ConnectionConfig {
    ConnectionConfig {
        profile: profile(kind),
        in_order: features & 1 != 0,
        retransmission: features & 2 != 0,
        window: (features & 4 != 0).then_some(WindowControl {
            credit_max: CREDIT,
            initial_credit: 8,
        }),
        rate: (features & 8 != 0).then_some(RateControl {
            pdus: 100,
            frame_ms: 10,
        }),
        max_sdu_gap: (features & 16 != 0).then_some(3),
        seq_bits: [16, 32][usize::from(features >> 5 & 1)],
        reorder_max: 64,
        ecn: true,
        congestion: alloc::boxed::Box::new(crate::congestion::Cubic::default()),
        ..ConnectionConfig::default()
    }
}

/// Runs a script against one connection. `kind` selects the profile, and the first byte selects
/// features. Each step is an action and its operands.
pub fn connection(kind: u8, data: &[u8]) {
    let mut script = Script(data);
    let mut conn: Connection<Bytes> =
        Connection::new(Instant::ZERO, config(kind, script.byte()), 1);
    let mut now = Instant::ZERO;
    let mut sent_right = 0;
    while !script.0.is_empty() {
        match script.byte() % 8 {
            0 | 1 => {
                let _ = conn.write(now, Bytes::from(alloc::vec![0; 10]));
            }
            2 | 3 => data_pdu(&mut conn, now, &mut script),
            4 => control_pdu(&mut conn, now, &mut script, PduType::Control),
            5 => control_pdu(&mut conn, now, &mut script, PduType::Rendezvous),
            6 => now += Duration::from_millis(u64::from(script.byte())),
            _ => now = conn.poll_timeout().unwrap_or(now).max(now),
        }
        if conn.poll_timeout().is_some_and(|at| at <= now) {
            conn.handle_timeout(now);
            assert!(conn.poll_timeout().is_none_or(|at| at > now), "{conn:?}");
        }
        for _ in 0..2 {
            sent_right = sent_right.max(drain(&mut conn, now));
            conn.end_of_burst(now);
        }
        let status = conn.status();
        assert!(status.held <= 64 + 64 + CREDIT as usize, "{status:?}");
        assert!(status.in_flight <= status.outstanding, "{status:?}");
        assert!(status.queued <= 256, "{status:?}");
    }
}

fn data_pdu(conn: &mut Connection<Bytes>, now: Instant, script: &mut Script<'_>) {
    let flags = script.byte();
    let near = conn.status().receiver_left;
    let seq = script.number(near);
    let pci = pci(PduType::Data, seq, flags & 1 != 0, flags & 2 != 0);
    let udf = (flags & 4 == 0).then(|| Bytes::from(alloc::vec![flags; 4]));
    let _ = conn.receive(now, &pci, None, udf);
}

fn control_pdu(conn: &mut Connection<Bytes>, now: Instant, script: &mut Script<'_>, kind: PduType) {
    let flags = script.byte();
    let (near, left) = (conn.status().next_seq, conn.status().receiver_left);
    let ack = (flags & 1 != 0).then(|| {
        let mut sack = Sack::default();
        for _ in 0..flags >> 4 {
            let start = script.number(near);
            sack.push(start, start.saturating_add(u64::from(script.byte())));
        }
        Ack {
            next: script.number(near),
            sack,
            cause: script.number(near),
            delay_us: u32::from(script.byte()) << (flags & 15),
            ecn_marks: u16::from(script.byte()),
        }
    });
    let window = (flags & 2 != 0).then(|| Window {
        left: 0,
        right: script.number(near),
        my_left: script.number(left),
        my_right: 0,
        rate: u32::from(script.byte()),
        frame: u32::from(script.byte()),
    });
    let control = Control {
        seq: script.number(0x40),
        last_seq: 0,
        ack,
        window,
    };
    let pci = pci(kind, 0, false, false);
    let _ = conn.receive(now, &pci, (flags & 4 == 0).then_some(&control), None);
}

/// Fetches all PDUs, UDFs and events of a connection; fails if they do not end.
fn drain(conn: &mut Connection<Bytes>, now: Instant) -> u64 {
    let (mut right, mut count) = (0, 0);
    while let Some(transmit) = conn.poll_transmit(now) {
        count += 1;
        assert!(count <= 2048, "sends without end: {:?}", conn.status());
        assert_eq!(transmit.kind == PduType::Data, transmit.udf.is_some());
        right = right.max(transmit.seq);
    }
    let mut delivered = 0;
    while conn.poll_deliver().is_some() {
        delivered += 1;
        assert!(delivered <= 4096, "delivers without end");
    }
    while conn.poll_event().is_some() {}
    right
}

fn pci(kind: PduType, seq: u64, drf: bool, ecn: bool) -> Pci {
    Pci {
        kind,
        dst: Address(1),
        src: Address(2),
        qos: QosId(1),
        dst_cep: CepId(1),
        src_cep: CepId(2),
        drf,
        ecn,
        seq,
    }
}

/// Runs UDFs of a script against an assembler. The first byte selects features. Each UDF is `length
/// u8, bytes`; the high bit of the length marks a gap before the UDF.
pub fn assembler(data: &[u8]) {
    const BYTES_MAX: usize = 1024;
    let Some((&features, mut data)) = data.split_first() else {
        return;
    };
    let mut assembler: Assembler<Bytes> = Assembler::new(AssemblerConfig {
        policy: match features & 0x18 {
            0 => Delimiting::Standard,
            8 => Delimiting::None,
            _ => Delimiting::FlagByte,
        },
        in_order: features & 1 != 0,
        is_reliable: features & 2 != 0,
        partial_delivery: features & 4 != 0,
        bytes_max: BYTES_MAX,
    });
    let (mut taken, mut given) = (0, 0);
    while let Some((&length, rest)) = data.split_first() {
        let (bytes, rest) = rest.split_at(usize::from(length & 0x7f).min(rest.len()));
        data = rest;
        taken += bytes.len();
        assembler.on_udf(Delivered {
            udf: Bytes::from(Vec::from(bytes)),
            seq: 0,
            gap_before: length & 0x80 != 0,
        });
        assembler.keep();
        while let Some(piece) = assembler.poll() {
            given += piece.sdu.len();
        }
        assert!(given <= taken, "more bytes come out than went in");
        assert!(assembler.held_bytes() <= BYTES_MAX, "{assembler:?}");
    }
}
