//! Capture files (pcapng) from taps, written in portions.

use std::time::{SystemTime, UNIX_EPOCH};

use carina_sys::monotonic_ns;
use carina_wire::pcapng::{Interface, Packet, Statistics, Writer};

use crate::tap::{Batch, TapReader, Tapped};

/// Formats the packets of taps as a capture file, with an interface for each tap.
pub struct TapFile {
    sources: Vec<Source>,
    /// `None` until the first portion was written.
    writer: Option<Writer>,
    /// Wall clock minus monotonic clock, in nanoseconds.
    epoch_ns: u64,
}

struct Source {
    reader: TapReader,
    interface: Interface,
    packets: u64,
}

impl TapFile {
    /// Makes a capture file for these taps; nothing is written to disk.
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

    /// Returns the next portion of the file, with its packets sorted by time; empty if no packet
    /// has passed. The first portion has the header of the file and is never empty.
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

    /// Returns the last bytes of the file: for each tap the number of packets, and how many it
    /// missed.
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

    /// Whether no more packets can pass, because the captured objects no longer exist.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sources.iter().all(|source| source.reader.is_over())
    }

    /// Returns the number of packets in all portions so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.sources.iter().map(|source| source.packets).sum()
    }

    /// Returns how many packets passed so far without being copied, because there was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = self.sources.iter().map(|source| source.reader.missed());
        missed.sum()
    }
}
