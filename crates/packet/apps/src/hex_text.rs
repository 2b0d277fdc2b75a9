//! Bytes in configuration files, as hexadecimal text.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `N` bytes, written as hexadecimal digits in files: `00112233`, with or without `0x` in front.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexText<const N: usize>(pub [u8; N]);

/// Like [`HexText`], for keys: `Debug` does not show the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretHex<const N: usize>(HexText<N>);

impl<const N: usize> SecretHex<N> {
    /// Makes a secret, such as a key, of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; N]) -> SecretHex<N> {
        SecretHex(HexText(bytes))
    }

    /// The bytes of the secret.
    #[must_use]
    pub fn bytes(&self) -> &[u8; N] {
        &self.0.0
    }
}

impl<const N: usize> fmt::Debug for SecretHex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({N} secret bytes)")
    }
}

impl<const N: usize> fmt::Display for HexText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for HexText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Serialize for HexText<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for HexText<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HexText<N>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        decode(digits).map(HexText).ok_or_else(|| {
            // The error must not reveal the text, which may be a key and would be logged.
            let found = digits.chars().count();
            D::Error::custom(format!(
                "{found} characters: must be {} digits 0 to f",
                2 * N
            ))
        })
    }
}

fn decode<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_all_else_is_refused() {
        assert_eq!(decode("00fF"), Some([0x00, 0xff]));
        for wrong in ["00f", "00fff", "0g", "", "ää"] {
            assert_eq!(decode::<2>(wrong), None, "{wrong}");
        }
    }
}
