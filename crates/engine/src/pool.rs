//! Buffers for packets that cannot stay where they came from.
//!
//! A packet read from a ring stays in the ring. Only what comes from a socket, or what has to
//! outlive its ring slot, is copied into a buffer of this pool. The pool is bounded: a peer can
//! make the data plane hold bytes, but never more than this.

use std::cell::Cell;
use std::rc::Rc;

/// A bounded source of buffers.
#[derive(Clone)]
pub struct Pool {
    shared: Rc<Shared>,
}

struct Shared {
    bytes_max: usize,
    bytes_out: Cell<usize>,
    spare: Cell<Vec<Vec<u8>>>,
}

/// A buffer with headroom in front of its content; returns to its pool when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    /// What this buffer counts against the pool.
    charge: usize,
    pool: Rc<Shared>,
}

impl Pool {
    /// A pool that lends at most `bytes_max` bytes at a time.
    #[must_use]
    pub fn new(bytes_max: usize) -> Pool {
        let shared = Shared {
            bytes_max,
            bytes_out: Cell::new(0),
            spare: Cell::default(),
        };
        Pool {
            shared: Rc::new(shared),
        }
    }

    /// A buffer with `len` zero bytes of content behind [`HEADROOM_BYTES`] of headroom; `None`
    /// when the pool has lent all it may.
    #[must_use]
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let charge = (HEADROOM_BYTES + len).max(SMALL_BYTES);
        let out = self.shared.bytes_out.get().checked_add(charge)?;
        if out > self.shared.bytes_max {
            return None;
        }
        self.shared.bytes_out.set(out);
        let mut bytes = if charge == SMALL_BYTES {
            let mut spare = self.shared.spare.take();
            let buffer = spare.pop();
            self.shared.spare.set(spare);
            buffer.unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES))
        } else {
            Vec::with_capacity(charge)
        };
        bytes.clear();
        bytes.resize(HEADROOM_BYTES + len, 0);
        Some(Buffer {
            bytes,
            start: HEADROOM_BYTES,
            charge,
            pool: Rc::clone(&self.shared),
        })
    }

    /// Bytes lent at this moment.
    #[must_use]
    pub fn bytes_out(&self) -> usize {
        self.shared.bytes_out.get()
    }
}

impl Buffer {
    /// The content.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The content, to be filled.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Cuts the content to its first `len` bytes; longer content stays as it is.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.start.saturating_add(len));
    }

    /// Puts a header in front; false when the headroom is used up.
    #[must_use]
    pub fn push_front(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(header.len()) else {
            return false;
        };
        self.bytes[start..self.start].copy_from_slice(header);
        self.start = start;
        true
    }

    /// Takes `len` bytes off the front; false when there are not so many.
    #[must_use]
    pub fn pull_front(&mut self, len: usize) -> bool {
        if len > self.bytes.len() - self.start {
            return false;
        }
        self.start += len;
        true
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool
            .bytes_out
            .set(self.pool.bytes_out.get() - self.charge);
        if self.charge == SMALL_BYTES {
            let mut spare = self.pool.spare.take();
            if spare.len() < SPARE_MAX {
                spare.push(std::mem::take(&mut self.bytes));
            }
            self.pool.spare.set(spare);
        }
    }
}

/// Room in front of the content of every buffer, in bytes: enough for the headers of several DIFs.
pub const HEADROOM_BYTES: usize = 128;

/// Buffers up to this size are kept for reuse.
const SMALL_BYTES: usize = 4096;

/// How many are kept: four bursts.
const SPARE_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_in_front_and_come_off_again() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(3).unwrap();
        buffer.as_mut_slice().copy_from_slice(b"sdu");
        assert!(buffer.push_front(b"head"));
        assert_eq!(buffer.as_slice(), b"headsdu");
        assert!(buffer.pull_front(4));
        assert_eq!(buffer.as_slice(), b"sdu");
        assert!(!buffer.pull_front(4));
        assert!(!buffer.push_front(&[0; HEADROOM_BYTES + 1]));
    }

    #[test]
    fn a_pool_lends_no_more_than_its_bound_and_takes_back() {
        let pool = Pool::new(2 * SMALL_BYTES);
        let (a, b) = (pool.take(10).unwrap(), pool.take(10).unwrap());
        assert!(pool.take(0).is_none());
        drop(a);
        assert!(pool.take(SMALL_BYTES).is_none());
        let c = pool.take(100).unwrap();
        assert_eq!(c.as_slice(), [0; 100]);
        drop((b, c));
        assert_eq!(pool.bytes_out(), 0);
        assert!(pool.take(usize::MAX - HEADROOM_BYTES).is_none());
    }
}
