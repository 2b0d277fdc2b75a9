//! The simulation: two ends, a channel in each direction, and a virtual clock.

use std::collections::BTreeMap;

use carina_efcp::{ConnEvent, Connection, ConnectionConfig, Delivered, Transmit};
use carina_random::SplitMix;
use carina_time::Instant;
use carina_wire::dif::{Address, CepId, Control, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax};
use carina_wire::{Bytes, Payload};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;

/// Random numbers that decide what a channel does.
#[derive(Clone)]
pub(super) struct Random(SplitMix);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(SplitMix::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn rarely(&mut self, share: u64) -> bool {
        share > 0 && self.below(10_000) < share
    }
}

/// Impairments of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub loss_percent: u64,
    pub repeat_percent: u64,
    /// Percentage of PDUs that are delayed by up to `jitter_ns` more than others.
    pub reorder_percent: u64,
    pub jitter_ns: u64,
    pub delay_ns: u64,
    pub mark_percent: u64,
}

/// Impairments that are rarer than one percent, in 1/10,000. A share of 0 draws no random number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rare {
    pub lost: u64,
    pub repeated: u64,
    /// PDUs without delay, which overtake all PDUs on the channel.
    pub overtaking: u64,
}

/// A PDU on the channel.
#[derive(Clone)]
pub(super) struct Pdu {
    pub pci: Pci,
    pub control: Option<Control>,
    pub udf: Option<Bytes>,
}

pub(super) fn pdu(transmit: Transmit<Bytes>) -> Pdu {
    Pdu {
        pci: Pci {
            kind: transmit.kind,
            dst: Address(2),
            src: Address(1),
            qos: QosId(1),
            dst_cep: CepId(1),
            src_cep: CepId(1),
            drf: transmit.drf,
            ecn: false,
            seq: transmit.seq,
        },
        control: transmit.control,
        udf: transmit.udf,
    }
}

/// One end of the connection, and the state of its reader.
pub(super) struct End {
    pub conn: Connection<Bytes>,
    pub delivered: Vec<Delivered<Bytes>>,
    pub events: Vec<ConnEvent>,
    /// How many UDFs the reader fetches; `None` for all.
    pub appetite: Option<usize>,
}

pub(super) struct World {
    pub now: u64,
    pub ends: [End; 2],
    pub weather: Weather,
    pub rare: Rare,
    pub random: Random,
    /// PDUs on the channel, by time of arrival and a counter: the end they go to.
    pub wire: BTreeMap<(u64, u64), (usize, Pdu)>,
    count: u64,
    /// Running hash of all PDUs sent and UDFs delivered.
    pub trace: u64,
    /// Largest number of PDUs that were on the channel at once.
    pub wire_max: usize,
    pub lost: u64,
    /// Time in ns that the channel needs for one PDU, in each direction; 0 for no limit.
    pub pdu_ns: u64,
    busy_until: [u64; 2],
    pub drop_tail: usize,
    /// If set, PDUs are encoded and decoded in this concrete syntax.
    pub syntax: Option<Syntax>,
}

impl World {
    pub(super) fn new(seed: u64, weather: Weather, config: impl Fn() -> ConnectionConfig) -> World {
        let end = |side: u64| End {
            conn: Connection::new(Instant::ZERO, config(), seed ^ side),
            delivered: Vec::new(),
            events: Vec::new(),
            appetite: None,
        };
        World {
            now: S,
            ends: [end(1), end(2)],
            weather,
            rare: Rare::default(),
            random: Random::new(seed),
            wire: BTreeMap::new(),
            count: 0,
            trace: 0,
            wire_max: 0,
            lost: 0,
            pdu_ns: 0,
            busy_until: [0; 2],
            drop_tail: usize::MAX,
            syntax: None,
        }
    }

    fn note(&mut self, value: u64) {
        self.trace = (self.trace ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(7);
    }

    /// Puts a PDU on the channel towards end `to`.
    pub(super) fn send(&mut self, to: usize, mut pdu: Pdu) {
        let Weather {
            loss_percent,
            repeat_percent,
            reorder_percent,
            jitter_ns,
            delay_ns,
            mark_percent,
        } = self.weather;
        let rare = self.rare;
        if let Some(syntax) = self.syntax {
            pdu = through(syntax, pdu);
        }
        self.note(pdu.pci.seq ^ (to as u64) << 60 ^ self.now);
        if self.random.rarely(rare.lost) {
            self.lost += 1;
            return;
        }
        let is_overtaking = self.random.rarely(rare.overtaking);
        let delay_ns = if is_overtaking { 0 } else { delay_ns };
        let repeated = self.random.percent(repeat_percent) | self.random.rarely(rare.repeated);
        let copies = 1 + u64::from(repeated);
        for _ in 0..copies {
            if self.random.percent(loss_percent) {
                self.lost += 1;
                continue;
            }
            let mut at = self.now + delay_ns;
            if self.pdu_ns > 0 && pdu.pci.kind == PduType::Data {
                let queued = self.busy_until[to].saturating_sub(self.now) / self.pdu_ns;
                if queued as usize >= self.drop_tail {
                    self.lost += 1;
                    continue;
                }
                if self.weather.mark_percent > 0 && queued as usize >= self.drop_tail / 8 {
                    pdu.pci.ecn = true;
                }
                self.busy_until[to] = self.busy_until[to].max(self.now) + self.pdu_ns;
                at = self.busy_until[to] + delay_ns;
            } else if self.random.percent(mark_percent) {
                pdu.pci.ecn = true;
            }
            if self.random.percent(reorder_percent) {
                at += self.random.below(jitter_ns);
            }
            self.count += 1;
            self.wire.insert((at, self.count), (to, pdu.clone()));
        }
        self.wire_max = self.wire_max.max(self.wire.len());
    }

    /// Fetches all PDUs, UDFs and events of an end.
    pub(super) fn drain(&mut self, side: usize) {
        for turn in 0..2 {
            let mut sent = 0;
            while let Some(transmit) = self.ends[side]
                .conn
                .poll_transmit(Instant::from_nanos(self.now))
            {
                sent += 1;
                assert!(sent < 100_000, "sends without end");
                self.send(1 - side, pdu(transmit));
            }
            let now = self.now;
            let end = &mut self.ends[side];
            let taken = end.delivered.len();
            while end
                .appetite
                .is_none_or(|appetite| end.delivered.len() < appetite)
                && let Some(delivered) = end.conn.poll_deliver()
            {
                end.delivered.push(delivered);
            }
            for index in taken..self.ends[side].delivered.len() {
                let seq = self.ends[side].delivered[index].seq;
                self.note(seq ^ now);
            }
            let end = &mut self.ends[side];
            end.events
                .extend(std::iter::from_fn(|| end.conn.poll_event()));
            if turn == 0 {
                end.conn.end_of_burst(Instant::from_nanos(now));
            }
        }
    }

    /// Time of the next event: an arrival or a timer.
    pub(super) fn next_at(&self) -> Option<u64> {
        let timers = self
            .ends
            .iter()
            .filter_map(|end| Some(end.conn.poll_timeout()?.as_nanos()));
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        timers.chain(arrival).min().map(|at| at.max(self.now))
    }

    /// Advances to the next event and processes it. Returns false if no event is due by `until`.
    pub(super) fn step(&mut self, until: u64) -> bool {
        let Some(at) = self.next_at().filter(|at| *at <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = at;
        let mut touched = [false; 2];
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= at
        {
            let (to, pdu) = entry.remove();
            touched[to] = true;
            // The connection counts discarded PDUs.
            let _ = self.ends[to].conn.receive(
                Instant::from_nanos(at),
                &pdu.pci,
                pdu.control.as_ref(),
                pdu.udf,
            );
        }
        for (side, is_touched) in touched.iter_mut().enumerate() {
            let timeout = self.ends[side].conn.poll_timeout();
            if timeout.is_some_and(|timeout| timeout <= Instant::from_nanos(at)) {
                self.ends[side].conn.handle_timeout(Instant::from_nanos(at));
                let next = self.ends[side].conn.poll_timeout();
                assert!(
                    next.is_none_or(|next| next > Instant::from_nanos(at)),
                    "due again at once"
                );
                *is_touched = true;
            }
            if *is_touched {
                self.drain(side);
            }
        }
        true
    }

    /// Runs the simulation for `for_ns`.
    pub(super) fn run(&mut self, for_ns: u64) {
        let until = self.now + for_ns;
        let mut steps = 0_u64;
        while self.step(until) {
            steps += 1;
            assert!(
                steps < 3_000_000,
                "time stands still at {}: {:#?}",
                self.now,
                self.ends[0].conn
            );
        }
    }

    /// Writes UDFs with the numbers `from` to `to` (exclusive) at `side`, as fast as the connection
    /// accepts them, until all are written or `for_ns` has passed. Returns the next number to
    /// write.
    pub(super) fn write(&mut self, side: usize, from: u64, to: u64, for_ns: u64) -> u64 {
        let until = self.now + for_ns;
        let mut next = from;
        let mut steps = 0_u64;
        loop {
            while next < to && self.ends[side].conn.room() > 0 {
                let udf = Bytes::from(next.to_be_bytes().to_vec());
                if self.ends[side]
                    .conn
                    .write(Instant::from_nanos(self.now), udf)
                    .is_err()
                {
                    break;
                }
                next += 1;
            }
            self.drain(side);
            steps += 1;
            assert!(steps < 5_000_000, "time stands still at {}", self.now);
            if next >= to || !self.step(until) {
                return next;
            }
        }
    }

    /// The numbers that the reader of an end received.
    pub(super) fn numbers(&self, side: usize) -> Vec<u64> {
        self.ends[side]
            .delivered
            .iter()
            .map(|d| number(&d.udf))
            .collect()
    }
}

/// Encodes and decodes a PDU's header, so that only what the syntax carries remains.
fn through(syntax: Syntax, pdu: Pdu) -> Pdu {
    let mut bytes = [0; PCI_BYTES_MAX];
    let user = pdu.udf.as_ref().map_or(0, Payload::len);
    let control = pdu.control.as_ref();
    let length = syntax
        .encode(&pdu.pci, control, user, 64, &mut bytes)
        .expect("a PDU that the layout has");
    let bytes = &bytes[..length];
    let header = syntax.decode(bytes, length + user).expect("a PDU");
    let control = control.map(|_| syntax.decode_control(bytes, &header).expect("control"));
    Pdu {
        pci: header.pci,
        control,
        udf: pdu.udf,
    }
}

/// The number that a UDF contains.
pub(super) fn number(udf: &Bytes) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(udf.copy_prefix(&mut bytes), 8);
    u64::from_be_bytes(bytes)
}
