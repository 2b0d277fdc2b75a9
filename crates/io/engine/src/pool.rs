//! Buffers for packets that cannot stay in the ring they came from.
//!
//! A packet that was read from a ring stays in the ring. It is copied into a buffer of this pool
//! only if it comes from a socket, or must outlive its ring slot. The pool is bounded: a peer can
//! make the data plane hold bytes, but never more than this.
//!
//! Buffers have a few sizes. A buffer that is returned goes to a list of its size; its bytes are
//! neither freed nor zeroed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A pool of buffers that lends a limited number of bytes. Clones share the pool.
#[derive(Clone)]
pub struct Pool {
    lender: Rc<Lender>,
}

struct Lender {
    bytes_max: usize,
    bytes_out: Cell<usize>,
    /// Unused stores by size class. Each has no other reference.
    spare: [Cell<Vec<Rc<Store>>>; CLASSES.len()],
}

/// The memory of a buffer.
struct Store {
    bytes: Box<[u8]>,
}

/// A buffer that one owner can change. Dropping it returns it to its pool.
pub struct Buffer {
    // `None` only while the buffer is being dismantled.
    store: Option<Rc<Store>>,
    start: u32,
    end: u32,
    lender: Rc<Lender>,
}

/// One of several read-only views of a buffer. The buffer returns to its pool with the last view.
pub struct Shared {
    store: Option<Rc<Store>>,
    start: u32,
    end: u32,
    lender: Rc<Lender>,
}

thread_local! {
    /// The pool for packets that grow in code that has no pool at hand.
    static THREAD: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

impl Pool {
    /// Creates a pool that lends at most `bytes_max` bytes at a time.
    #[must_use]
    pub fn new(bytes_max: usize) -> Pool {
        let lender = Lender {
            bytes_max,
            bytes_out: Cell::new(0),
            spare: Default::default(),
        };
        Pool {
            lender: Rc::new(lender),
        }
    }

    /// Makes this the pool of the calling thread. The operations of [`carina_wire::Payload`] on
    /// packets take no pool as an argument, so they use the pool of the thread. An engine calls
    /// this when it is created.
    pub fn serve_thread(&self) {
        THREAD.with(|thread| *thread.borrow_mut() = Some(self.clone()));
    }

    /// Like [`Pool::take`], from the pool of the calling thread; `None` also if the thread has no
    /// pool.
    #[must_use]
    #[inline]
    pub fn take_here(len: usize) -> Option<Buffer> {
        THREAD.with(|thread| thread.borrow().as_ref()?.take(len))
    }

    /// Takes a buffer with `len` bytes of content; `None` if the pool has lent all it may. The
    /// bytes are left over from earlier use, so the caller must fill them, or truncate the content
    /// to what was filled.
    #[must_use]
    #[inline]
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let end = u32::try_from(len).ok()?;
        let class = CLASSES.iter().position(|(bytes, _)| len <= *bytes);
        let room = class.map_or(len, |class| CLASSES[class].0);
        let out = self.lender.bytes_out.get().checked_add(charge(room))?;
        if out > self.lender.bytes_max {
            return None;
        }
        let store = class.and_then(|class| self.lender.reuse(class));
        let store = store.unwrap_or_else(|| {
            Rc::new(Store {
                bytes: vec![0; room].into_boxed_slice(),
            })
        });
        self.lender.bytes_out.set(out);
        Some(Buffer {
            store: Some(store),
            start: 0,
            end,
            lender: Rc::clone(&self.lender),
        })
    }

    /// Returns the number of bytes that the pool has lent now.
    #[must_use]
    pub fn bytes_out(&self) -> usize {
        self.lender.bytes_out.get()
    }
}

impl Lender {
    #[inline]
    fn reuse(&self, class: usize) -> Option<Rc<Store>> {
        let mut spare = self.spare[class].take();
        let store = spare.pop();
        self.spare[class].set(spare);
        store
    }

    /// Takes back a store that has no other reference.
    #[inline]
    fn give_back(&self, store: Rc<Store>) {
        let room = store.bytes.len();
        self.bytes_out.set(self.bytes_out.get() - charge(room));
        let Some(class) = CLASSES.iter().position(|(bytes, _)| *bytes == room) else {
            return;
        };
        let mut spare = self.spare[class].take();
        if spare.len() < CLASSES[class].1 {
            spare.push(store);
        }
        self.spare[class].set(spare);
    }
}

impl Buffer {
    /// Returns the content.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| {
            &store.bytes[self.start as usize..self.end as usize]
        })
    }

    /// Returns the content, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        // A buffer has the only reference to its store.
        self.store
            .as_mut()
            .and_then(Rc::get_mut)
            .map_or(&mut [], |store| &mut store.bytes[start..end])
    }

    /// Returns the number of bytes of content.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Cuts the content to its first `len` bytes. Shorter content stays unchanged.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.start + self.len().min(len) as u32;
    }

    /// Returns the number of free bytes behind the content.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        let bytes = self.store.as_ref().map_or(0, |store| store.bytes.len());
        bytes - self.end as usize
    }

    /// Extends the content by `len` bytes and returns the added bytes, for the caller to fill.
    /// `None` if there is too little room.
    #[must_use]
    #[inline]
    pub fn grow(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.room() {
            return None;
        }
        let from = self.end as usize;
        self.end += len as u32;
        let store = self.store.as_mut().and_then(Rc::get_mut)?;
        Some(&mut store.bytes[from..from + len])
    }

    /// Removes `count` bytes at the front; all bytes if there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.start += self.len().min(count) as u32;
    }

    /// Converts the buffer into a read-only view that can be cloned. Copies nothing.
    #[must_use]
    pub fn share(mut self) -> Shared {
        Shared {
            store: self.store.take(),
            start: self.start,
            end: self.end,
            lender: Rc::clone(&self.lender),
        }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            self.lender.give_back(store);
        }
    }
}

impl Shared {
    /// Returns the content in view.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| {
            &store.bytes[self.start as usize..self.end as usize]
        })
    }

    /// Returns the number of bytes in view.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether no bytes are in view.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes `count` bytes at the front of the view; all bytes if there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.start += self.len().min(count) as u32;
    }

    /// Cuts the view to its first `len` bytes. A shorter view stays unchanged.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.start + self.len().min(len) as u32;
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared {
            store: self.store.clone(),
            start: self.start,
            end: self.end,
            lender: Rc::clone(&self.lender),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(store) = self.store.take()
            && Rc::strong_count(&store) == 1
        {
            self.lender.give_back(store);
        }
    }
}

/// Cost of a packet with a buffer in addition to the buffer's bytes, in bytes: its cell, and the
/// allocator's overhead for both.
const PACKET_BYTES: usize = 256;

/// Number of bytes that a store of `room` bytes counts against the pool's limit.
fn charge(room: usize) -> usize {
    room.saturating_add(PACKET_BYTES)
}

/// Sizes of stores in bytes, and the number of each that is kept for reuse: small SDUs, an Ethernet
/// frame, a page, a jumbo frame, the longest PDU, the longest read of a stream socket. Larger
/// stores are allocated and freed each time.
const CLASSES: [(usize, usize); 6] = [
    (128, 4096),
    (2048, 1024),
    (4096, 512),
    (16_384, 256),
    (69_632, 64),
    (131_072, 32),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_lends_no_more_than_its_bound_and_takes_back() {
        let pool = Pool::new(2 * (4096 + PACKET_BYTES));
        let (a, b) = (pool.take(3000).unwrap(), pool.take(3000).unwrap());
        assert!(pool.take(0).is_none());
        drop(a);
        assert!(pool.take(4097).is_none());
        let c = pool.take(100).unwrap();
        assert_eq!(c.len(), 100);
        drop((b, c));
        assert_eq!(pool.bytes_out(), 0);
        assert!(pool.take(usize::MAX).is_none());
    }

    #[test]
    fn shared_content_goes_back_with_its_last_view() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(4).unwrap();
        buffer.as_mut_slice().copy_from_slice(b"abcd");
        let a = buffer.share();
        let mut b = a.clone();
        b.advance(1);
        b.truncate(2);
        assert_eq!((a.as_slice(), b.as_slice()), (&b"abcd"[..], &b"bc"[..]));
        drop(a);
        assert_eq!(pool.bytes_out(), 128 + PACKET_BYTES);
        assert_eq!(b.as_slice(), b"bc");
        drop(b);
        assert_eq!(pool.bytes_out(), 0);
    }

    #[test]
    fn small_buffers_are_used_again() {
        let pool = Pool::new(1 << 20);
        let first = pool.take(8).unwrap();
        let at = first.as_slice().as_ptr();
        drop(first);
        assert_eq!(pool.take(8).unwrap().as_slice().as_ptr(), at);
    }
}
