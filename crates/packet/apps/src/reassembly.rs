//! Reassembly of fragments, in bounded memory.
//!
//! If fragments overlap, their packet and all its further fragments are discarded (RFC 5722 §4). A
//! duplicate fragment is ignored. A reassembled packet gets the congestion mark that any of its
//! fragments received. It is discarded if another of its fragments is not ECN-capable (RFC 3168
//! §5.3). If there is no room for a further packet, a randomly chosen one is discarded. A sender
//! that never completes its packets therefore cannot occupy more than its share of the memory.

use std::collections::HashMap;
use std::hash::Hash;

use carina_time::{Duration, Instant};

use crate::congestion::{CE, NOT_ECT};

/// Limits of memory and time for the reassembly of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest number of packets that are incomplete at the same time.
    pub packets: usize,
    /// Largest number of fragments of one packet.
    pub fragments: usize,
    /// Largest number of bytes of all fragments, including the overhead of storing them.
    pub bytes: usize,
    /// Longest time that a packet may stay incomplete; then its fragments are dropped.
    pub time: Duration,
}

/// A fragment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Headers before the payload. The reassembled packet gets the headers of its first fragment.
    pub head: &'a [u8],
    /// Offset of this fragment's payload in the payload of the whole packet, in bytes.
    pub offset: usize,
    /// Whether this is the last fragment of the packet.
    pub is_last: bool,
    /// ECN field of the fragment's traffic class.
    pub ecn: u8,
    /// The payload of the fragment.
    pub payload: &'a [u8],
}

/// A reassembled packet, or the first fragment of a packet that stayed incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The headers of the first fragment.
    pub head: Vec<u8>,
    /// Payload of the packet, or of its first fragment.
    pub payload: Vec<u8>,
    /// Whether a router has marked congestion (ECN) in one of the fragments.
    pub is_marked: bool,
}

/// What [`Reassembly::add`] did with a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The fragment is stored; its packet is still incomplete.
    Kept,
    /// The fragment completed its packet.
    Complete(Whole),
    /// The fragment was a duplicate, or its packet was already discarded.
    PassedOver,
    /// The fragment and its packet are discarded.
    Discarded(Discard),
}

/// Why [`Reassembly`] discards all fragments of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Fragments overlap, or contradict each other about the end.
    Overlap,
    /// A fragment has no payload; or it is not the last one, and its length is not a multiple of 8.
    Length,
    /// The packet would be too long for IP.
    TooLong,
    /// The packet has more fragments than allowed.
    TooMany,
    /// A fragment has met congestion, and another is not ECN-capable.
    Congested,
}

/// Length of the longest payload of an IP packet, in bytes.
const PAYLOAD_MAX: usize = 65_535;
/// Overhead of storing a packet and a fragment, in bytes.
const PACKET_BYTES: usize = 256;
const FRAGMENT_BYTES: usize = 64;

/// Incomplete packets; a key of type `K` identifies each.
#[derive(Clone, Debug)]
pub struct Reassembly<K> {
    bounds: Bounds,
    /// Index of each packet in `packets`.
    places: HashMap<K, usize>,
    packets: Vec<Packet<K>>,
    bytes: usize,
    evicted: u64,
}

#[derive(Clone, Debug)]
struct Packet<K> {
    key: K,
    began: Instant,
    /// The headers of the first fragment, once it has arrived.
    head: Option<Vec<u8>>,
    /// Offset and payload of the fragments, in order and without overlaps.
    parts: Vec<(usize, Vec<u8>)>,
    payload_bytes: usize,
    /// Length of the whole payload, once the last fragment has arrived.
    end: Option<usize>,
    /// Bit n is set if a fragment had the ECN value n.
    ecn_values: u8,
    is_discarded: bool,
}

impl<K: Copy + Eq + Hash> Reassembly<K> {
    /// Makes a reassembly with these limits and without fragments.
    #[must_use]
    pub fn new(bounds: Bounds) -> Reassembly<K> {
        Reassembly {
            bounds,
            places: HashMap::new(),
            packets: Vec::new(),
            bytes: 0,
            evicted: 0,
        }
    }

    /// Bytes of the stored fragments, including the overhead of storing them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of packets that were discarded to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Adds a fragment at time `now`. `random` returns random numbers, by which the packet to
    /// discard is chosen if there is no room.
    pub fn add(
        &mut self,
        key: K,
        fragment: &Fragment<'_>,
        now: Instant,
        random: impl Fn() -> u64,
    ) -> Outcome {
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => match self.begin(key, now, &random) {
                Some(place) => place,
                None => return Outcome::Discarded(Discard::TooMany),
            },
        };
        let packet = &mut self.packets[place];
        if packet.is_discarded {
            return Outcome::PassedOver;
        }
        let added = packet.add(fragment, self.bounds.fragments);
        match added {
            Added::Again => Outcome::PassedOver,
            Added::Wrong(why) => {
                self.bytes -= packet.discard();
                Outcome::Discarded(why)
            }
            Added::Bytes(bytes) => {
                self.bytes += bytes;
                if self.packets[place].is_complete() {
                    let packet = self.take(place);
                    return if packet.has_met_congestion() && packet.has_no_ect() {
                        Outcome::Discarded(Discard::Congested)
                    } else {
                        Outcome::Complete(packet.whole())
                    };
                }
                self.make_room(key, &random)
            }
        }
    }

    fn begin(&mut self, key: K, now: Instant, random: &impl Fn() -> u64) -> Option<usize> {
        if self.bounds.packets == 0 {
            return None;
        }
        if self.packets.len() >= self.bounds.packets {
            self.evict(random);
        }
        let place = self.packets.len();
        self.places.insert(key, place);
        self.packets.push(Packet {
            key,
            began: now,
            head: None,
            parts: Vec::new(),
            payload_bytes: 0,
            end: None,
            ecn_values: 0,
            is_discarded: false,
        });
        self.bytes += PACKET_BYTES;
        Some(place)
    }

    fn evict(&mut self, random: &impl Fn() -> u64) {
        let place = (random() % self.packets.len() as u64) as usize;
        self.take(place);
        self.evicted += 1;
    }

    /// Discards packets until the limit of bytes is met, possibly even the packet with this key.
    fn make_room(&mut self, key: K, random: &impl Fn() -> u64) -> Outcome {
        while self.bytes > self.bounds.bytes && !self.packets.is_empty() {
            self.evict(random);
        }
        if self.places.contains_key(&key) {
            Outcome::Kept
        } else {
            Outcome::PassedOver
        }
    }

    fn take(&mut self, place: usize) -> Packet<K> {
        let packet = self.packets.swap_remove(place);
        self.places.remove(&packet.key);
        if let Some(moved) = self.packets.get(place) {
            self.places.insert(moved.key, place);
        }
        self.bytes -= packet.bytes();
        packet
    }

    /// Discards packets that have been incomplete for too long; passes the key of each to `each`,
    /// with its first fragment if that has arrived. Examines all packets, so call it about once a
    /// second.
    pub fn expire(&mut self, now: Instant, mut each: impl FnMut(K, Option<Whole>)) {
        let mut place = 0;
        while let Some(packet) = self.packets.get(place) {
            if now.since(packet.began) < self.bounds.time {
                place += 1;
                continue;
            }
            let packet = self.take(place);
            if !packet.is_discarded {
                each(packet.key, packet.first());
            }
        }
    }
}

/// What happened with a fragment within its packet.
enum Added {
    /// The fragment is stored, and occupies this many bytes.
    Bytes(usize),
    /// The fragment was a duplicate.
    Again,
    Wrong(Discard),
}

impl<K> Packet<K> {
    fn add(&mut self, fragment: &Fragment<'_>, fragments_max: usize) -> Added {
        let &Fragment {
            head,
            offset,
            is_last,
            ecn,
            payload,
        } = fragment;
        let end = offset + payload.len();
        if payload.is_empty() || (!is_last && !payload.len().is_multiple_of(8)) {
            return Added::Wrong(Discard::Length);
        }
        if end > PAYLOAD_MAX {
            return Added::Wrong(Discard::TooLong);
        }
        let at = self.parts.partition_point(|(start, _)| *start < offset);
        if let Some((start, bytes)) = self.parts.get(at)
            && *start == offset
            && bytes == payload
        {
            return Added::Again;
        }
        let before = at.checked_sub(1).and_then(|at| self.parts.get(at));
        let overlaps = before.is_some_and(|(start, bytes)| start + bytes.len() > offset)
            || self.parts.get(at).is_some_and(|(start, _)| *start < end);
        let is_behind_end = match self.end {
            Some(known) => end > known || is_last,
            None => {
                let last = self.parts.last();
                is_last && last.is_some_and(|(start, bytes)| start + bytes.len() > end)
            }
        };
        if overlaps || is_behind_end {
            return Added::Wrong(Discard::Overlap);
        }
        if self.parts.len() >= fragments_max {
            return Added::Wrong(Discard::TooMany);
        }
        let mut bytes = payload.len() + FRAGMENT_BYTES;
        if offset == 0 {
            self.head = Some(head.to_vec());
            bytes += head.len();
        }
        if is_last {
            self.end = Some(end);
        }
        self.ecn_values |= 1 << (ecn & 3);
        self.payload_bytes += payload.len();
        self.parts.insert(at, (offset, payload.to_vec()));
        Added::Bytes(bytes)
    }

    fn has_met_congestion(&self) -> bool {
        self.ecn_values & 1 << CE != 0
    }

    fn has_no_ect(&self) -> bool {
        self.ecn_values & 1 << NOT_ECT != 0
    }

    fn is_complete(&self) -> bool {
        self.end == Some(self.payload_bytes)
    }

    fn bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, Vec::len);
        PACKET_BYTES + self.parts.len() * FRAGMENT_BYTES + self.payload_bytes + head
    }

    /// Discards the fragments; returns the number of bytes that this freed.
    fn discard(&mut self) -> usize {
        let bytes = self.bytes();
        self.parts = Vec::new();
        self.head = None;
        self.payload_bytes = 0;
        self.is_discarded = true;
        bytes - self.bytes()
    }

    fn whole(self) -> Whole {
        let mut payload = Vec::with_capacity(self.payload_bytes);
        for (_, bytes) in &self.parts {
            payload.extend_from_slice(bytes);
        }
        Whole {
            is_marked: self.has_met_congestion(),
            head: self.head.unwrap_or_default(),
            payload,
        }
    }

    fn first(self) -> Option<Whole> {
        let is_marked = self.has_met_congestion();
        let (_, payload) = self.parts.into_iter().next()?;
        self.head.map(|head| Whole {
            head,
            payload,
            is_marked,
        })
    }
}

#[cfg(test)]
mod tests;
