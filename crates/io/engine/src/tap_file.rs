//! What taps take as portions of a capture file (pcapng).

use std::time::{SystemTime, UNIX_EPOCH};

use carina_sys::monotonic_ns;
use carina_wire::pcapng::{Interface, Packet, Statistics, Writer};

use crate::tap::{Batch, TapReader, Tapped};

/// Writes the packets of taps into a file, with an interface for each tap.
pub struct TapFile {
    sources: Vec<Source>,
    /// None before the file has begun.
    writer: Option<Writer>,
    /// Wall clock less monotonic clock, in nanoseconds.
    epoch_ns: u64,
}

struct Source {
    reader: TapReader,
    interface: Interface,
    packets: u64,
}

impl TapFile {
    /// A file whose packets are those of these taps.
    #[must_use]
    pub fn new(taps: Vec<(TapReader, Interface)>) -> TapFile {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = since_1970.map_or(0, |time| time.as_nanos() as u64);
        let source = |(reader, interface)| Source {
            reader,
            interface,
            packets: 0,
        };
        TapFile {
            sources: taps.into_iter().map(source).collect(),
            writer: None,
            epoch_ns: wall_ns.wrapping_sub(monotonic_ns()),
        }
    }

    /// The next portion, its packets in the order of their times; empty when nothing has passed.
    /// The first has the head of the file in it and is never empty.
    #[must_use]
    pub fn portion(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let sources = &mut self.sources;
        let writer = self.writer.get_or_insert_with(|| {
            let mut writer = Writer::begin(&mut out);
            for source in sources.iter() {
                writer.interface(&mut out, &source.interface);
            }
            writer
        });
        let batches: Vec<Batch> = sources.iter().map(|source| source.reader.take()).collect();
        let numbered = batches.iter().enumerate();
        let mut all: Vec<(usize, Tapped<'_>)> = numbered
            .flat_map(|(number, batch)| batch.iter().map(move |tapped| (number, tapped)))
            .collect();
        all.sort_by_key(|(_, tapped)| tapped.time_ns);
        for (number, tapped) in all {
            let packet = Packet {
                interface: number as u32,
                time_ns: tapped.time_ns.wrapping_add(self.epoch_ns),
                direction: tapped.direction,
                bytes: tapped.bytes,
                original_bytes: u32::try_from(tapped.original_bytes).unwrap_or(u32::MAX),
            };
            sources[number].packets += u64::from(writer.packet(&mut out, &packet));
        }
        out
    }

    /// What the file ends with: how many packets each tap had, and how many of them it missed.
    #[must_use]
    pub fn end(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(writer) = &self.writer else {
            return out;
        };
        for (number, source) in self.sources.iter().enumerate() {
            let missed = source.reader.missed();
            let statistics = Statistics {
                interface: number as u32,
                time_ns: monotonic_ns().wrapping_add(self.epoch_ns),
                packets: source.packets + missed,
                missed,
            };
            writer.statistics(&mut out, &statistics);
        }
        out
    }

    /// True when nothing can pass any more: what the taps watched has gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sources.iter().all(|source| source.reader.is_over())
    }

    /// Packets in all portions so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.sources.iter().map(|source| source.packets).sum()
    }

    /// Packets that found no room so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = self.sources.iter().map(|source| source.reader.missed());
        missed.sum()
    }
}
