//! A ring within this process: records on one end, bytes for or from the virtqueue at the other.
//!
//! ```text
//!   VMPI-HL -> reserve, commit -> [ pipe ] -> run, step ------> buffers of the virtqueue
//!   VMPI-HL <- next, release ---- [ pipe ] <- stretch, commit - buffers of the virtqueue
//! ```
//!
//! Indices and armed words belong to this process alone; only the data of a driver half's pipes
//! lies in memory that the device sees. What a peer wrote is therefore judged where the records are
//! taken out of the pipe, by the same checks as in a ring that is shared.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_ring::{
    Consumer, Corrupt, Lease, Producer, RECORD_HEADER_BYTES, RingMap, Run, WakeMode,
};
use carina_sys::Memory;

/// Both ends of such a ring.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) put: Producer,
    take: Consumer,
    /// Where gaps that were stepped over begin and end, as far as their room is not given back.
    gaps: VecDeque<(u64, u64)>,
    /// This end makes gaps; the peer cannot.
    has_gaps: bool,
}

impl Pipe {
    /// A pipe in memory of its own.
    pub(super) fn own(capacity: usize) -> io::Result<Pipe> {
        let memory = Memory::anonymous("carina-vmpi-pipe", capacity)?;
        Pipe::at(memory.as_fd(), 0, capacity)
    }

    /// A pipe whose data lies at an offset of a file.
    pub(super) fn at(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Pipe> {
        let map = Arc::new(RingMap::with_own_header(fd, offset, capacity)?);
        // One thread at a time has both ends: no order is needed between them.
        Ok(Pipe {
            put: Producer::fresh(Arc::clone(&map), WakeMode::Light),
            take: Consumer::of_stream(map, WakeMode::Light),
            gaps: VecDeque::new(),
            has_gaps: false,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.put.capacity()
    }

    /// Bytes for which there is room.
    pub(super) fn room(&mut self) -> usize {
        self.put.free_bytes().expect(OWN_INDICES)
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        self.skip_gaps()?;
        self.take.next()
    }

    /// Whether a whole record waits, or what cannot be one.
    pub(super) fn has_record(&mut self) -> bool {
        self.skip_gaps().is_err() || !matches!(self.take.peek(), Ok(None))
    }

    /// Puts a gap of so many bytes, a multiple of 8, between two records.
    pub(super) fn put_gap(&mut self, bytes: usize) {
        self.has_gaps = true;
        // A gap of 0 bytes takes nothing. The ring's own mark of a record that goes on is free for
        // gaps: VMPI has one of its own.
        if let Some(len) = bytes.checked_sub(RECORD_HEADER_BYTES)
            && let Ok(slot) = self.put.reserve(len)
        {
            slot.commit(true);
        }
    }

    fn skip_gaps(&mut self) -> Result<(), Corrupt> {
        while self.has_gaps {
            let begin = self.take.consumed();
            match self.take.peek()? {
                Some(gap) if gap.more() => {}
                _ => break,
            }
            self.take.skip();
            self.gaps.push_back((begin, self.take.consumed()));
            self.release_gaps();
        }
        Ok(())
    }

    /// Gives the room of gaps back before which everything was given back.
    fn release_gaps(&mut self) {
        while let Some((begin, end)) = self.gaps.front().copied() {
            if begin > self.take.released() {
                return;
            }
            if end > self.take.released() {
                let _ = self.take.release_to(end);
            }
            self.gaps.pop_front();
        }
    }

    /// Shows the taking end what was put in. No end sleeps on a pipe.
    pub(super) fn publish(&mut self) {
        let _ = self.put.publish();
    }

    /// Bytes put in and not taken.
    pub(super) fn pending(&mut self) -> u64 {
        self.take.pending_bytes().expect(OWN_INDICES)
    }

    /// What was put in and not taken, at most `bytes_max` of it.
    pub(super) fn run(&mut self, bytes_max: usize) -> Option<Run<'_>> {
        self.take.run(bytes_max).expect(OWN_INDICES)
    }

    /// Gives the room of all that was taken back.
    pub(super) fn release(&mut self) {
        let _ = self.take.release();
        self.gaps.clear();
    }

    /// Gives the room before an index back. One of an earlier link may lie anywhere.
    pub(super) fn release_to(&mut self, index: u64) {
        if index <= self.take.consumed() {
            let _ = self.take.release_to(index);
            self.release_gaps();
        }
    }

    /// Forgets what was put in and not taken: it belongs to a link that has ended.
    pub(super) fn discard(&mut self) {
        self.publish();
        while let Some(run) = self.run(usize::MAX) {
            let all = run.len();
            run.step(all);
        }
    }
}

/// Why an index cannot be corrupt here.
const OWN_INDICES: &str = "the indices of a pipe lie in memory of this process alone";
