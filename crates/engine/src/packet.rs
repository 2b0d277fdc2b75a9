//! A packet: some bytes of headers in a buffer, and a payload that stays in the ring it came from.

use carina_ring::{Lease, Slot};

use crate::pool::{Buffer, Pool};

/// A piece of an SDU on its way through the data plane. Its contents are those of the head, then
/// those of the body.
pub struct Packet {
    head: Option<Buffer>,
    body: Option<Lease>,
    more: bool,
}

impl Packet {
    /// A packet whose contents are what is in view of a record in a ring; `more` when a further
    /// piece of the same SDU follows.
    #[must_use]
    pub fn from_lease(lease: Lease, more: bool) -> Packet {
        Packet {
            head: None,
            body: Some(lease),
            more,
        }
    }

    /// A packet whose contents are a buffer.
    #[must_use]
    pub fn from_buffer(buffer: Buffer, more: bool) -> Packet {
        Packet {
            head: Some(buffer),
            body: None,
            more,
        }
    }

    /// Length of the contents in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head().len() + self.body.as_ref().map_or(0, Lease::len)
    }

    /// True for an SDU of no bytes, which is an SDU all the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when a further piece of the same SDU follows.
    #[must_use]
    pub fn more(&self) -> bool {
        self.more
    }

    /// The part of the contents that lies in a buffer.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.as_ref().map_or(&[], Buffer::as_slice)
    }

    /// The part of the contents that lies in a ring.
    #[must_use]
    pub fn body(&self) -> Option<&Lease> {
        self.body.as_ref()
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
        if let Some(body) = &self.body {
            slot.copy_from(body, offset + head.len());
        }
    }

    /// Appends the contents to a vector.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.head());
        if let Some(body) = &self.body {
            let at = to.len();
            to.resize(at + body.len(), 0);
            body.copy_range(0, &mut to[at..]);
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
            && !head.as_slice().is_empty()
        {
            return head.pull_front(len);
        }
        match self.body.as_mut() {
            Some(body) if body.len() >= len => {
                body.advance(len);
                true
            }
            _ => len == 0,
        }
    }

    /// Moves the contents out of the ring into a buffer, so that the ring's owner may release it.
    /// False when the pool has no buffer: the packet must be dropped then.
    #[must_use]
    pub fn materialise(&mut self, pool: &Pool) -> bool {
        let Some(body) = self.body.take() else {
            return true;
        };
        let head = self.head.take();
        let head_len = head.as_ref().map_or(0, |head| head.as_slice().len());
        let Some(mut buffer) = pool.take(head_len + body.len()) else {
            return false;
        };
        let (front, back) = buffer.as_mut_slice().split_at_mut(head_len);
        if let Some(head) = &head {
            front.copy_from_slice(head.as_slice());
        }
        body.copy_range(0, back);
        self.head = Some(buffer);
        true
    }
}

/// Ring space in bytes that a record of `len` bytes takes: its header and padding to 8.
#[must_use]
#[inline]
pub fn record_cost(len: usize) -> u64 {
    carina_ring::record_cost(len) as u64
}
