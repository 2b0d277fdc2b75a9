//! Connections when no buffers are free.

use std::cell::Cell;

use carina_efcp::{ConnEvent, Connection, ConnectionConfig, Discard, FailReason, Transmit};
use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId, Pci, QosId};

/// A payload with a number, for which buffers are often not available.
#[derive(Debug)]
struct Scarce(u64);

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(1) };
    /// Percentage of allocations that fail.
    static FAILING: Cell<u64> = const { Cell::new(0) };
}

fn is_available() -> bool {
    let state = STATE
        .get()
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(99);
    STATE.set(state);
    (state >> 33) % 100 >= FAILING.get()
}

impl Payload for Scarce {
    fn len(&self) -> usize {
        8
    }

    fn copy_prefix(&self, _to: &mut [u8]) -> usize {
        0
    }

    fn advance(&mut self, _count: usize) {}

    fn truncate(&mut self, _len: usize) {}

    fn prepend(&mut self, _header: &[u8]) -> bool {
        is_available()
    }

    fn share(&mut self) -> Option<Scarce> {
        is_available().then_some(Scarce(self.0))
    }

    fn keep(&mut self) -> bool {
        is_available()
    }

    fn append_to(&self, to: &mut Vec<u8>) {
        to.extend(self.0.to_be_bytes());
    }

    fn from_vec(_bytes: Vec<u8>) -> Option<Scarce> {
        None
    }
}

fn pass(from: &mut Connection<Scarce>, to: &mut Connection<Scarce>, now: u64, odd: bool) {
    let mut held = None;
    let mut count = 0;
    while let Some(transmit) = from.poll_transmit(Instant::from_nanos(now)) {
        count += 1;
        // Every third pair of PDUs is swapped.
        if odd && count % 6 == 0 {
            held = Some(transmit);
            continue;
        }
        receive(to, now, transmit);
        if let Some(held) = held.take() {
            receive(to, now, held);
        }
    }
    if let Some(held) = held {
        receive(to, now, held);
    }
}

fn receive(to: &mut Connection<Scarce>, now: u64, transmit: Transmit<Scarce>) {
    let pci = Pci {
        kind: transmit.kind,
        dst: Address(1),
        src: Address(2),
        qos: QosId(1),
        dst_cep: CepId(1),
        src_cep: CepId(2),
        drf: transmit.drf,
        ecn: false,
        seq: transmit.seq,
    };
    let _ = to.receive(
        Instant::from_nanos(now),
        &pci,
        transmit.control.as_ref(),
        transmit.udf,
    );
}

/// Writes 2000 numbers. The reader fetches UDFs in the steps for which `reads` returns true.
fn run(
    retransmission: bool,
    reads: impl Fn(u64) -> bool,
) -> (Vec<u64>, [Connection<Scarce>; 2], Vec<ConnEvent>) {
    let config = || ConnectionConfig {
        retransmission,
        ..ConnectionConfig::default()
    };
    let (mut a, mut b) = (
        Connection::new(Instant::ZERO, config(), 1),
        Connection::new(Instant::ZERO, config(), 2),
    );
    let (mut got, mut events, mut next) = (Vec::new(), Vec::new(), 0);
    for tick in 0..20_000_u64 {
        let now = tick * 1_000_000;
        for conn in [&mut a, &mut b] {
            if conn
                .poll_timeout()
                .is_some_and(|at| at <= Instant::from_nanos(now))
            {
                conn.handle_timeout(Instant::from_nanos(now));
            }
        }
        while next < 2000 && a.room() > 0 && a.write(Instant::from_nanos(now), Scarce(next)).is_ok()
        {
            next += 1;
        }
        pass(&mut a, &mut b, now, true);
        while reads(tick)
            && let Some(delivered) = b.poll_deliver()
        {
            got.push(delivered.udf.0);
        }
        a.end_of_burst(Instant::from_nanos(now));
        b.end_of_burst(Instant::from_nanos(now));
        pass(&mut b, &mut a, now, false);
        events.extend(std::iter::from_fn(|| b.poll_event()));
    }
    (got, [a, b], events)
}

#[test]
fn a_reliable_connection_waits_for_buffers() {
    FAILING.set(20);
    let (got, [a, b], _) = run(true, |_| true);
    assert_eq!(got, (0..2000).collect::<Vec<_>>());
    assert!(a.is_drained());
    assert!(a.counters().refused > 0);
    assert!(b.counters().discarded(Discard::NoBuffer) > 0);
}

#[test]
fn losing_acknowledged_data_fails_the_connection() {
    FAILING.set(20);
    let (got, _, events) = run(true, |tick| tick > 100);
    assert_eq!(events, [ConnEvent::Failed(FailReason::NoBuffer)]);
    assert!(got.is_sorted());
}

#[test]
fn without_retransmission_it_is_lost_and_the_gap_is_reported() {
    FAILING.set(20);
    let (got, [a, _], _) = run(false, |_| true);
    assert!(got.is_sorted());
    assert!(a.is_drained());
    let counters = a.counters();
    assert!(counters.unsent > 0, "{counters:?}");
    assert_eq!(counters.sent + counters.unsent, 2000);
}
