//! How many bytes a read of a stream socket requests, by what earlier reads returned.

/// Returns how many bytes the next read requests after one that requested `asked` bytes and
/// returned `bytes`. A buffer takes its whole length from the pool, however few bytes are in it;
/// so after a small read the next one requests less.
pub(crate) fn next_read_bytes(asked: usize, bytes: usize) -> usize {
    if bytes == asked {
        (asked * 2).clamp(READ_BYTES_MIN, READ_BYTES_MAX)
    } else if bytes < asked / 2 {
        (asked / 2).max(READ_BYTES_MIN)
    } else {
        asked.max(READ_BYTES_MIN)
    }
}

/// Largest number of bytes that one read of the socket requests; they become one SDU. A longer SDU
/// has a smaller share of the fixed cost of an SDU, which is large in a VM.
pub(crate) const READ_BYTES_MAX: usize = 131_072;

/// Fewest bytes that a read requests.
pub(crate) const READ_BYTES_MIN: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_grow_with_the_bytes_that_wait() {
        let mut asked = READ_BYTES_MIN;
        for _ in 0..5 {
            asked = next_read_bytes(asked, asked);
        }
        assert_eq!(asked, READ_BYTES_MAX);
        // Half as many bytes change nothing, fewer do.
        assert_eq!(next_read_bytes(asked, asked / 2), asked);
        assert_eq!(next_read_bytes(asked, 100), asked / 2);
        assert_eq!(next_read_bytes(READ_BYTES_MIN, 1), READ_BYTES_MIN);
    }
}
