//! What a tap takes as portions of a capture file (pcapng).

use std::time::{SystemTime, UNIX_EPOCH};

use carina_sys::monotonic_ns;
use carina_wire::pcapng::{Interface, Packet, Writer};

use crate::tap::TapReader;

/// Writes the packets of one tap into a file of one interface.
pub struct TapFile {
    reader: TapReader,
    interface: Interface,
    /// None before the file has begun.
    writer: Option<Writer>,
    /// Wall clock less monotonic clock, in nanoseconds.
    epoch_ns: u64,
    packets: u64,
}

impl TapFile {
    /// A file whose packets are those of `reader`.
    #[must_use]
    pub fn new(reader: TapReader, interface: Interface) -> TapFile {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = since_1970.map_or(0, |time| time.as_nanos() as u64);
        TapFile {
            reader,
            interface,
            writer: None,
            epoch_ns: wall_ns.wrapping_sub(monotonic_ns()),
            packets: 0,
        }
    }

    /// The next portion; empty when nothing has passed. The first has the head of the file in it
    /// and is never empty.
    #[must_use]
    pub fn portion(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let interface = &self.interface;
        let writer = self.writer.get_or_insert_with(|| {
            let mut writer = Writer::begin(&mut out);
            writer.interface(&mut out, interface);
            writer
        });
        for tapped in self.reader.take().iter() {
            let packet = Packet {
                interface: 0,
                time_ns: tapped.time_ns.wrapping_add(self.epoch_ns),
                direction: tapped.direction,
                bytes: tapped.bytes,
                original_bytes: u32::try_from(tapped.original_bytes).unwrap_or(u32::MAX),
            };
            self.packets += u64::from(writer.packet(&mut out, &packet));
        }
        out
    }

    /// Packets in all portions so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that found no room so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.reader.missed()
    }
}
