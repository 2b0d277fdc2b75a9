//! Buffers for a burst of packets, with space in front of each for its headers.

use carina_netdev::{MAC_HEADER_BYTES, Tap, TapResult, VNET_HEADER_BYTES};

/// The buffers of a member, which are allocated once.
#[derive(Debug, Default)]
pub(super) struct Slots {
    bytes: Vec<u8>,
    results: Vec<TapResult>,
    /// Number of packets to ask the kernel for: each that does not wait costs a part of a call.
    wanted: usize,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots {
            bytes: vec![0; BURST * SLOT_BYTES],
            results: Vec::with_capacity(BURST),
            wanted: WANTED_MIN,
        }
    }

    /// Reads a burst of packets from the kernel. Returns the outcome for each slot that was
    /// offered.
    pub(super) fn read(&mut self, tap: &mut Tap) -> Vec<TapResult> {
        let mut results = std::mem::take(&mut self.results);
        results.clear();
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).filter_map(|slot| {
            let (front, packet) = slot.split_at_mut(MAC_HEADER_BYTES);
            let header = front.last_chunk_mut::<VNET_HEADER_BYTES>()?;
            Some((header, packet))
        });
        results.extend(tap.read(slots.take(self.wanted)));
        let is_done = |result: &&TapResult| matches!(result, TapResult::Done(_));
        let done = results.iter().filter(is_done).count();
        self.wanted = if done == self.wanted {
            (self.wanted * 2).min(BURST)
        } else {
            (done * 2).clamp(WANTED_MIN, self.wanted.max(WANTED_MIN))
        };
        results
    }

    /// Keeps the list of outcomes for the next burst.
    pub(super) fn put_back(&mut self, results: Vec<TapResult>) {
        self.results = results;
    }

    /// The packet of a slot behind [`MAC_HEADER_BYTES`] bytes, the last ten of which are the header
    /// that came with the packet.
    pub(super) fn packet(&mut self, slot: usize, length: usize) -> &mut [u8] {
        let end = (MAC_HEADER_BYTES + length).min(SLOT_BYTES);
        &mut self.bytes[slot * SLOT_BYTES..][..end]
    }

    /// The bytes of a slot.
    pub(super) fn slot(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * SLOT_BYTES..][..SLOT_BYTES]
    }

    /// The bytes of two slots, of which the first has the lower number.
    pub(super) fn two(&mut self, first: usize, second: usize) -> (&mut [u8], &mut [u8]) {
        let (before, from) = self.bytes.split_at_mut(second * SLOT_BYTES);
        (
            &mut before[first * SLOT_BYTES..][..SLOT_BYTES],
            &mut from[..SLOT_BYTES],
        )
    }

    /// The space of the first slot for a packet and, in front of it, the kernel's header.
    pub(super) fn whole_message(&mut self) -> &mut [u8] {
        &mut self.bytes[MAC_HEADER_BYTES - VNET_HEADER_BYTES..][..MESSAGE_BYTES_MAX]
    }

    /// The bytes of all slots.
    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(SLOT_BYTES)
    }
}

/// Number of packets that are moved between two looks at other descriptors.
pub(super) const BURST: usize = 32;
/// Space for the headers and a packet of 64 KiB, in a multiple of a cache line.
const SLOT_BYTES: usize = (MAC_HEADER_BYTES + (1 << 16)).next_multiple_of(64);
/// Fewest packets to ask the kernel for.
const WANTED_MIN: usize = 4;
/// Length of the longest packet with the kernel's header, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = VNET_HEADER_BYTES + 65_535;
