//! A bare single-producer single-consumer ring, the upper limit that benches compare the channel
//! with.
//!
//! It has what a shared-memory ring needs (two indices, a length in front of each message, one copy
//! in, one copy out) and nothing else: no checks of the peer, no doorbells, no sleeping, no pieces.
//! Both ends spin. The ring trusts its peer to run this same code. A faulty peer makes it return
//! wrong bytes or panic, but never access memory outside the ring.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use carina_sys::Mapping;

const TAIL: usize = 0;
const CLOSED: usize = 64;
const HEAD: usize = 128;
const DATA: usize = 4096;
/// Size in bytes of the length field in front of each message.
pub const BARE_LENGTH_BYTES: usize = 8;

/// Returns the number of bytes of shared memory that a bare ring of the given capacity needs.
#[must_use]
pub const fn bare_region_bytes(capacity: usize) -> usize {
    DATA + capacity
}

/// One ring mapped into this process.
#[derive(Debug)]
struct Bare {
    map: Mapping,
    capacity: usize,
}

impl Bare {
    fn map(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Self> {
        // The data is mapped twice in a row, so that each message is contiguous wherever it begins.
        Self::over(Mapping::mirrored(fd, offset, DATA, capacity)?, capacity)
    }

    fn over(map: Mapping, capacity: usize) -> io::Result<Self> {
        let what = if !capacity.is_power_of_two() || !capacity.is_multiple_of(4096) {
            format!("capacity {capacity} is not a power of two of at least 4096")
        } else if map.len() != DATA + 2 * capacity {
            format!("{} bytes are mapped for a ring of {capacity}", map.len())
        } else {
            return Ok(Self { map, capacity });
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    fn tail(&self) -> &AtomicU64 {
        self.map.atomic_u64(TAIL)
    }

    fn head(&self) -> &AtomicU64 {
        self.map.atomic_u64(HEAD)
    }

    fn closed(&self) -> &AtomicU32 {
        self.map.atomic_u32(CLOSED)
    }

    /// The address of the byte with the given free-running index.
    #[inline]
    fn at(&self, index: u64) -> *mut u8 {
        let place = index as usize & (self.capacity - 1);
        // SAFETY: place < capacity, and the mapping has DATA + 2 * capacity bytes.
        unsafe { self.map.as_ptr().add(DATA + place) }
    }

    /// Bytes of ring space that a message takes.
    #[inline]
    fn cost(len: usize) -> usize {
        BARE_LENGTH_BYTES + len.next_multiple_of(8)
    }
}

/// The sending end of a bare ring. Exactly one may exist per ring.
#[derive(Debug)]
pub struct BareSender {
    ring: Bare,
    tail: u64,
    head_seen: u64,
}

impl BareSender {
    /// Maps the sending end of a new ring: all bytes of its memory must be zero.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is not a power of two of at least 4096; the system's refusal
    /// to map.
    pub fn map(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Self> {
        Ok(Self::of(Bare::map(fd, offset, capacity)?))
    }

    /// Like [`BareSender::map`], for memory that the caller has mapped: a header of 4096 bytes and
    /// the data, and the data once more directly behind.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is not possible, or the mapping has another length.
    pub fn over(map: Mapping, capacity: usize) -> io::Result<Self> {
        Ok(Self::of(Bare::over(map, capacity)?))
    }

    fn of(ring: Bare) -> Self {
        Self {
            ring,
            tail: 0,
            head_seen: 0,
        }
    }

    /// Copies a message into the ring; the call does not wait. Returns `false` if the ring is full.
    ///
    /// # Panics
    /// The message is longer than the ring can ever hold.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> bool {
        let cost = Bare::cost(message.len());
        assert!(
            cost <= self.ring.capacity,
            "a message of {} bytes never fits",
            message.len()
        );
        let room = |head: u64, tail: u64| self.ring.capacity as u64 - (tail - head);
        if room(self.head_seen, self.tail) < cost as u64 {
            self.head_seen = self.ring.head().load(Ordering::Acquire);
            if room(self.head_seen, self.tail) < cost as u64 {
                return false;
            }
        }
        let to = self.ring.at(self.tail);
        // SAFETY: `at` is inside the first copy of the data and cost <= capacity, so the mirror
        // behind it holds the rest; indices are multiples of 8, so the length is aligned; the
        // source is another allocation. Worth it: this copy is what the bench measures.
        unsafe {
            to.cast::<u64>().write(message.len() as u64);
            to.add(BARE_LENGTH_BYTES)
                .copy_from_nonoverlapping(message.as_ptr(), message.len());
        }
        self.tail += cost as u64;
        self.ring.tail().store(self.tail, Ordering::Release);
        true
    }

    /// Announces that no more messages follow; the receiver then gets [`BareArrival::Closed`].
    pub fn close(&mut self) {
        self.ring.closed().store(1, Ordering::Release);
    }
}

/// The result of [`BareReceiver::try_recv`]: a message, no message yet, or the end. A bare ring
/// does not check its peer, so no result reports a faulty message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareArrival {
    /// A message was copied into the buffer; it has this many bytes.
    Message(usize),
    /// No message waits.
    Empty,
    /// No message waits, and the sender is closed.
    Closed,
}

/// The receiving end of a bare ring. Exactly one may exist per ring.
#[derive(Debug)]
pub struct BareReceiver {
    ring: Bare,
    head: u64,
    head_told: u64,
    tail_seen: u64,
}

impl BareReceiver {
    /// Maps the receiving end of a new ring: all bytes of its memory must be zero.
    ///
    /// # Errors
    /// As for [`BareSender::map`].
    pub fn map(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Self> {
        Ok(Self::of(Bare::map(fd, offset, capacity)?))
    }

    /// Like [`BareReceiver::map`], for memory that the caller has mapped as for
    /// [`BareSender::over`].
    ///
    /// # Errors
    /// As for [`BareSender::over`].
    pub fn over(map: Mapping, capacity: usize) -> io::Result<Self> {
        Ok(Self::of(Bare::over(map, capacity)?))
    }

    fn of(ring: Bare) -> Self {
        Self {
            ring,
            head: 0,
            head_told: 0,
            tail_seen: 0,
        }
    }

    /// Returns the bytes of further messages, with their length fields, that this end already knows
    /// to be in the ring without reading shared memory.
    #[must_use]
    pub fn known_bytes(&self) -> u64 {
        self.tail_seen - self.head
    }

    /// Publishes the receiver's index, which frees the room of everything received so far.
    fn tell(&mut self) {
        if self.head_told != self.head {
            self.head_told = self.head;
            self.ring.head().store(self.head, Ordering::Release);
        }
    }

    /// Copies the next message out of the ring into `buffer`; the call does not wait.
    ///
    /// # Panics
    /// The message is longer than the buffer or the ring.
    #[inline]
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> BareArrival {
        if self.tail_seen == self.head {
            let closed = self.ring.closed().load(Ordering::Acquire) != 0;
            self.tail_seen = self.ring.tail().load(Ordering::Acquire);
            if self.tail_seen == self.head {
                self.tell();
                return if closed {
                    BareArrival::Closed
                } else {
                    BareArrival::Empty
                };
            }
        }
        let from = self.ring.at(self.head);
        // SAFETY: inside the mapping and aligned, as in `try_send`.
        let len = unsafe { from.cast::<u64>().read() } as usize;
        let fits = len <= buffer.len() && len <= self.ring.capacity - BARE_LENGTH_BYTES;
        assert!(
            fits,
            "a message of {len} bytes where at most {} fit",
            buffer.len()
        );
        // SAFETY: `len` was just checked against the buffer and the mirrored data. Worth it as in
        // `try_send`.
        unsafe {
            buffer
                .as_mut_ptr()
                .copy_from_nonoverlapping(from.add(BARE_LENGTH_BYTES), len)
        };
        self.head += Bare::cost(len) as u64;
        // The sender needs to learn of free room only now and then. Publishing the index for each
        // message would move a cache line between the CPUs each time.
        if self.head - self.head_told >= self.ring.capacity as u64 / 4 {
            self.tell();
        }
        BareArrival::Message(len)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn pair(capacity: usize) -> (BareSender, BareReceiver) {
        let memory = carina_sys::Memory::anonymous("bare", bare_region_bytes(capacity)).unwrap();
        let sender = BareSender::map(memory.as_fd(), 0, capacity).unwrap();
        let receiver = BareReceiver::map(memory.as_fd(), 0, capacity).unwrap();
        (sender, receiver)
    }

    #[test]
    fn messages_arrive_whole_and_in_order_across_the_wrap() {
        let (mut sender, mut receiver) = pair(4096);
        let thread = std::thread::spawn(move || {
            for n in 0..20_000u32 {
                let message = vec![n as u8; (n % 700) as usize];
                while !sender.try_send(&message) {
                    std::thread::yield_now();
                }
            }
            sender.close();
        });
        let mut buffer = [0; 1024];
        let mut n = 0u32;
        loop {
            match receiver.try_recv(&mut buffer) {
                BareArrival::Message(len) => {
                    assert_eq!(len, (n % 700) as usize);
                    assert!(buffer[..len].iter().all(|b| *b == n as u8));
                    n += 1;
                }
                BareArrival::Empty => std::thread::yield_now(),
                BareArrival::Closed => break,
            }
        }
        thread.join().unwrap();
        assert_eq!(n, 20_000);
    }

    #[test]
    fn full_ring_refuses_until_there_is_room() {
        let (mut sender, mut receiver) = pair(4096);
        assert!(sender.try_send(&[1; 4088]));
        assert!(!sender.try_send(&[]));
        assert_eq!(
            receiver.try_recv(&mut [0; 5000]),
            BareArrival::Message(4088)
        );
        assert!(sender.try_send(&[]));
        assert_eq!(receiver.try_recv(&mut []), BareArrival::Message(0));
        sender.close();
        assert_eq!(receiver.try_recv(&mut []), BareArrival::Closed);
    }
}
