//! A burst of received SDUs in one buffer.

use std::ops::Range;

/// Received SDUs in one buffer, which is allocated once and reused for each burst.
///
/// [`crate::FlowReceiver::recv_burst`] fills it.
#[derive(Clone, Debug)]
pub struct SduBatch {
    bytes: Vec<u8>,
    filled: usize,
    sdus: Vec<Range<usize>>,
    sdus_max: usize,
}

impl SduBatch {
    /// Creates a batch for at most `sdus_max` SDUs with at most `bytes_max` bytes in total.
    ///
    /// # Panics
    ///
    /// When `sdus_max` is 0.
    #[must_use]
    pub fn new(sdus_max: usize, bytes_max: usize) -> SduBatch {
        assert!(
            sdus_max > 0,
            "a batch without room for one SDU can never be filled"
        );
        SduBatch {
            bytes: vec![0; bytes_max],
            filled: 0,
            sdus: Vec::with_capacity(sdus_max),
            sdus_max,
        }
    }

    /// Returns the number of SDUs in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sdus.len()
    }

    /// Whether the batch contains no SDUs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sdus.is_empty()
    }

    /// Returns the total bytes of all SDUs in the batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.filled
    }

    /// Returns the SDUs in the order in which they were sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.sdus.iter().map(|range| &self.bytes[range.clone()])
    }

    pub(crate) fn clear(&mut self) {
        self.sdus.clear();
        self.filled = 0;
    }

    /// Whether the batch contains its largest number of SDUs already.
    pub(crate) fn is_full(&self) -> bool {
        self.sdus.len() == self.sdus_max
    }

    /// The free part of the buffer, after the last SDU.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Adds the first `length` bytes of [`Self::room`] to the batch as the next SDU.
    pub(crate) fn take(&mut self, length: usize) {
        let end = self.filled + length;
        self.sdus.push(self.filled..end);
        self.filled = end;
    }
}

#[cfg(test)]
mod tests {
    use super::SduBatch;

    #[test]
    fn batch_gives_back_what_was_put_in() {
        let mut batch = SduBatch::new(3, 8);
        batch.room()[..3].copy_from_slice(b"abc");
        batch.take(3);
        batch.take(0);
        batch.room()[..5].copy_from_slice(b"defgh");
        batch.take(5);
        assert!(batch.is_full());
        assert_eq!(
            batch.iter().collect::<Vec<_>>(),
            [&b"abc"[..], b"", b"defgh"]
        );
        assert_eq!(batch.bytes(), 8);
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch.room().len(), 8);
    }
}
