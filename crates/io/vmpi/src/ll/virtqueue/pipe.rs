//! A ring within this process. One end holds records; the other end moves bytes to or from the
//! virtqueue.
//!
//! ```text
//!   VMPI-HL -> reserve, commit -> [ pipe ] -> run, step ------> buffers of the virtqueue
//!   VMPI-HL <- next, release ---- [ pipe ] <- stretch, commit - buffers of the virtqueue
//! ```
//!
//! Indices and armed words are in memory of this process alone. Only the data of a driver half's
//! pipes is in memory that the device can access. Records from the peer are therefore checked when
//! they are read from the pipe, by the same checks as in a shared ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_ring::{
    Consumer, Corrupt, Lease, Producer, RECORD_HEADER_BYTES, RingMap, Run, WakeMode,
};
use carina_sys::Memory;

/// Both ends of a ring within this process.
#[derive(Debug)]
pub(in crate::ll) struct Pipe {
    pub(in crate::ll) put: Producer,
    take: Consumer,
    /// Begin and end of each gap that the reader has skipped and whose room is not released yet.
    gaps: VecDeque<(u64, u64)>,
    /// Whether this process has put gaps into the pipe. The peer cannot make gaps.
    has_gaps: bool,
}

impl Pipe {
    /// Creates a pipe in anonymous memory.
    pub(in crate::ll) fn own(capacity: usize) -> io::Result<Pipe> {
        let memory = Memory::anonymous("carina-vmpi-pipe", capacity)?;
        Pipe::at(memory.as_fd(), 0, capacity)
    }

    /// Creates a pipe whose data is at `offset` of a file.
    pub(in crate::ll) fn at(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Pipe> {
        let map = Arc::new(RingMap::with_own_header(fd, offset, capacity)?);
        // Only one thread at a time uses both ends, so no fences are needed between them.
        Ok(Pipe {
            put: Producer::fresh(Arc::clone(&map), WakeMode::Light),
            take: Consumer::of_stream(map, WakeMode::Light),
            gaps: VecDeque::new(),
            has_gaps: false,
        })
    }

    pub(in crate::ll) fn capacity(&self) -> usize {
        self.put.capacity()
    }

    /// Free room in bytes.
    pub(in crate::ll) fn room(&mut self) -> usize {
        self.put.free_bytes().expect(OWN_INDICES)
    }

    /// The next record that is complete, or `None`. Gaps are skipped.
    pub(in crate::ll) fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        self.skip_gaps()?;
        self.take.next()
    }

    /// Whether a complete record waits, or bytes that cannot be a record.
    pub(in crate::ll) fn has_record(&mut self) -> bool {
        self.skip_gaps().is_err() || !matches!(self.take.peek(), Ok(None))
    }

    /// Inserts a gap of `bytes`, a multiple of 8, between two records.
    pub(in crate::ll) fn put_gap(&mut self, bytes: usize) {
        self.has_gaps = true;
        // A gap of 0 bytes needs nothing. A gap is a record with the ring's own "more" flag, which
        // VMPI's records do not use.
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

    /// Releases the room of skipped gaps for which everything before them is released.
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

    /// Makes the bytes that were put in visible to the taking end. No end sleeps on a pipe.
    pub(in crate::ll) fn publish(&mut self) {
        let _ = self.put.publish();
    }

    /// Number of bytes that were put in and not taken yet.
    pub(in crate::ll) fn pending(&mut self) -> u64 {
        self.take.pending_bytes().expect(OWN_INDICES)
    }

    /// The bytes that were put in and not taken yet, at most `bytes_max` of them. `None` if the
    /// pipe is empty.
    pub(in crate::ll) fn run(&mut self, bytes_max: usize) -> Option<Run<'_>> {
        self.take.run(bytes_max).expect(OWN_INDICES)
    }

    /// Releases the room of everything that was taken.
    pub(in crate::ll) fn release(&mut self) {
        let _ = self.take.release();
        self.gaps.clear();
    }

    /// Releases the room before `index`. An index beyond what was taken, from an earlier link, is
    /// ignored.
    pub(in crate::ll) fn release_to(&mut self, index: u64) {
        if index <= self.take.consumed() {
            let _ = self.take.release_to(index);
            self.release_gaps();
        }
    }

    /// Drops everything that was put in and not taken, because its link has ended.
    pub(in crate::ll) fn discard(&mut self) {
        self.publish();
        while let Some(run) = self.run(usize::MAX) {
            let all = run.len();
            run.step(all);
        }
    }
}

/// Why the indices of a pipe cannot be corrupt.
const OWN_INDICES: &str = "the indices of a pipe lie in memory of this process alone";
