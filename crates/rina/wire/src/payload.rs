//! The bytes that data transfer moves, independent of their owner.
//!
//! A protocol machine neither knows nor cares whether an SDU lies in a ring that an application
//! shares, in a buffer of a pool or in a vector of a simulation. [`Payload`] is all it needs.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// A run of bytes with room in front for headers.
pub trait Payload: Sized {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// True when the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the first bytes, as many as there are and fit; returns how many.
    fn copy_prefix(&self, to: &mut [u8]) -> usize;

    /// Takes `count` bytes off the front; more than there are empties it.
    fn advance(&mut self, count: usize);

    /// Cuts to the first `len` bytes; longer content stays as it is.
    fn truncate(&mut self, len: usize);

    /// Puts a header of at most 64 bytes in front. False when there is no buffer for it: the PDU
    /// must be dropped then, under a counted reason.
    #[must_use]
    fn prepend(&mut self, header: &[u8]) -> bool;

    /// A second handle to the same bytes, which data transfer expects not to copy them: each lasts
    /// as long as the other, or until it is made to last by [`Payload::keep`]. `None` when there is
    /// no buffer.
    fn share(&mut self) -> Option<Self>;

    /// Makes the bytes last beyond the present burst: before it they may lie in a ring whose
    /// space is given back at the burst's end. False when there is no buffer: it must be dropped.
    #[must_use]
    fn keep(&mut self) -> bool;

    /// Appends the bytes to a vector.
    fn append_to(&self, to: &mut Vec<u8>);

    /// Takes over a vector. `None` when there is no buffer.
    fn from_vec(bytes: Vec<u8>) -> Option<Self>;

    /// An empty payload with room for `capacity` bytes to be appended. `None` when there is no
    /// buffer.
    #[must_use]
    fn with_capacity(capacity: usize) -> Option<Self> {
        Self::from_vec(Vec::with_capacity(capacity))
    }

    /// Appends bytes to a payload that was made [`Payload::with_capacity`]. False, and nothing is
    /// appended, when there is no room.
    #[must_use]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let mut whole = Vec::with_capacity(self.len() + bytes.len());
        self.append_to(&mut whole);
        whole.extend_from_slice(bytes);
        self.replace(whole)
    }

    /// The same with the bytes of another payload.
    #[must_use]
    fn extend_with(&mut self, other: &Self) -> bool {
        let mut whole = Vec::with_capacity(self.len() + other.len());
        self.append_to(&mut whole);
        other.append_to(&mut whole);
        self.replace(whole)
    }

    /// Nothing more will be appended: much room that was not used is given back.
    fn fit(&mut self) {}

    /// Takes over a vector in place of what is there. False when there is no buffer; what was
    /// there stays.
    #[must_use]
    fn replace(&mut self, bytes: Vec<u8>) -> bool {
        Self::from_vec(bytes).map(|whole| *self = whole).is_some()
    }
}

/// A payload in a vector: for simulations, tests and management. Handles of [`Payload::share`] have
/// the vector in common until one of them writes.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl Bytes {
    /// The content.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The vector, owned by this handle alone and ending with its content.
    fn own(&mut self) -> &mut Vec<u8> {
        if Arc::get_mut(&mut self.bytes).is_none() {
            *self = self.copy(&[]);
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(self.end);
        bytes
    }

    /// A copy with room in front and a header before the content.
    fn copy(&self, header: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADROOM + header.len() + self.len());
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(self.as_slice());
        Bytes {
            start: HEADROOM,
            end: bytes.len(),
            bytes: Arc::new(bytes),
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Bytes {}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes {
            start: 0,
            end: bytes.len(),
            bytes: Arc::new(bytes),
        }
    }
}

impl Payload for Bytes {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let count = self.len().min(to.len());
        to[..count].copy_from_slice(&self.as_slice()[..count]);
        count
    }

    fn advance(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    fn prepend(&mut self, header: &[u8]) -> bool {
        let room = self.start.checked_sub(header.len());
        if let (Some(start), Some(bytes)) = (room, Arc::get_mut(&mut self.bytes)) {
            bytes[start..self.start].copy_from_slice(header);
            self.start = start;
        } else {
            *self = self.copy(header);
        }
        true
    }

    fn share(&mut self) -> Option<Bytes> {
        Some(self.clone())
    }

    fn keep(&mut self) -> bool {
        true
    }

    fn append_to(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.as_slice());
    }

    fn from_vec(bytes: Vec<u8>) -> Option<Bytes> {
        Some(Bytes::from(bytes))
    }

    fn extend(&mut self, bytes: &[u8]) -> bool {
        self.own().extend_from_slice(bytes);
        self.end += bytes.len();
        true
    }

    fn extend_with(&mut self, other: &Bytes) -> bool {
        self.extend(other.as_slice())
    }

    fn fit(&mut self) {
        self.own().shrink_to_fit();
    }
}

/// Room made for further headers when the first does not fit, in bytes.
const HEADROOM: usize = 96;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn headers_go_on_and_come_off() {
        let mut bytes = Bytes::from(vec![4, 5]);
        assert!(bytes.prepend(&[2, 3]) && bytes.prepend(&[1]));
        assert_eq!(bytes.as_slice(), [1, 2, 3, 4, 5]);
        bytes.advance(2);
        bytes.truncate(2);
        assert_eq!(bytes.as_slice(), [3, 4]);
        let mut two = [0; 4];
        assert_eq!(bytes.copy_prefix(&mut two), 2);
        bytes.advance(9);
        assert!(bytes.is_empty());
    }

    #[test]
    fn shared_handles_write_apart() {
        let mut one = Bytes::from(vec![0, 1, 2, 3]);
        one.advance(1);
        let mut two = one.share().expect("a handle");
        two.truncate(1);
        assert!(one.prepend(&[7]) && two.prepend(&[8]) && two.extend(&[9]));
        assert_eq!(one.as_slice(), [7, 1, 2, 3]);
        assert_eq!(two.as_slice(), [8, 1, 9]);
        one.truncate(2);
        assert!(one.extend_with(&two));
        assert_eq!(one.as_slice(), [7, 1, 8, 1, 9]);
    }
}
