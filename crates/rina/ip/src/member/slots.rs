//! Buffers for a burst of packets, with space in front of each for its headers.

use carina_netdev::{MAC_HEADER_BYTES, Tap, TapResult, VNET_HEADER_BYTES};

/// The buffers of a member, which are allocated once.
#[derive(Debug, Default)]
pub(super) struct Slots {
    bytes: Vec<u8>,
    results: Vec<TapResult>,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots {
            bytes: vec![0; BURST * SLOT_BYTES],
            results: Vec::with_capacity(BURST),
        }
    }

    /// Reads a burst of packets from the kernel. Returns the outcome for each slot.
    pub(super) fn read(&mut self, tap: &mut Tap) -> Vec<TapResult> {
        let mut results = std::mem::take(&mut self.results);
        results.clear();
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).filter_map(|slot| {
            let (front, packet) = slot.split_at_mut(MAC_HEADER_BYTES);
            let header = front.last_chunk_mut::<VNET_HEADER_BYTES>()?;
            Some((header, packet))
        });
        results.extend(tap.read(slots));
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

    /// The bytes of all slots.
    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(SLOT_BYTES)
    }
}

/// Number of packets that are moved between two looks at other descriptors.
pub(super) const BURST: usize = 32;
/// Space for the headers and a packet of 64 KiB, in a multiple of a cache line.
const SLOT_BYTES: usize = (MAC_HEADER_BYTES + (1 << 16)).next_multiple_of(64);
