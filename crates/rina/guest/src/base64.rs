//! Base 64 (RFC 4648, section 4), in which bytes can be sent over a serial port.

/// Encodes bytes as lines of base64, each with a line end. Returns an empty text for no bytes.
pub(crate) fn encode_lines(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 64);
    for line in bytes.chunks(LINE_BYTES) {
        encode_into(&mut text, line);
        text.push('\n');
    }
    text
}

/// Appends bytes in base64, on one line.
pub(crate) fn encode_into(text: &mut String, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) & 63;
            text.push(if place <= group.len() {
                char::from(DIGITS[digit as usize])
            } else {
                '='
            });
        }
    }
}

/// Decodes base64; `None` if the text is invalid.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"="));
    let digits = digits.unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut word = 0_u32;
        for digit in group {
            let value = DIGITS.iter().position(|candidate| candidate == digit)?;
            word = word << 6 | value as u32;
        }
        word <<= 6 * (4 - group.len());
        let all = word.to_be_bytes();
        bytes.extend_from_slice(&all[1..group.len()]);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Bytes per line. A line has 760 digits; the host accepts lines of 4096.
const LINE_BYTES: usize = 570;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_the_standard() {
        // Examples of RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg==\n"),
            ("fo", "Zm8=\n"),
            ("foo", "Zm9v\n"),
            ("foobar", "Zm9vYmFy\n"),
        ] {
            assert_eq!(encode_lines(bytes.as_bytes()), text);
            let back = decode(text.trim_end());
            assert_eq!(back.as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode("Zg="), None);
        assert_eq!(decode("Z*=="), None);
    }

    #[test]
    fn every_byte_comes_back() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        let text = encode_lines(&bytes);
        assert_eq!(text.lines().count(), 4);
        let parts = text.lines().flat_map(|line| decode(line).unwrap());
        assert_eq!(parts.collect::<Vec<u8>>(), bytes);
    }
}
