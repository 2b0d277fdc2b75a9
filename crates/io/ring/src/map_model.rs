//! The memory of a ring in a loom model: atomics that loom schedules, and data for which loom
//! checks the order of accesses.

use core::sync::atomic::AtomicU64;

use loom::cell::UnsafeCell;

use super::{Lines, RingMap};

#[derive(Debug)]
pub(super) struct Model {
    lines: Lines,
    data: Box<[AtomicU64]>,
    /// One cell for each 8 bytes of data. It holds nothing; loom sees which thread accesses it
    /// when.
    touched: Box<[UnsafeCell<()>]>,
}

// SAFETY: loom reports unordered access to `touched`, which is what the models look for.
unsafe impl Sync for Model {}

impl RingMap {
    /// Creates a ring of `capacity` bytes, a power of two of at least 16. Its data is not mirrored:
    /// the model must choose records that do not cross the end.
    #[must_use]
    pub fn model(capacity: usize) -> Self {
        let words = capacity / 8;
        let model = Model {
            lines: Lines::default(),
            data: (0..words).map(|_| AtomicU64::new(0)).collect(),
            touched: (0..words).map(|_| UnsafeCell::new(())).collect(),
        };
        Self { model, capacity }
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.model.lines
    }

    pub(crate) fn data(&self, index: u64) -> *mut u8 {
        let at = index as usize & (self.capacity - 1);
        self.model.data[at / 8]
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(at % 8)
    }

    pub(crate) fn note_write(&self, index: u64, bytes: usize) {
        for word in self.words(index, bytes) {
            word.with_mut(|_| ());
        }
    }

    pub(crate) fn note_read(&self, index: u64, bytes: usize) {
        for word in self.words(index, bytes) {
            word.with(|_| ());
        }
    }

    fn words(&self, index: u64, bytes: usize) -> &[UnsafeCell<()>] {
        let at = (index as usize & (self.capacity - 1)) / 8;
        &self.model.touched[at..at + bytes.div_ceil(8)]
    }
}
