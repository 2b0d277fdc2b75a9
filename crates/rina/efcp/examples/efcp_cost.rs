//! Measures the processor time of one PDU in ns, from `write` at one end to `poll_deliver` at the
//! other.
//!
//! ```text
//! cargo run --release -p carina-efcp --example efcp_cost
//! ```
#![allow(clippy::disallowed_methods, reason = "measures what the machine takes")]

use std::time::Instant as Clock;

use carina_efcp::{Connection, ConnectionConfig, Transmit};
use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId, Pci, QosId};

/// A payload without contents, so that the example measures the protocol only.
#[derive(Debug)]
struct Weightless;

impl Payload for Weightless {
    fn len(&self) -> usize {
        1400
    }

    fn copy_prefix(&self, _to: &mut [u8]) -> usize {
        0
    }

    fn advance(&mut self, _count: usize) {}

    fn truncate(&mut self, _len: usize) {}

    fn prepend(&mut self, _header: &[u8]) -> bool {
        true
    }

    fn share(&mut self) -> Option<Weightless> {
        Some(Weightless)
    }

    fn keep(&mut self) -> bool {
        true
    }

    fn append_to(&self, _to: &mut Vec<u8>) {}

    fn from_vec(_bytes: Vec<u8>) -> Option<Weightless> {
        Some(Weightless)
    }
}

fn pci(transmit: &Transmit<Weightless>) -> Pci {
    Pci {
        kind: transmit.kind,
        dst: Address(2),
        src: Address(1),
        qos: QosId(1),
        dst_cep: CepId(1),
        src_cep: CepId(1),
        drf: transmit.drf,
        ecn: false,
        seq: transmit.seq,
    }
}

const PDUS: u64 = 4_000_000;
const BURST: u64 = 32;

fn measure(label: &str, config: impl Fn() -> ConnectionConfig) {
    let mut a = Connection::new(Instant::ZERO, config(), 1);
    let mut b = Connection::new(Instant::ZERO, config(), 2);
    let begin = Clock::now();
    let (mut now, mut delivered, mut control) = (0_u64, 0_u64, 0_u64);
    while delivered < PDUS {
        now += 10_000;
        let mut written = 0;
        while written < BURST && a.write(Instant::from_nanos(now), Weightless).is_ok() {
            written += 1;
        }
        for _ in 0..2 {
            while let Some(transmit) = a.poll_transmit(Instant::from_nanos(now)) {
                let pci = pci(&transmit);
                let _ = b.receive(
                    Instant::from_nanos(now),
                    &pci,
                    transmit.control.as_ref(),
                    transmit.udf,
                );
            }
            while b.poll_deliver().is_some() {
                delivered += 1;
            }
            a.end_of_burst(Instant::from_nanos(now));
            b.end_of_burst(Instant::from_nanos(now));
            while let Some(transmit) = b.poll_transmit(Instant::from_nanos(now)) {
                control += 1;
                let pci = pci(&transmit);
                let _ = a.receive(
                    Instant::from_nanos(now),
                    &pci,
                    transmit.control.as_ref(),
                    transmit.udf,
                );
            }
        }
        for conn in [&mut a, &mut b] {
            if conn
                .poll_timeout()
                .is_some_and(|at| at <= Instant::from_nanos(now))
            {
                conn.handle_timeout(Instant::from_nanos(now));
            }
        }
    }
    let ns = begin.elapsed().as_nanos() as u64 / delivered;
    println!("{label:<28} {ns:>4} ns per PDU, {control} control PDUs for {delivered}");
}

fn main() {
    measure("unreliable", || ConnectionConfig {
        retransmission: false,
        window: None,
        ..ConnectionConfig::default()
    });
    measure("unreliable, any order", || ConnectionConfig {
        retransmission: false,
        window: None,
        in_order: false,
        ..ConnectionConfig::default()
    });
    measure("window", || ConnectionConfig {
        retransmission: false,
        ..ConnectionConfig::default()
    });
    measure("reliable", ConnectionConfig::default);
    measure("reliable, cubic", || ConnectionConfig {
        congestion: Box::new(carina_efcp::congestion::Cubic::default()),
        ..ConnectionConfig::default()
    });
}
