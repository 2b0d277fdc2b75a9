//! The content of SDUs: a sequence number if there is room for one, then bytes that are computed
//! from the number.

/// SDUs of at least this size carry a sequence number in their first 8 bytes.
pub const NUMBERED_BYTES_MIN: usize = 16;
const NUMBER_BYTES: usize = 8;
/// Length of the repeating pattern. It is a prime, so that it never lines up with pages or pieces.
const PATTERN_BYTES: usize = 251;
/// Number of bytes compared at once.
const CHECK_BYTES: usize = 64 * PATTERN_BYTES;

/// Produces the SDUs of a sender in one buffer: for each SDU it writes only the number; the rest of
/// the content is written once.
#[derive(Debug)]
pub struct Payload {
    pattern: Vec<u8>,
    check: Vec<u8>,
    vary: bool,
}

impl Payload {
    /// A buffer for SDUs of up to `max` bytes. With `vary` the pattern shifts with the number, so
    /// that every byte of an SDU differs from that of its neighbours.
    pub fn new(max: usize, vary: bool) -> Self {
        let pattern = |bytes: usize| (0..bytes).map(|i| (i % PATTERN_BYTES) as u8).collect();
        Self {
            pattern: pattern(max.max(NUMBER_BYTES) + PATTERN_BYTES),
            check: pattern(CHECK_BYTES + PATTERN_BYTES),
            vary,
        }
    }

    fn start(&self, number: u64) -> usize {
        if self.vary {
            (number % PATTERN_BYTES as u64) as usize
        } else {
            0
        }
    }

    /// The SDU with the given number and size.
    #[inline]
    pub fn sdu(&mut self, number: u64, size: usize) -> &[u8] {
        let start = self.start(number);
        if self.vary {
            self.heal();
        }
        if size < NUMBERED_BYTES_MIN {
            return &self.pattern[start..start + size];
        }
        let sdu = &mut self.pattern[start..start + size];
        sdu[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        sdu
    }

    /// Restores the pattern where the numbers of earlier SDUs were written.
    fn heal(&mut self) {
        for (i, byte) in self.pattern[..PATTERN_BYTES + NUMBER_BYTES]
            .iter_mut()
            .enumerate()
        {
            *byte = (i % PATTERN_BYTES) as u8;
        }
    }

    /// Whether an SDU equals what [`Payload::sdu`] produces for its number. SDUs too short for a
    /// number are checked as number `fallback`.
    pub fn matches(&self, sdu: &[u8], fallback: u64) -> bool {
        let (number, from) = match number(sdu) {
            Some(number) => (number, NUMBER_BYTES),
            None => (fallback, 0),
        };
        let start = (self.start(number) + from) % PATTERN_BYTES;
        // Every chunk is a whole number of patterns, so each begins at the same position of the
        // pattern.
        let mut chunks = sdu[from..].chunks(CHECK_BYTES);
        chunks.all(|chunk| *chunk == self.check[start..start + chunk.len()])
    }
}

/// The sequence number of an SDU; `None` if the SDU is too short to have one.
#[inline]
pub fn number(sdu: &[u8]) -> Option<u64> {
    if sdu.len() < NUMBERED_BYTES_MIN {
        return None;
    }
    sdu.first_chunk::<NUMBER_BYTES>()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sdu_matches_its_number_and_no_other() {
        let mut payload = Payload::new(50_000, true);
        let checker = Payload::new(0, true);
        for n in 0..600u64 {
            let size = (n * n * 37 % 50_001) as usize;
            let sdu = payload.sdu(n, size).to_vec();
            assert_eq!(sdu.len(), size);
            assert!(checker.matches(&sdu, n), "number {n}, size {size}");
            if size > 0 {
                let mut bad = sdu.clone();
                bad[size - 1] ^= 1;
                assert!(!checker.matches(&bad, n), "number {n}, size {size}");
            }
        }
    }

    #[test]
    fn short_sdus_have_no_number() {
        let mut payload = Payload::new(16, false);
        assert_eq!(number(payload.sdu(7, 15)), None);
        assert_eq!(number(payload.sdu(7, 16)), Some(7));
    }
}
