//! Packets: room for headers, and a payload that stays in the ring it came from.
//!
//! ```text
//!   Packet --> Cell +------+-------+--------------------------+
//!                   | body | flags |  free  |  headers        |  then the body's bytes
//!                   +------+-------+--------------------------+
//!                                  0      start          HEAD_BYTES
//! ```
//!
//! On its way through DIFs a packet moves from queue to queue more often than its contents are
//! accessed, so only one pointer moves. The thread that allocated cells reuses them.

use std::cell::RefCell;

use carina_ring::{Lease, Sdus, Slot, Stretch};

use crate::pool::{Buffer, Pool, Shared};

/// A piece of an SDU on its way through the data plane. Its contents are the headers that were
/// prepended, followed by the body.
pub struct Packet {
    // `None` only while the packet is dropped.
    cell: Option<Box<Cell>>,
}

/// The contents and flags of a packet.
#[repr(align(64))]
struct Cell {
    body: Body,
    more: bool,
    /// The SDUs in the body if it is a bundle; otherwise empty.
    bundle: Sdus,
    /// Offset at which the headers begin: at most [`HEAD_BYTES`].
    start: u8,
    head: [u8; HEAD_BYTES],
}

/// Where the body's bytes are.
enum Body {
    Empty,
    /// The bytes are in a ring, and valid until the end of the breath.
    Ring(Lease),
    /// The bytes are in a buffer that only this packet uses.
    Own(Buffer),
    /// The bytes are in a buffer that other packets share.
    Shared(Shared),
}

/// Room for headers in front of a body, in bytes. If the headers of many DIFs do not fit, the whole
/// packet is copied each time that the room is used up.
const HEAD_BYTES: usize = 128;

/// Largest number of cells that a thread keeps for reuse.
const SPARE_MAX: usize = 4096;

thread_local! {
    #[expect(clippy::vec_box, reason = "what is moved in and out is the box")]
    static SPARE: RefCell<Vec<Box<Cell>>> = const { RefCell::new(Vec::new()) };
}

impl Body {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Ring(lease) => lease.len(),
            Body::Own(buffer) => buffer.len(),
            Body::Shared(shared) => shared.len(),
        }
    }

    /// Copies the first bytes of the body to fill `to`.
    #[inline]
    fn copy_to(&self, to: &mut [u8]) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.copy_range(0, to),
            Body::Own(buffer) => carina_ring::copy_slice(&buffer.as_slice()[..to.len()], to),
            Body::Shared(shared) => carina_ring::copy_slice(&shared.as_slice()[..to.len()], to),
        }
    }

    /// Removes `count` bytes at the front; all bytes if there are fewer.
    #[inline]
    fn advance(&mut self, count: usize) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.advance(count.min(lease.len())),
            Body::Own(buffer) => buffer.advance(count),
            Body::Shared(shared) => shared.advance(count),
        }
    }

    /// Cuts the body to its first `len` bytes.
    fn truncate(&mut self, len: usize) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.truncate(len),
            Body::Own(buffer) => buffer.truncate(len),
            Body::Shared(shared) => shared.truncate(len),
        }
    }
}

impl Cell {
    #[inline]
    fn head(&self) -> &[u8] {
        &self.head[usize::from(self.start).min(HEAD_BYTES)..]
    }

    #[inline]
    fn len(&self) -> usize {
        HEAD_BYTES - usize::from(self.start) + self.body.len()
    }

    /// Copies the whole packet to fill `to`.
    fn copy_to(&self, to: &mut [u8]) {
        let head = self.head();
        let (front, back) = to.split_at_mut(head.len());
        front.copy_from_slice(head);
        self.body.copy_to(back);
    }
}

impl Packet {
    #[inline]
    fn new(body: Body, more: bool) -> Packet {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let mut cell = spare.unwrap_or_else(fresh);
        cell.body = body;
        cell.more = more;
        cell.bundle = Sdus::default();
        cell.start = HEAD_BYTES as u8;
        Packet { cell: Some(cell) }
    }

    #[inline]
    fn cell(&self) -> &Cell {
        match &self.cell {
            Some(cell) => cell,
            None => unreachable!("a packet is not used while it is dropped"),
        }
    }

    #[inline]
    fn cell_mut(&mut self) -> &mut Cell {
        match &mut self.cell {
            Some(cell) => cell,
            None => unreachable!("a packet is not used while it is dropped"),
        }
    }

    /// Creates a packet from the view of a record in a ring. `more` says that another piece of the
    /// same SDU follows.
    #[must_use]
    #[inline]
    pub fn from_lease(lease: Lease, more: bool) -> Packet {
        Packet::new(Body::Ring(lease), more)
    }

    /// Creates a packet from a bundle: several whole SDUs as they are in a ring, with the headers
    /// of their records. It is only for links whose sink accepts bundles
    /// ([`crate::Links::accept_bundles`]).
    #[must_use]
    #[inline]
    pub fn from_bundle(lease: Lease, sdus: Sdus) -> Packet {
        let mut packet = Packet::new(Body::Ring(lease), false);
        packet.cell_mut().bundle = sdus;
        packet
    }

    /// Returns number and lengths of the SDUs of a bundle; `None` for any other packet.
    #[must_use]
    #[inline]
    pub fn bundle(&self) -> Option<Sdus> {
        let bundle = self.cell().bundle;
        (bundle.count > 0).then_some(bundle)
    }

    /// Returns the ring space that the packet takes at its destination, in bytes.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> u64 {
        let cell = self.cell();
        match cell.bundle.count {
            0 => record_cost(cell.len()),
            _ => cell.len() as u64,
        }
    }

    /// Copies the contents of a bundle to a ring unchanged.
    ///
    /// # Panics
    /// There is less room.
    pub fn copy_bundle_into(&self, stretch: &mut Stretch<'_>) {
        match &self.cell().body {
            Body::Empty => {}
            Body::Ring(lease) => stretch.copy_from(lease),
            Body::Own(buffer) => stretch.write(buffer.as_slice()),
            Body::Shared(shared) => stretch.write(shared.as_slice()),
        }
    }

    /// Returns the whole SDUs of a bundle, each as a packet of its own. For any other packet it
    /// returns none.
    pub fn sdus(&self) -> impl Iterator<Item = Packet> + use<> {
        let mut bundle = match &self.cell().body {
            Body::Ring(lease) if self.bundle().is_some() => Some(lease.clone()),
            _ => None,
        };
        std::iter::from_fn(move || {
            let sdu = bundle.as_mut()?.take_sdu()?;
            Some(Packet::from_lease(sdu, false))
        })
    }

    /// Creates a packet from a buffer. `more` says that another piece of the same SDU follows.
    #[must_use]
    #[inline]
    pub fn from_buffer(buffer: Buffer, more: bool) -> Packet {
        Packet::new(Body::Own(buffer), more)
    }

    /// Creates a packet with a copy of `bytes`; `None` if the pool has no buffer.
    #[must_use]
    pub fn copy_of(bytes: &[u8], pool: &Pool) -> Option<Packet> {
        let mut buffer = pool.take(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Some(Packet::from_buffer(buffer, false))
    }

    /// Returns the length of the contents in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.cell().len()
    }

    /// Whether the packet has no bytes. It is still an SDU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether another piece of the same SDU follows.
    #[must_use]
    #[inline]
    pub fn more(&self) -> bool {
        self.cell().more
    }

    /// Sets whether another piece of the same SDU follows.
    #[inline]
    pub fn set_more(&mut self, more: bool) {
        self.cell_mut().more = more;
    }

    /// Copies the contents to `offset` in a slot of another ring. This is the only copy of the
    /// payload.
    ///
    /// # Panics
    /// The slot is too short.
    #[inline]
    pub fn copy_into(&self, slot: &mut Slot<'_>, offset: usize) {
        let cell = self.cell();
        let head = cell.head();
        if !head.is_empty() {
            slot.write_at(offset, head);
        }
        let offset = offset + head.len();
        match &cell.body {
            Body::Empty => {}
            Body::Ring(lease) => slot.copy_from(lease, offset),
            Body::Own(buffer) => slot.write_at(offset, buffer.as_slice()),
            Body::Shared(shared) => slot.write_at(offset, shared.as_slice()),
        }
    }

    /// Appends the contents of the packet to the vector `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        let cell = self.cell();
        to.extend_from_slice(cell.head());
        match &cell.body {
            Body::Empty => {}
            Body::Ring(lease) => lease.append_to(to),
            Body::Own(buffer) => to.extend_from_slice(buffer.as_slice()),
            Body::Shared(shared) => to.extend_from_slice(shared.as_slice()),
        }
    }

    /// Returns the contents as two slices: the headers, followed by the body. `None` while the body
    /// is in a ring; after [`Packet::materialise`] the result is never `None`.
    #[must_use]
    pub fn slices(&self) -> Option<[&[u8]; 2]> {
        let cell = self.cell();
        let body: &[u8] = match &cell.body {
            Body::Empty => &[],
            Body::Ring(_) => return None,
            Body::Own(buffer) => buffer.as_slice(),
            Body::Shared(shared) => shared.as_slice(),
        };
        Some([cell.head(), body])
    }

    /// Moves contents that are in a ring into a buffer, so that the ring can be released. Returns
    /// false if the pool has no buffer; the packet is then unchanged.
    #[must_use]
    pub fn materialise(&mut self, pool: &Pool) -> bool {
        self.leave_ring(|len| pool.take(len))
    }

    #[inline]
    fn leave_ring(&mut self, take: impl FnOnce(usize) -> Option<Buffer>) -> bool {
        let cell = self.cell_mut();
        let Body::Ring(lease) = &cell.body else {
            return true;
        };
        let Some(mut buffer) = take(lease.len()) else {
            return false;
        };
        lease.copy_range(0, buffer.as_mut_slice());
        cell.body = Body::Own(buffer);
        true
    }

    /// Room for `len` more bytes behind the contents; `None` unless all of them are in one buffer
    /// of its own.
    #[inline]
    fn growing(&mut self, len: usize) -> Option<&mut [u8]> {
        let cell = self.cell_mut();
        match &mut cell.body {
            Body::Own(buffer) => buffer.grow(len),
            _ => None,
        }
    }

    /// Copies the headers into the body, because the room for headers is used up. Returns false if
    /// the pool has no buffer.
    #[cold]
    fn fold(&mut self) -> bool {
        let cell = self.cell_mut();
        let Some(mut whole) = Pool::take_here(cell.len()) else {
            return false;
        };
        cell.copy_to(whole.as_mut_slice());
        cell.body = Body::Own(whole);
        cell.start = HEAD_BYTES as u8;
        true
    }
}

#[cold]
fn fresh() -> Box<Cell> {
    Box::new(Cell {
        body: Body::Empty,
        more: false,
        bundle: Sdus::default(),
        start: HEAD_BYTES as u8,
        head: [0; HEAD_BYTES],
    })
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let Some(mut cell) = self.cell.take() else {
            return;
        };
        cell.body = Body::Empty;
        // The thread may be ending.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(cell);
            }
        });
    }
}

/// Returns the ring space in bytes that a record with `len` payload bytes takes, including its
/// header and padding to 8 bytes.
#[must_use]
#[inline]
pub fn record_cost(len: usize) -> u64 {
    carina_ring::record_cost(len) as u64
}

mod payload;
#[cfg(test)]
mod tests;
