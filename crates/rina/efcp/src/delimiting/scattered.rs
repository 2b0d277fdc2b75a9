//! Reassembles SDUs whose fragments arrive in any order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_wire::Payload;

use super::counters::AssemblerCounters;

/// Incomplete SDUs, by SDU number, the oldest first.
#[derive(Debug)]
pub(super) struct Scattered<P> {
    sdus: VecDeque<Partial<P>>,
    bytes: usize,
    bytes_max: usize,
    /// Numbers of SDUs that were discarded. A late fragment must not start such an SDU again.
    discarded: VecDeque<u32>,
}

#[derive(Debug)]
struct Partial<P> {
    number: u32,
    /// Fragments with their offsets in bytes.
    pieces: Vec<(u32, P)>,
    bytes: usize,
    /// Length of the SDU in bytes; known once the last fragment has arrived.
    total: Option<u64>,
}

/// Largest number of SDUs that may be incomplete at the same time.
const SDUS_MAX: usize = 4096;

/// How many numbers of discarded SDUs are remembered.
const DISCARDED_MAX: usize = 64;

/// Largest number of fragments of one SDU.
const PIECES_MAX: usize = 8192;

impl<P: Payload> Scattered<P> {
    pub(super) fn new(bytes_max: usize) -> Scattered<P> {
        Scattered {
            sdus: VecDeque::new(),
            bytes: 0,
            bytes_max,
            discarded: VecDeque::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a fragment. Returns all fragments of its SDU once the SDU is complete.
    pub(super) fn add(
        &mut self,
        number: u32,
        offset: u32,
        is_last: bool,
        udf: P,
        counters: &mut AssemblerCounters,
    ) -> Option<Vec<P>> {
        if self.discarded.contains(&number) {
            return None;
        }
        let end = u64::from(offset) + udf.len() as u64;
        if udf.is_empty() && !is_last {
            counters.malformed += 1;
            return None;
        }
        if end > self.bytes_max as u64 {
            counters.too_long += 1;
            self.discard(number);
            return None;
        }
        let at = self.find(number, counters);
        let (partial, len) = (&mut self.sdus[at], udf.len());
        if !partial.add(offset, is_last, udf) {
            counters.malformed += 1;
            if partial.pieces.is_empty() {
                self.sdus.remove(at);
            }
            return None;
        }
        self.bytes += len;
        if partial.total == Some(partial.bytes as u64) {
            let whole = self.sdus.remove(at)?;
            self.bytes -= whole.bytes;
            return Some(whole.pieces.into_iter().map(|(_, piece)| piece).collect());
        }
        while self.bytes > self.bytes_max {
            let oldest = self.sdus.front()?.number;
            counters.incomplete += 1;
            self.discard(oldest);
        }
        None
    }

    /// Index of the SDU `number`. Starts the SDU if it is new.
    fn find(&mut self, number: u32, counters: &mut AssemblerCounters) -> usize {
        // Most fragments belong to the SDU that was started last.
        let is_before = |sdu: &Partial<P>| sdu.number.wrapping_sub(number).cast_signed() < 0;
        let mut at = match self.sdus.back() {
            Some(last) if last.number == number => self.sdus.len() - 1,
            _ => self.sdus.partition_point(is_before),
        };
        if self.sdus.get(at).is_some_and(|sdu| sdu.number == number) {
            return at;
        }
        if self.sdus.len() >= SDUS_MAX
            && let Some(oldest) = self.sdus.front().map(|sdu| sdu.number)
        {
            counters.incomplete += 1;
            self.discard(oldest);
            at = at.saturating_sub(1);
        }
        let partial = Partial {
            number,
            pieces: Vec::new(),
            bytes: 0,
            total: None,
        };
        self.sdus.insert(at, partial);
        at
    }

    fn discard(&mut self, number: u32) {
        if let Some(at) = self.sdus.iter().position(|sdu| sdu.number == number)
            && let Some(gone) = self.sdus.remove(at)
        {
            self.bytes -= gone.bytes;
        }
        if self.discarded.len() >= DISCARDED_MAX {
            self.discarded.pop_front();
        }
        self.discarded.push_back(number);
    }
}

impl<P: Payload> Partial<P> {
    /// Adds a fragment to the SDU. Returns false if it contradicts the fragments that have arrived.
    fn add(&mut self, offset: u32, is_last: bool, udf: P) -> bool {
        let end = u64::from(offset) + udf.len() as u64;
        let at = self.pieces.partition_point(|(other, _)| *other < offset);
        let after = self.pieces.get(at).map(|(other, _)| u64::from(*other));
        let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
        let before = before.map(|(other, piece)| u64::from(*other) + piece.len() as u64);
        let overlaps = before.is_some_and(|before| before > u64::from(offset))
            || after.is_some_and(|after| after < end || (is_last && after >= u64::from(offset)));
        let is_beyond = self.total.is_some_and(|total| is_last || end > total);
        if overlaps || is_beyond || self.pieces.len() >= PIECES_MAX {
            return false;
        }
        if is_last {
            self.total = Some(end);
        }
        self.bytes += udf.len();
        self.pieces.insert(at, (offset, udf));
        true
    }
}
