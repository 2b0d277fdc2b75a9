//! A packet: room for headers, and a payload that stays in the ring it came from.
//!
//! ```text
//!   Packet --> Cell +------+-------+--------------------------+
//!                   | body | flags |  free  |  headers        |  then the body's bytes
//!                   +------+-------+--------------------------+
//!                                  0      start          HEAD_BYTES
//! ```
//!
//! On its way through DIFs a packet moves from queue to queue more often than anything is done to
//! it: what moves is one pointer. Cells are used again and again by the thread that made them.

use std::cell::RefCell;

use carina_ring::{Lease, Sdus, Slot, Stretch};

use crate::pool::{Buffer, Pool, Shared};

/// A piece of an SDU on its way through the data plane. Its contents are the headers that were
/// put in front, then those of the body.
pub struct Packet {
    // `None` only while the packet is dropped.
    cell: Option<Box<Cell>>,
}

/// What a packet consists of.
#[repr(align(64))]
struct Cell {
    body: Body,
    more: bool,
    /// What the body holds, where it is a bundle; else nothing.
    bundle: Sdus,
    /// Where the headers begin: at most [`HEAD_BYTES`].
    start: u8,
    head: [u8; HEAD_BYTES],
}

/// Where the contents lie that are not in the head.
enum Body {
    Empty,
    /// In a ring, until the end of the breath.
    Ring(Lease),
    /// In a buffer of its own.
    Own(Buffer),
    /// In a buffer that other packets look at too.
    Shared(Shared),
}

/// Room for headers in front of a body, in bytes. Those of more DIFs than fit cost a copy of the
/// whole packet each time that it is used up.
const HEAD_BYTES: usize = 128;

/// Cells that a thread keeps for later use.
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

    /// Copies the first bytes to fill `to`.
    #[inline]
    fn copy_to(&self, to: &mut [u8]) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.copy_range(0, to),
            Body::Own(buffer) => carina_ring::copy_slice(&buffer.as_slice()[..to.len()], to),
            Body::Shared(shared) => carina_ring::copy_slice(&shared.as_slice()[..to.len()], to),
        }
    }

    /// Takes bytes off the front; more than there are empties it.
    #[inline]
    fn advance(&mut self, count: usize) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.advance(count.min(lease.len())),
            Body::Own(buffer) => buffer.advance(count),
            Body::Shared(shared) => shared.advance(count),
        }
    }

    /// Cuts to the first `len` bytes.
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

    /// Copies a whole packet to fill `to`.
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

    /// A packet whose contents are what is in view of a record in a ring; `more` when a further
    /// piece of the same SDU follows.
    #[must_use]
    #[inline]
    pub fn from_lease(lease: Lease, more: bool) -> Packet {
        Packet::new(Body::Ring(lease), more)
    }

    /// A packet whose contents are a bundle: several whole SDUs as they lie in a ring, with the
    /// headers of their records. Only for links whose sink accepts them
    /// ([`crate::Links::accept_bundles`]).
    #[must_use]
    #[inline]
    pub fn from_bundle(lease: Lease, sdus: Sdus) -> Packet {
        let mut packet = Packet::new(Body::Ring(lease), false);
        packet.cell_mut().bundle = sdus;
        packet
    }

    /// The SDUs of a bundle; `None` for any other packet.
    #[must_use]
    #[inline]
    pub fn bundle(&self) -> Option<Sdus> {
        let bundle = self.cell().bundle;
        (bundle.count > 0).then_some(bundle)
    }

    /// Ring space in bytes that the packet takes where it goes.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> u64 {
        let cell = self.cell();
        match cell.bundle.count {
            0 => record_cost(cell.len()),
            _ => cell.len() as u64,
        }
    }

    /// Copies the contents of a bundle to a ring as they are.
    ///
    /// # Panics
    /// When there is less room.
    pub fn copy_bundle_into(&self, stretch: &mut Stretch<'_>) {
        match &self.cell().body {
            Body::Empty => {}
            Body::Ring(lease) => stretch.copy_from(lease),
            Body::Own(buffer) => stretch.write(buffer.as_slice()),
            Body::Shared(shared) => stretch.write(shared.as_slice()),
        }
    }

    /// The SDUs of a bundle as packets of their own, as far as they are whole. Any other packet has
    /// no SDUs in this sense.
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

    /// A packet whose contents are a buffer.
    #[must_use]
    #[inline]
    pub fn from_buffer(buffer: Buffer, more: bool) -> Packet {
        Packet::new(Body::Own(buffer), more)
    }

    /// A packet with a copy of `bytes`; `None` when the pool has no buffer.
    #[must_use]
    pub fn copy_of(bytes: &[u8], pool: &Pool) -> Option<Packet> {
        let mut buffer = pool.take(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Some(Packet::from_buffer(buffer, false))
    }

    /// Length of the contents in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.cell().len()
    }

    /// True for an SDU of no bytes, which is an SDU all the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when a further piece of the same SDU follows.
    #[must_use]
    #[inline]
    pub fn more(&self) -> bool {
        self.cell().more
    }

    /// Says whether a further piece of the same SDU follows.
    #[inline]
    pub fn set_more(&mut self, more: bool) {
        self.cell_mut().more = more;
    }

    /// Copies the contents to the place at `offset` of a slot in another ring: the one copy of
    /// the payload.
    ///
    /// # Panics
    /// When the slot is too short.
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

    /// Appends the contents to a vector.
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

    /// The contents, in order, as the two slices that they lie in; `None` while they lie in a ring.
    /// After [`Packet::materialise`] there are always slices.
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

    /// Moves contents that lie in a ring into a buffer, so that the ring can be released. False
    /// when the pool has none; the packet is unchanged then.
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

    /// Room for `len` bytes behind the contents, when they are all in one buffer of its own.
    #[inline]
    fn growing(&mut self, len: usize) -> Option<&mut [u8]> {
        let cell = self.cell_mut();
        match &mut cell.body {
            Body::Own(buffer) => buffer.grow(len),
            _ => None,
        }
    }

    /// The room for headers is used up: they become part of the body.
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

/// Ring space in bytes that a record of `len` bytes takes: its header and padding to 8.
#[must_use]
#[inline]
pub fn record_cost(len: usize) -> u64 {
    carina_ring::record_cost(len) as u64
}

mod payload;
#[cfg(test)]
mod tests;
