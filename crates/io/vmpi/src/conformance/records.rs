//! Cases of records: order, lengths, back-pressure and counters.

use super::{Deadline, Fixture, Random, Sides, put, receive, send};
use crate::hl::Side;

const BOTH: [Side; 2] = [Side::Host, Side::Guest];

/// Records of 1 byte to the longest length arrive unchanged and in order, in both directions at
/// once, while the readers take turns of different lengths.
pub fn records_of_all_lengths_keep_their_order<F: Fixture>(make: impl Fn() -> F) {
    let mut sides = Sides::up(make());
    for side in BOTH {
        let max = sides.device(side).record_bytes_max();
        let lengths = (0..usize::BITS).flat_map(|bit| {
            let power = 1_usize << bit.min(40);
            [power - 1, power, power + 1]
        });
        for len in lengths.filter(|len| (1..max).contains(len)).chain([max]) {
            let bytes = pattern(len as u64, len);
            let deadline = Deadline::new();
            while !send(sides.device(side), &bytes) {
                let _ = sides.look();
                deadline.check("the ring never has room for a record");
            }
            let got = loop {
                if let Some(got) = receive(sides.device(side.peer())) {
                    break got;
                }
                let _ = sides.look();
                deadline.check("a record does not arrive");
            };
            assert!(got == bytes, "{len} bytes from {side:?} arrive changed");
        }
    }
    mixed_lengths_both_ways(&mut sides);
}

fn mixed_lengths_both_ways<F: Fixture>(sides: &mut Sides<F>) {
    const RECORDS: u64 = 2000;
    let mut random = Random::new(1);
    let longest = sides.device(Side::Host).record_bytes_max().min(12_000);
    let record = |n: u64| pattern(n, 1 + (n as usize).wrapping_mul(7919) % longest);
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    let deadline = Deadline::new();
    while got != [RECORDS; 2] {
        for (from, side) in BOTH.into_iter().enumerate() {
            for _ in 0..random.below(12) {
                if sent[from] == RECORDS || !put(sides.device(side), &record(sent[from])) {
                    break;
                }
                sent[from] += 1;
            }
            sides.device(side).publish();
            for _ in 0..random.below(16) {
                let Some(bytes) = receive(sides.device(side.peer())) else {
                    break;
                };
                assert!(
                    bytes == record(got[from]),
                    "record {} of {side:?}",
                    got[from]
                );
                got[from] += 1;
            }
        }
        let _ = sides.look();
        deadline.check("records stand still");
    }
}

/// A reader that stops fills the way, after which the writer is refused. Every accepted record
/// arrives when the reader continues.
pub fn stopped_reader_holds_the_writer_back_and_loses_nothing<F: Fixture>(make: impl Fn() -> F) {
    let mut sides = Sides::up(make());
    for side in BOTH {
        let mut sent = 0_u64;
        let mut quiet = 0;
        let deadline = Deadline::new();
        while quiet < 100 {
            let before = sent;
            while put(sides.device(side), &pattern(sent, 1000)) {
                sent += 1;
            }
            sides.device(side).publish();
            let _ = sides.look();
            quiet = if sent == before { quiet + 1 } else { 0 };
            deadline.check("the writer is never refused");
        }
        let device = sides.device(side);
        let free = device.free_bytes().expect("the peer is correct");
        assert!(
            free < 1100,
            "{free} bytes are free although the ring is full"
        );
        let mut got = 0;
        while got < sent {
            match receive(sides.device(side.peer())) {
                Some(bytes) => {
                    assert!(bytes == pattern(got, 1000), "record {got} of {side:?}");
                    got += 1;
                }
                None => {
                    let _ = sides.look();
                }
            }
            deadline.check("accepted records do not arrive");
        }
    }
}

/// The counters of a device count link changes, records and violations.
pub fn counters_count_what_happened<F: Fixture>(make: impl Fn() -> F) {
    let mut sides = Sides::up(make());
    for _ in 0..10 {
        sides.exchange(b"counted");
    }
    for side in BOTH {
        let stats = sides.device(side).stats();
        assert_eq!((stats.ups, stats.records_in), (1, 10), "{side:?}");
        assert_eq!((stats.corrupt, stats.violations), (0, 0), "{side:?}");
    }
    let downs = sides.device(Side::Host).stats().downs;
    sides.end(Side::Guest, false);
    let _ = sides.wait_down(Side::Host);
    sides.reopen(Side::Guest);
    sides.wait_up();
    let stats = sides.device(Side::Host).stats();
    assert_eq!((stats.ups, stats.downs), (2, downs + 1));
}

/// `len` bytes that are different for each `n`.
fn pattern(n: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (n as u8).wrapping_add((at >> 3) as u8).wrapping_mul(31))
        .collect()
}
