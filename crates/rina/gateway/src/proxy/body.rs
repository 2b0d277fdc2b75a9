//! Where the body of a request ends (RFC 9112 §6 and §7): no byte behind it belongs to the server.

use thiserror::Error;

/// How many bytes of an HTTP request's body the client still has to send, or in which coding it
/// sends them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// The body ends after this number of further bytes.
    Length(u64),
    Chunked(Chunks),
}

/// A parser of the chunked transfer coding, which finds the end of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunks {
    state: Chunk,
    /// Number of bytes of extensions and trailers so far, which is limited.
    overhead: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size {
        value: u64,
        digits: u8,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// The start of a line of the trailer section.
    Line,
    InLine,
    LineEnd,
    LastLineEnd,
    End,
}

/// Bytes that are not in the chunked transfer coding.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the chunks of the request's body are malformed")]
pub(crate) struct ChunkError;

impl Body {
    pub(crate) fn chunked() -> Body {
        let state = Chunk::FIRST;
        Body::Chunked(Chunks { state, overhead: 0 })
    }

    /// Parses further bytes of the client. Returns how many of them belong to the body.
    ///
    /// # Errors
    /// The bytes are not in the chunked transfer coding.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        match self {
            Body::Length(left) => {
                let taken = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= taken as u64;
                Ok(taken)
            }
            Body::Chunked(chunks) => chunks.take(bytes),
        }
    }

    /// Whether the body has been parsed to its end.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunks) => chunks.state == Chunk::End,
        }
    }
}

impl Chunks {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        let mut at = 0;
        while at < bytes.len() && self.state != Chunk::End {
            if let Chunk::Data { left } = self.state {
                let taken = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len() - at);
                at += taken;
                self.state = match left - taken as u64 {
                    0 => Chunk::DataCr,
                    left => Chunk::Data { left },
                };
                continue;
            }
            self.state = self.state.next(bytes[at]).ok_or(ChunkError)?;
            if matches!(
                self.state,
                Chunk::Extension { .. } | Chunk::InLine | Chunk::LineEnd
            ) {
                self.overhead += 1;
                if self.overhead > OVERHEAD_BYTES_MAX {
                    return Err(ChunkError);
                }
            }
            at += 1;
        }
        Ok(at)
    }
}

impl Chunk {
    const FIRST: Chunk = Chunk::Size {
        value: 0,
        digits: 0,
    };

    /// Returns the state after one more byte; `None` if the byte is not allowed in this state.
    fn next(self, byte: u8) -> Option<Chunk> {
        Some(match (self, byte) {
            (Chunk::Size { value, digits }, byte) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16)?;
                if digits >= SIZE_DIGITS_MAX {
                    return None;
                }
                Chunk::Size {
                    value: value << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Chunk::Size { digits: 0, .. }, _) => return None,
            (Chunk::Size { value, .. }, b'\r') => Chunk::SizeEnd { size: value },
            (Chunk::Size { value, .. }, b';' | b' ' | b'\t') => Chunk::Extension { size: value },
            (Chunk::Extension { size }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Extension { size }, byte) if is_text(byte) => Chunk::Extension { size },
            (Chunk::SizeEnd { size: 0 }, b'\n') => Chunk::Line,
            (Chunk::SizeEnd { size }, b'\n') => Chunk::Data { left: size },
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::FIRST,
            (Chunk::Line, b'\r') => Chunk::LastLineEnd,
            (Chunk::InLine, b'\r') => Chunk::LineEnd,
            (Chunk::Line | Chunk::InLine, byte) if is_text(byte) => Chunk::InLine,
            (Chunk::LineEnd, b'\n') => Chunk::Line,
            (Chunk::LastLineEnd, b'\n') => Chunk::End,
            _ => return None,
        })
    }
}

/// Whether a byte may occur in a field value or in a chunk extension (RFC 9110 §5.5).
pub(crate) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Largest number of bytes of extensions and trailers in one body.
const OVERHEAD_BYTES_MAX: usize = 32 << 10;

/// Largest number of hexadecimal digits in the size of a chunk: 2^60 bytes are enough.
const SIZE_DIGITS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes bytes one at a time; gives how many belong to the body.
    fn taken(mut body: Body, bytes: &[u8]) -> Option<usize> {
        let mut all = 0;
        for byte in bytes {
            all += body.take(std::slice::from_ref(byte)).ok()?;
        }
        let mut whole = body.clone();
        assert!(whole.take(b"").is_ok());
        body.is_complete().then_some(all)
    }

    #[test]
    fn body_ends_where_its_framing_says() {
        let two = b"5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\n\r\nGET /";
        assert_eq!(taken(Body::chunked(), two), Some(two.len() - 5));
        let mut at_once = Body::chunked();
        assert_eq!(at_once.take(two).unwrap(), two.len() - 5);
        let trailer = b"0\r\nA: b\r\nC: d\r\n\r\n.";
        assert_eq!(taken(Body::chunked(), trailer), Some(trailer.len() - 1));
        assert_eq!(taken(Body::Length(3), b"abcdef"), Some(3));
        assert_eq!(taken(Body::Length(0), b"abc"), Some(0));
        assert_eq!(taken(Body::Length(4), b"abc"), None);
    }

    #[test]
    fn chunks_that_servers_read_in_two_ways_are_refused() {
        for bytes in [
            &b"\r\n"[..],
            b"x\r\n",
            b"5\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"0\r\n\n",
            b"0\n",
            b"-1\r\n",
            b"+5\r\n",
            b"0x5\r\n",
            b"5\rhello",
            b"5;\0\r\n",
            b"0\r\nA\n\r\n",
            b"1234567890abcdef\r\n",
        ] {
            let text = String::from_utf8_lossy(bytes).into_owned();
            assert!(Body::chunked().take(bytes).is_err(), "{text:?}");
        }
        let mut endless = Body::chunked();
        endless.take(b"1;").unwrap();
        assert!(endless.take(&vec![b'x'; OVERHEAD_BYTES_MAX + 1]).is_err());
    }
}
