//! The bytes that data transfer moves, independent of where they are stored.
//!
//! An SDU may lie in a ring that an application shares, in a buffer of a pool, or in a vector of a
//! simulation. Protocol machines access all of them through [`Payload`].

use alloc::sync::Arc;
use alloc::vec::Vec;

/// A sequence of bytes, with space in front for headers.
pub trait Payload: Sized {
    /// Returns the number of bytes that the payload holds.
    fn len(&self) -> usize;

    /// True when the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the first bytes into `to`, as many as exist and fit. Returns how many.
    fn copy_prefix(&self, to: &mut [u8]) -> usize;

    /// Removes `count` bytes from the front. The payload becomes empty if it has fewer.
    fn advance(&mut self, count: usize);

    /// Keeps only the first `len` bytes. A shorter payload does not change.
    fn truncate(&mut self, len: usize);

    /// Puts a header of at most 64 bytes in front. Returns false when no buffer is free for it; the
    /// caller must then drop the PDU and count it.
    #[must_use]
    fn prepend(&mut self, header: &[u8]) -> bool;

    /// Returns a second handle to the same bytes, normally without a copy. Each handle is valid as
    /// long as the other, or longer after [`Payload::keep`]. `None` when no buffer is free.
    fn share(&mut self) -> Option<Self>;

    /// Makes the bytes valid beyond the current burst. Before this call they may lie in a ring
    /// whose space is released at the end of the burst. Returns false when no buffer is free; the
    /// caller must then drop the payload.
    #[must_use]
    fn keep(&mut self) -> bool;

    /// Appends the bytes of the payload to the vector `to`, without changing the payload.
    fn append_to(&self, to: &mut Vec<u8>);

    /// Makes a payload with the bytes of a vector. `None` when no buffer is free.
    fn from_vec(bytes: Vec<u8>) -> Option<Self>;

    /// Makes an empty payload to which `capacity` bytes can be appended. `None` when no buffer is
    /// free.
    #[must_use]
    fn with_capacity(capacity: usize) -> Option<Self> {
        Self::from_vec(Vec::with_capacity(capacity))
    }

    /// Appends bytes to a payload made by [`Payload::with_capacity`]. Returns false and appends
    /// nothing when there is no room.
    #[must_use]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let mut whole = Vec::with_capacity(self.len() + bytes.len());
        self.append_to(&mut whole);
        whole.extend_from_slice(bytes);
        self.replace(whole)
    }

    /// Appends the bytes of another payload, like [`Payload::extend`]; returns false and appends
    /// nothing when there is no room.
    #[must_use]
    fn extend_with(&mut self, other: &Self) -> bool {
        let mut whole = Vec::with_capacity(self.len() + other.len());
        self.append_to(&mut whole);
        other.append_to(&mut whole);
        self.replace(whole)
    }

    /// Declares that nothing more will be appended. The payload may release unused capacity.
    fn fit(&mut self) {}

    /// Replaces the contents by the bytes of a vector. Returns false when no buffer is free; the
    /// old contents then remain.
    #[must_use]
    fn replace(&mut self, bytes: Vec<u8>) -> bool {
        Self::from_vec(bytes).map(|whole| *self = whole).is_some()
    }
}

/// A payload in a vector, for simulations, tests and layer management. Handles from
/// [`Payload::share`] share the vector until one of them writes.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl Bytes {
    /// Returns the bytes of the payload.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The vector, made exclusive to this handle and truncated to the payload's end.
    fn own(&mut self) -> &mut Vec<u8> {
        if Arc::get_mut(&mut self.bytes).is_none() {
            *self = self.copy(&[]);
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(self.end);
        bytes
    }

    /// A copy with headroom and with `header` in front of the bytes.
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

/// Headroom of a copy in bytes, for further headers.
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
