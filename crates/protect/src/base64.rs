//! Base 64 with padding (RFC 4648, section 4), as key files have it.

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_padding = digit > chunk.len();
            let value = group >> (18 - 6 * digit) & 63;
            out.push(match is_padding {
                true => '=',
                false => char::from(DIGITS[value as usize]),
            });
        }
    }
    out
}

/// Decodes what [`encode`] makes and nothing else; `None` for any other text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let digits = chunk.iter().take_while(|digit| **digit != b'=').count();
        let mut group = 0;
        for digit in &chunk[..digits] {
            let value = DIGITS.iter().position(|known| known == digit)?;
            group = group << 6 | value as u32;
        }
        group <<= 6 * (4 - digits);
        out.extend_from_slice(&group.to_be_bytes()[1..][..digits.saturating_sub(1)]);
    }
    // One text for one value: no stray padding, no stray bits.
    (encode(&out) == text).then_some(out)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9v=", "Zm9v====", "Z?==", "Zg==Zg==",
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_survived(text in ".*") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
