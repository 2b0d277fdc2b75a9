//! Copies of 8 to 16 bytes between registers and memory that a peer may change.

/// 8 to 16 bytes, held as two words of eight bytes that may overlap: the first eight and the last
/// eight.
///
/// The bytes stay in registers. If they were built on the stack from smaller stores and then read
/// as a whole, the read would wait for these stores and for all stores before them, some of which
/// may be to cache lines that another processor owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBytes {
    first: u64,
    last: u64,
    len: usize,
}

impl SmallBytes {
    /// Largest number of bytes that a value holds.
    pub const MAX: usize = 16;

    /// Creates the value from the `len` lowest bytes of a number, the lowest first.
    ///
    /// # Panics
    /// `len` is not 8 to 16.
    #[inline]
    #[must_use]
    pub fn new(bytes: u128, len: usize) -> SmallBytes {
        assert!(SmallBytes::fits(len), "{len} bytes are not 8 to 16");
        SmallBytes {
            first: bytes as u64,
            last: (bytes >> (8 * (len - 8))) as u64,
            len,
        }
    }

    #[inline]
    fn fits(len: usize) -> bool {
        (8..=SmallBytes::MAX).contains(&len)
    }

    /// Returns the number of bytes, 8 to 16.
    #[expect(clippy::len_without_is_empty, reason = "there are 8 at least")]
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes, at the start of an array that is otherwise zero.
    #[must_use]
    pub fn bytes(&self) -> [u8; SmallBytes::MAX] {
        let mut bytes = [0; SmallBytes::MAX];
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[self.len - 8..self.len].copy_from_slice(&self.last.to_le_bytes());
        bytes
    }

    /// Whether the memory at `at` holds exactly these bytes.
    ///
    /// # Safety
    /// [`SmallBytes::len`] bytes at `at` must be readable; another process may write them at the
    /// same time.
    #[inline]
    #[must_use]
    pub unsafe fn are_at(&self, at: *const u8) -> bool {
        // SAFETY: the caller's promise; the last eight bytes end with the length, which is 8 at
        // least.
        let (first, last) = unsafe { (load(at), load(at.add(self.len - 8))) };
        (first, last) == (self.first, self.last)
    }

    /// Writes the bytes to `to`.
    ///
    /// # Safety
    /// [`SmallBytes::len`] bytes at `to` must be writable; another process may access them at the
    /// same time.
    #[inline]
    pub unsafe fn write(&self, to: *mut u8) {
        // SAFETY: as in `are_at`.
        unsafe {
            store(self.first, to);
            store(self.last, to.add(self.len - 8));
        }
    }
}

/// Reads eight bytes once, at any alignment.
///
/// # Safety
/// They must be readable.
#[inline]
unsafe fn load(at: *const u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    unsafe {
        let word: u64;
        core::arch::asm!(
            "mov {word}, qword ptr [{at}]",
            at = in(reg) at, word = out(reg) word,
            options(nostack, preserves_flags, readonly),
        );
        word
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise, byte by byte.
    unsafe {
        u64::from_le_bytes(core::array::from_fn(|byte| at.add(byte).read_volatile()))
    }
}

/// Writes eight bytes once, at any alignment.
///
/// # Safety
/// They must be writable.
#[inline]
unsafe fn store(word: u64, to: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "mov qword ptr [{to}], {word}",
            to = in(reg) to, word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise, byte by byte.
    unsafe {
        for (at, byte) in word.to_le_bytes().into_iter().enumerate() {
            to.add(at).write_volatile(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_written_compared_and_nothing_beside_it() {
        let bytes: [u8; 16] = core::array::from_fn(|at| at as u8 + 1);
        for len in 8..=16 {
            let small = SmallBytes::new(u128::from_le_bytes(bytes), len);
            assert_eq!((small.len(), &small.bytes()[..len]), (len, &bytes[..len]));
            assert!(small.bytes()[len..].iter().all(|&byte| byte == 0));
            let mut room = [0xee_u8; 20];
            // SAFETY: 19 bytes are there from the second one on.
            let (before, after) = unsafe {
                let at = room.as_mut_ptr().add(1);
                let before = small.are_at(at);
                small.write(at);
                (before, small.are_at(at))
            };
            assert!(!before && after);
            assert_eq!(room[1..=len], bytes[..len]);
            assert!(room[len + 1..].iter().all(|&byte| byte == 0xee) && room[0] == 0xee);
            for changed in 1..=len {
                let mut other = room;
                other[changed] ^= 0x80;
                // SAFETY: as above.
                assert!(unsafe { !small.are_at(other.as_ptr().add(1)) });
            }
        }
    }

    #[test]
    #[should_panic(expected = "7 bytes are not 8 to 16")]
    fn fewer_are_refused() {
        let _ = SmallBytes::new(0, 7);
    }
}
