//! A packet: some bytes of headers in a buffer, and a payload that stays in the ring it came from.

use carina_ring::{Lease, Slot};
use carina_wire::Payload;

use crate::pool::{Buffer, Pool, Shared};

/// A piece of an SDU on its way through the data plane. Its contents are those of the head, then
/// those of the body.
pub struct Packet {
    head: Option<Buffer>,
    body: Body,
    more: bool,
}

/// Where the contents lie that are not in the head.
enum Body {
    Empty,
    /// In a ring, until the end of the breath.
    Ring(Lease),
    /// In a buffer that other packets look at too.
    Shared(Shared),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Ring(lease) => lease.len(),
            Body::Shared(shared) => shared.len(),
        }
    }

    /// Copies the first bytes to fill `to`.
    fn copy_to(&self, to: &mut [u8]) {
        match self {
            Body::Empty => {}
            Body::Ring(lease) => lease.copy_range(0, to),
            Body::Shared(shared) => carina_ring::copy_slice(&shared.as_slice()[..to.len()], to),
        }
    }
}

impl Packet {
    /// A packet whose contents are what is in view of a record in a ring; `more` when a further
    /// piece of the same SDU follows.
    #[must_use]
    #[inline]
    pub fn from_lease(lease: Lease, more: bool) -> Packet {
        Packet {
            head: None,
            body: Body::Ring(lease),
            more,
        }
    }

    /// A packet whose contents are a buffer.
    #[must_use]
    #[inline]
    pub fn from_buffer(buffer: Buffer, more: bool) -> Packet {
        Packet {
            head: Some(buffer),
            body: Body::Empty,
            more,
        }
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
        self.head().len() + self.body.len()
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
        self.more
    }

    /// Says whether a further piece of the same SDU follows.
    #[inline]
    pub fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// The first part of the contents, as far as it lies in a buffer.
    #[must_use]
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.head.as_ref().map_or(&[], Buffer::as_slice)
    }

    /// The second part of the contents, when it lies in a ring.
    #[must_use]
    #[inline]
    pub fn body(&self) -> Option<&Lease> {
        match &self.body {
            Body::Ring(lease) => Some(lease),
            _ => None,
        }
    }

    /// The second part of the contents, when it lies in a buffer.
    #[must_use]
    #[inline]
    pub fn shared(&self) -> &[u8] {
        match &self.body {
            Body::Shared(shared) => shared.as_slice(),
            _ => &[],
        }
    }

    /// Copies the contents to the place at `offset` of a slot in another ring: the one copy of
    /// the payload.
    ///
    /// # Panics
    /// When the slot is too short.
    #[inline]
    pub fn copy_into(&self, slot: &mut Slot<'_>, offset: usize) {
        let head = self.head();
        if !head.is_empty() {
            slot.write_at(offset, head);
        }
        match &self.body {
            Body::Empty => {}
            Body::Ring(lease) => slot.copy_from(lease, offset + head.len()),
            Body::Shared(shared) => slot.write_at(offset + head.len(), shared.as_slice()),
        }
    }

    /// Appends the contents to a vector.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.head());
        match &self.body {
            Body::Empty => {}
            Body::Ring(lease) => lease.append_to(to),
            Body::Shared(shared) => to.extend_from_slice(shared.as_slice()),
        }
    }

    /// Puts a header in front of the contents; false when the pool has no buffer or no headroom
    /// is left, the packet is then unchanged.
    #[must_use]
    pub fn push_header(&mut self, header: &[u8], pool: &Pool) -> bool {
        if self.head.is_none() {
            self.head = pool.take(0);
        }
        self.head
            .as_mut()
            .is_some_and(|head| head.push_front(header))
    }

    /// Takes `len` bytes off the front; false when there are not so many in one place.
    #[must_use]
    pub fn pull_header(&mut self, len: usize) -> bool {
        if let Some(head) = self.head.as_mut()
            && !head.is_empty()
        {
            return head.pull_front(len);
        }
        if self.body.len() < len {
            return false;
        }
        self.advance_body(len);
        true
    }

    fn advance_body(&mut self, count: usize) {
        match &mut self.body {
            Body::Empty => {}
            Body::Ring(lease) => lease.advance(count.min(lease.len())),
            Body::Shared(shared) => shared.advance(count),
        }
    }

    /// Moves what lies in a ring into a buffer, so that the ring's owner may release it. False
    /// when the pool has no buffer: the packet must be dropped then.
    #[must_use]
    pub fn materialise(&mut self, pool: &Pool) -> bool {
        if !matches!(self.body, Body::Ring(_)) {
            return true;
        }
        let Some(buffer) = pool.take(self.len()) else {
            return false;
        };
        self.move_into(buffer);
        true
    }

    /// Room for so many more bytes behind the contents; `None` when they do not end in a buffer, or
    /// it is full.
    #[inline]
    fn growing(&mut self, len: usize) -> Option<&mut [u8]> {
        match (&mut self.head, &self.body) {
            (Some(head), Body::Empty) => head.grow(len),
            _ => None,
        }
    }

    /// Copies all contents into a buffer of the same length and makes it the head.
    fn move_into(&mut self, mut buffer: Buffer) {
        let head = self.head();
        let (front, back) = buffer.as_mut_slice().split_at_mut(head.len());
        front.copy_from_slice(head);
        self.body.copy_to(back);
        self.body = Body::Empty;
        self.head = Some(buffer);
    }
}

/// Buffers come from the pool of the thread ([`Pool::serve_thread`]).
impl Payload for Packet {
    #[inline]
    fn len(&self) -> usize {
        Packet::len(self)
    }

    #[inline]
    fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let count = self.len().min(to.len());
        let head = self.head();
        let front = head.len().min(count);
        to[..front].copy_from_slice(&head[..front]);
        if count > front {
            self.body.copy_to(&mut to[front..count]);
        }
        count
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        let front = self.head().len().min(count);
        if front > 0
            && let Some(head) = self.head.as_mut()
        {
            let _ = head.pull_front(front);
        }
        if count > front {
            self.advance_body(count - front);
        }
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        let front = self.head().len();
        if front > len
            && let Some(head) = self.head.as_mut()
        {
            head.truncate(len);
        }
        match &mut self.body {
            Body::Empty => {}
            _ if front >= len => self.body = Body::Empty,
            Body::Ring(lease) => lease.truncate(len - front),
            Body::Shared(shared) => shared.truncate(len - front),
        }
    }

    #[inline]
    fn prepend(&mut self, header: &[u8]) -> bool {
        if let Some(head) = self.head.as_mut()
            && head.push_front(header)
        {
            return true;
        }
        let Some(mut fresh) = Pool::take_here(0) else {
            return false;
        };
        if !fresh.push_front(header) {
            return false;
        }
        match (self.head.take(), &self.body) {
            (None, _) => {}
            // The headroom is used up: the buffer becomes the body of a new head.
            (Some(full), Body::Empty) => self.body = Body::Shared(full.share()),
            (Some(full), _) => {
                self.head = Some(full);
                let Some(whole) = Pool::take_here(self.len()) else {
                    return false;
                };
                self.move_into(whole);
                return Payload::prepend(self, header);
            }
        }
        self.head = Some(fresh);
        true
    }

    fn share(&mut self) -> Option<Packet> {
        if matches!(self.body, Body::Empty)
            && let Some(head) = self.head.take()
        {
            self.body = Body::Shared(head.share());
        }
        let head = match &self.head {
            // Headers only: what is long has been moved to the body.
            Some(head) => {
                let mut copy = Pool::take_here(head.len())?;
                copy.as_mut_slice().copy_from_slice(head.as_slice());
                Some(copy)
            }
            None => None,
        };
        let body = match &self.body {
            Body::Empty => Body::Empty,
            Body::Ring(lease) => Body::Ring(lease.clone()),
            Body::Shared(shared) => Body::Shared(shared.clone()),
        };
        Some(Packet {
            head,
            body,
            more: self.more,
        })
    }

    #[inline]
    fn keep(&mut self) -> bool {
        if !matches!(self.body, Body::Ring(_)) {
            return true;
        }
        let Some(buffer) = Pool::take_here(self.len()) else {
            return false;
        };
        self.move_into(buffer);
        true
    }

    fn append_to(&self, to: &mut Vec<u8>) {
        Packet::append_to(self, to);
    }

    fn from_vec(bytes: Vec<u8>) -> Option<Packet> {
        let mut buffer = Pool::take_here(bytes.len())?;
        carina_ring::copy_slice(&bytes, buffer.as_mut_slice());
        Some(Packet::from_buffer(buffer, false))
    }

    fn with_capacity(capacity: usize) -> Option<Packet> {
        let mut buffer = Pool::take_here(capacity)?;
        buffer.truncate(0);
        Some(Packet::from_buffer(buffer, false))
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.growing(bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        true
    }

    #[inline]
    fn extend_with(&mut self, other: &Packet) -> bool {
        let Some(room) = self.growing(other.len()) else {
            return false;
        };
        Payload::copy_prefix(other, room);
        true
    }

    fn fit(&mut self) {
        let Some(head) = &self.head else { return };
        if head.len() >= head.room() / 3 {
            return;
        }
        if let Some(mut less) = Pool::take_here(head.len()) {
            carina_ring::copy_slice(head.as_slice(), less.as_mut_slice());
            self.head = Some(less);
        }
    }
}

/// Ring space in bytes that a record of `len` bytes takes: its header and padding to 8.
#[must_use]
#[inline]
pub fn record_cost(len: usize) -> u64 {
    carina_ring::record_cost(len) as u64
}

#[cfg(test)]
mod tests;
