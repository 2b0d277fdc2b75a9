//! Escapes for text on the command port, in the notation of `%b` of printf(1).

/// Escapes any bytes so that they are one word of a line.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + bytes.len() / 8);
    let last = bytes.len().saturating_sub(1);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            // The shell that reads the line trims spaces at both ends.
            b' ' if at == 0 || at == last => text.push_str("\\0040"),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\0{byte:03o}")),
        }
    }
    text
}

#[cfg(test)]
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'\\', [b'0', digits @ ..]) => {
                let digits = std::str::from_utf8(&digits[..3]).unwrap();
                bytes.push(u8::from_str_radix(digits, 8).unwrap());
                rest = &tail[4..];
            }
            (b'\\', [c, ..]) => {
                bytes.push(if *c == b'n' { b'\n' } else { *c });
                rest = &tail[1..];
            }
            _ => bytes.push(byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_from_one_trimmed_line() {
        let every: Vec<u8> = (0..=255).cycle().skip(32).take(600).collect();
        for bytes in [&every[..], b" a  b ", b"\\0101\\c", b"", b" "] {
            let text = escape(bytes);
            assert_eq!(text.trim(), text);
            assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            assert_eq!(unescape(&text), bytes);
        }
    }

    #[test]
    fn printf_undoes_the_escapes() {
        let every: Vec<u8> = (0..=255).collect();
        let mut printf = std::process::Command::new("busybox");
        let printf = printf.args(["printf", "%b", &escape(&every)]).output();
        assert_eq!(printf.unwrap().stdout, every);
    }
}
