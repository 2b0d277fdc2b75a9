//! Copies of packets for captures.
//!
//! The data plane never waits for a capture. Packets are copied into a bounded batch. A packet that
//! finds no room, or passes while the batch is being taken, is counted as missed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use carina_sys::monotonic_ns;
use carina_wire::pcapng::Direction;
use carina_wire::{Bytes, Payload};

/// The data plane's end of a capture, into which it copies passing packets. The capture ends when
/// its [`TapReader`] is dropped.
#[derive(Debug)]
pub struct Tap {
    shared: Arc<Shared>,
    snap_bytes: usize,
}

/// The reader's end of a capture, from which a program takes the copies of packets.
#[derive(Debug)]
pub struct TapReader {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    batch: Mutex<Batch>,
    missed: AtomicU64,
}

/// Copies of packets that a [`TapReader`] took at once, in the order in which they passed.
#[derive(Debug, Default)]
pub struct Batch {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Record {
    time_ns: u64,
    direction: Direction,
    original: usize,
    /// Offset at which the record's bytes end; they begin where the previous record ends.
    end: usize,
}

/// The copy of one packet, with its time and direction.
#[derive(Debug, PartialEq, Eq)]
pub struct Tapped<'a> {
    /// Time at which the packet passed, by the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Direction in which the packet passed.
    pub direction: Direction,
    /// The first bytes of the packet, as many as the capture keeps.
    pub bytes: &'a [u8],
    /// Length of the whole packet in bytes, including bytes that the capture did not keep.
    pub original_bytes: usize,
}

impl Tap {
    /// Creates the two ends of a capture that keeps the first `snap_bytes` bytes of each packet.
    #[must_use]
    pub fn new(snap_bytes: usize) -> (Tap, TapReader) {
        let shared = Arc::new(Shared::default());
        let reader = TapReader {
            shared: Arc::clone(&shared),
        };
        (Tap { shared, snap_bytes }, reader)
    }

    /// Copies a packet that begins with `head`. Returns false if the reader is gone.
    pub(crate) fn note<P: Payload>(
        &self,
        direction: Direction,
        head: &[u8],
        rest: Option<&P>,
    ) -> bool {
        if Arc::strong_count(&self.shared) == 1 {
            return false;
        }
        let rest_bytes = rest.map_or(0, Payload::len);
        let original = head.len() + rest_bytes;
        let head = &head[..head.len().min(self.snap_bytes)];
        let kept = rest_bytes.min(self.snap_bytes - head.len());
        let mut batch = match self.shared.batch.try_lock() {
            Ok(batch) => batch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.miss(),
        };
        let start = batch.bytes.len();
        let is_full = start + head.len() + kept > BATCH_BYTES_MAX;
        if is_full || batch.records.len() >= BATCH_PACKETS_MAX {
            return self.miss();
        }
        batch.bytes.extend_from_slice(head);
        let from = batch.bytes.len();
        batch.bytes.resize(from + kept, 0);
        if let Some(rest) = rest {
            rest.copy_prefix(&mut batch.bytes[from..]);
        }
        let end = batch.bytes.len();
        batch.records.push(Record {
            time_ns: monotonic_ns(),
            direction,
            original,
            end,
        });
        true
    }

    fn miss(&self) -> bool {
        self.shared.missed.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl TapReader {
    /// Whether the capture has ended because the captured object no longer exists.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Takes the copies of packets that have passed since the last call; does not wait.
    #[must_use]
    pub fn take(&self) -> Batch {
        let lock = self.shared.batch.lock();
        std::mem::take(&mut lock.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how many packets passed since the capture began without being copied, because there
    /// was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }
}

impl Batch {
    /// Whether the batch has no packets, because none has passed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the packets, in the order in which they passed.
    pub fn iter(&self) -> impl Iterator<Item = Tapped<'_>> {
        let mut start = 0;
        self.records.iter().map(move |record| {
            let bytes = &self.bytes[start..record.end];
            start = record.end;
            Tapped {
                time_ns: record.time_ns,
                direction: record.direction,
                bytes,
                original_bytes: record.original,
            }
        })
    }
}

/// The taps at one point of the data plane.
#[derive(Debug, Default)]
pub(crate) struct TapList(Vec<Tap>);

impl TapList {
    /// Adds a tap. If there are too many, the oldest is removed.
    pub(crate) fn add(&mut self, tap: Tap) {
        self.0.retain(|tap| Arc::strong_count(&tap.shared) > 1);
        if self.0.len() >= TAPS_MAX {
            self.0.remove(0);
        }
        self.0.push(tap);
    }

    /// Whether any capture is running.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.0.is_empty()
    }

    /// Copies a packet that begins with `head` to the taps.
    #[cold]
    pub(crate) fn copy<P: Payload>(&mut self, direction: Direction, head: &[u8], rest: Option<&P>) {
        self.0.retain(|tap| tap.note(direction, head, rest));
    }

    /// Copies a packet to the taps.
    #[cold]
    pub(crate) fn copy_bytes(&mut self, direction: Direction, bytes: &[u8]) {
        self.copy::<Bytes>(direction, bytes, None);
    }
}

/// The captures that run on one IPCP. The data plane, which adds taps, shares them with the IPCP's
/// app.
#[derive(Clone, Default)]
pub struct Taps(Rc<RefCell<TapList>>);

impl Taps {
    /// Adds a tap: starts a capture. If there are too many, the oldest is removed.
    pub fn add(&self, tap: Tap) {
        self.0.borrow_mut().add(tap);
    }

    /// Whether any capture of the IPCP is running.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.borrow().is_on()
    }

    /// Copies a packet that consists of the bytes `head` and the payload `rest` to all taps.
    #[inline]
    pub fn note<P: Payload>(&self, direction: Direction, head: &[u8], rest: &P) {
        if self.is_on() {
            self.0.borrow_mut().copy(direction, head, Some(rest));
        }
    }

    /// Copies a packet to all taps.
    #[inline]
    pub fn note_bytes(&self, direction: Direction, bytes: &[u8]) {
        if self.is_on() {
            self.0.borrow_mut().copy_bytes(direction, bytes);
        }
    }
}

/// Largest number of bytes that wait for the reader.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Largest number of packets that wait for the reader.
const BATCH_PACKETS_MAX: usize = 1 << 17;

/// Largest number of captures at one point at the same time.
const TAPS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> Bytes {
        Bytes::from(bytes.to_vec())
    }

    #[test]
    fn packets_are_copied_up_to_the_snap_length() {
        let taps = Taps::default();
        taps.note(Direction::In, b"before", &packet(b"anybody looks"));
        let (tap, reader) = Tap::new(6);
        taps.add(tap);
        taps.note(Direction::In, b"head", &packet(b"payload"));
        taps.note(Direction::Out, b"longhead", &packet(b"payload"));
        taps.note_bytes(Direction::Out, b"abc");
        let batch = reader.take();
        let seen: Vec<_> = batch
            .iter()
            .map(|packet| (packet.direction, packet.bytes, packet.original_bytes))
            .collect();
        let expected = [
            (Direction::In, &b"headpa"[..], 11),
            (Direction::Out, b"longhe", 15),
            (Direction::Out, b"abc", 3),
        ];
        assert_eq!(seen, expected);
        assert!(reader.take().is_empty());
        assert_eq!(reader.missed(), 0);
    }

    #[test]
    fn a_reader_that_is_slow_or_gone_costs_the_data_plane_nothing() {
        let taps = Taps::default();
        let (tap, reader) = Tap::new(usize::MAX);
        taps.add(tap);
        let large = vec![7; BATCH_BYTES_MAX / 2 + 1];
        for _ in 0..3 {
            taps.note_bytes(Direction::In, &large);
        }
        assert_eq!((reader.take().iter().count(), reader.missed()), (1, 2));
        {
            let _taking = reader.shared.batch.lock();
            taps.note_bytes(Direction::In, b"x");
        }
        assert_eq!(reader.missed(), 3);
        drop(reader);
        taps.note_bytes(Direction::In, b"x");
        assert!(!taps.is_on());
        for _ in 0..20 {
            taps.add(Tap::new(1).0);
        }
        assert!(taps.0.borrow().0.len() <= TAPS_MAX);
    }
}
