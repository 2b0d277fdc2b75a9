//! The Internet checksum (RFC 1071) over little-endian words. In this use 0 means "no checksum"; a
//! computed 0 is written as 0xffff, the other zero of one's complement.

/// Computes the checksum of bytes whose checksum field is 0.
pub(super) fn of(bytes: &[u8]) -> u16 {
    match !sum(bytes) {
        0 => u16::MAX,
        sum => sum,
    }
}

/// Whether bytes that contain their checksum are undamaged.
pub(super) fn is_right(bytes: &[u8]) -> bool {
    sum(bytes) == u16::MAX
}

/// Updates a checksum after one 16-bit word has changed (RFC 1624, equation 3).
pub(super) fn changed(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = fold(u64::from(!checksum) + u64::from(!before) + u64::from(after));
    match !sum {
        0 => u16::MAX,
        sum => sum,
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let mut pairs = bytes.chunks_exact(2);
    let mut sum = 0;
    for pair in &mut pairs {
        sum += u64::from(u16::from_le_bytes([pair[0], pair[1]]));
    }
    if let [last] = pairs.remainder() {
        sum += u64::from(*last);
    }
    fold(sum)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 1071, section 3: the sum of these words is ddf2, in either byte order.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), (!0xddf2_u16).swap_bytes());
        let mut whole = bytes.to_vec();
        whole.extend(of(&bytes).to_le_bytes());
        assert!(is_right(&whole));
        whole[3] ^= 1;
        assert!(!is_right(&whole));
    }

    #[test]
    fn an_incremental_checksum_equals_a_recomputed_one() {
        let mut bytes = [0, 0, 0x40, 0, 0x12, 0x34, 0xff];
        for ttl in (0..=255).rev() {
            bytes[2] = ttl;
            let before = of(&bytes);
            let old = u16::from(ttl);
            bytes[2] = ttl.wrapping_sub(1);
            let now = changed(before, old, u16::from(bytes[2]));
            assert_eq!(now, of(&bytes), "from {ttl}");
        }
    }
}
