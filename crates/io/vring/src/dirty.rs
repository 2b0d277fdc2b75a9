//! The dirty log: which pages of a guest were written, for live migration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use carina_sys::Mapping;

/// One bit for each page of the guest, which the device sets when it writes to the page.
/// (vhost-user, "Migration"; such a page has 4096 bytes, whatever the guest's page size)
#[derive(Clone, Debug)]
pub struct DirtyLog {
    mapping: Arc<Mapping>,
    offset: usize,
    bytes: usize,
}

impl DirtyLog {
    /// Makes the log of `bytes` bytes at `offset` in a mapping; `None` if it is not within the
    /// mapping.
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, offset: usize, bytes: usize) -> Option<DirtyLog> {
        let within = mapping.len().checked_sub(offset)?;
        (bytes <= within).then_some(DirtyLog {
            mapping,
            offset,
            bytes,
        })
    }

    /// Whether a page of the log itself is lost ([`Mapping::is_lost`]).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Marks the pages of `len` bytes at a guest address. Pages beyond the end of the log are not
    /// marked.
    pub fn mark(&self, guest: u64, len: u64) {
        if len == 0 {
            return;
        }
        // The write must be visible before its page is marked, also if the page is marked already:
        // a process that clears the mark in between then reads the new contents.
        fence(Ordering::SeqCst);
        let last = guest.saturating_add(len - 1) / PAGE;
        for page in guest / PAGE..=last {
            let (byte, bit) = (page / 8, 1 << (page % 8));
            if byte >= self.bytes as u64 {
                return;
            }
            let byte = self.byte(byte as usize);
            if byte.load(Ordering::Relaxed) & bit == 0 {
                byte.fetch_or(bit, Ordering::Release);
            }
        }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.bytes);
        // SAFETY: offset and length of the log were checked to be within the mapping, which lives
        // as long as `self`; other processes access the byte atomically.
        unsafe { AtomicU8::from_ptr(self.mapping.as_ptr().add(self.offset + at)) }
    }
}

const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use carina_sys::Memory;

    use super::*;

    #[test]
    fn pages_of_a_range_are_marked() {
        let mapping = Arc::new(Memory::anonymous("log", 4096).unwrap().map().unwrap());
        let log = DirtyLog::new(Arc::clone(&mapping), 8, 16).unwrap();
        log.mark(4095, 2);
        log.mark(9 * PAGE, 1);
        log.mark(0, 0);
        // Beyond the end of the log, and beyond all addresses.
        log.mark(127 * PAGE, 10 * PAGE);
        log.mark(u64::MAX, 5);
        let mut bytes = [0; 24];
        mapping.read(0, &mut bytes);
        assert_eq!(bytes[8..11], [3, 2, 0]);
        assert_eq!(bytes[23], 0x80);
        assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 4);
        assert!(DirtyLog::new(mapping, 4090, 7).is_none());
    }
}
