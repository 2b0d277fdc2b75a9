//! Framing of SDUs in a byte stream: a length, then the SDU or a piece of it.
//!
//! ```text
//!   Short:  length u16, then the SDU                    (rlite, IRATI)
//!   Long:   more:1 length:31, then a piece of the SDU   (pieces of at most PIECE_BYTES_MAX)
//! ```
//!
//! All integers are in network byte order. `more` says that another piece of the same SDU follows.

use std::io::{self, Read};

use thiserror::Error;

/// How SDUs are framed in a byte stream: the width of the length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFraming {
    /// A length of two bytes, for SDUs of at most 65535 bytes.
    Short,
    /// A length of four bytes in front of each piece, for SDUs of any length.
    Long,
}

impl StreamFraming {
    /// Returns the size of the length field in bytes: 2 or 4.
    #[must_use]
    pub fn head_bytes(self) -> usize {
        match self {
            StreamFraming::Short => 2,
            StreamFraming::Long => 4,
        }
    }

    /// Returns the length of the longest SDU or piece that one frame carries, in bytes.
    #[must_use]
    pub fn piece_bytes_max(self) -> usize {
        match self {
            StreamFraming::Short => u16::MAX as usize,
            StreamFraming::Long => PIECE_BYTES_MAX,
        }
    }

    /// Returns the length in bytes of the frame at the start of `stream`, its length field
    /// included. `None` if the length field is incomplete.
    #[must_use]
    pub fn frame_bytes(self, stream: &[u8]) -> Option<usize> {
        let payload = match self {
            StreamFraming::Short => usize::from(u16::from_be_bytes(*stream.first_chunk()?)),
            StreamFraming::Long => {
                (u32::from_be_bytes(*stream.first_chunk()?) & 0x7fff_ffff) as usize
            }
        };
        Some(self.head_bytes() + payload)
    }

    /// Appends to `out` the length field of a frame with `bytes` bytes of payload. `more`: another
    /// piece of the SDU follows, which a frame of [`StreamFraming::Short`] cannot express.
    pub fn put_head(self, out: &mut Vec<u8>, bytes: usize, more: bool) {
        debug_assert!(bytes <= self.piece_bytes_max());
        match self {
            StreamFraming::Short => out.extend_from_slice(&(bytes as u16).to_be_bytes()),
            StreamFraming::Long => {
                let word = bytes as u32 | u32::from(more) << 31;
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }
}

/// Error: a frame states a length above the maximum. The rest of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the frame has {bytes} bytes; at most {PIECE_BYTES_MAX} are possible")]
pub struct FrameTooLong {
    /// The length that the frame states, in bytes, without the length field.
    pub bytes: u32,
}

/// Extracts frames from a byte stream that it reads.
#[derive(Debug)]
pub struct Deframer {
    framing: StreamFraming,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Deframer {
    /// Makes a reader that has read nothing.
    #[must_use]
    pub fn new(framing: StreamFraming) -> Deframer {
        Deframer {
            framing,
            buffer: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// Reads once from `stream`. Returns how many bytes it read, 0 at the end of the stream.
    ///
    /// # Errors
    /// Errors of the stream, such as `WouldBlock` if no bytes are available.
    pub fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES];
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let count = stream.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// Returns the next frame without removing it: its payload, and whether another piece of its
    /// SDU follows. `None` if the frame is not complete yet.
    ///
    /// # Errors
    /// The frame is longer than the maximum.
    pub fn frame(&self) -> Result<Option<(&[u8], bool)>, FrameTooLong> {
        let bytes = &self.buffer[self.start..self.end];
        let (len, more, body) = match self.framing {
            StreamFraming::Short => match bytes.split_first_chunk() {
                Some((head, body)) => (u32::from(u16::from_be_bytes(*head)), false, body),
                None => return Ok(None),
            },
            StreamFraming::Long => match bytes.split_first_chunk() {
                Some((head, body)) => {
                    let word = u32::from_be_bytes(*head);
                    (word & 0x7fff_ffff, word >> 31 == 1, body)
                }
                None => return Ok(None),
            },
        };
        if len as usize > PIECE_BYTES_MAX {
            return Err(FrameTooLong { bytes: len });
        }
        Ok(body.get(..len as usize).map(|payload| (payload, more)))
    }

    /// Removes the next frame. Does nothing if the frame is not complete.
    pub fn consume(&mut self) {
        if let Ok(Some((payload, _))) = self.frame() {
            self.start += self.framing.head_bytes() + payload.len();
        }
    }

    /// Discards everything that was read and not consumed. Returns the number of frames, counting
    /// an incomplete one.
    pub fn discard(&mut self) -> u64 {
        let mut frames = 0;
        while self.left() > 0 {
            frames += 1;
            let before = self.start;
            self.consume();
            if self.start == before {
                self.start = self.end;
            }
        }
        frames
    }

    /// Returns the number of bytes that were read and not consumed, of complete and incomplete
    /// frames.
    #[must_use]
    pub fn left(&self) -> usize {
        self.end - self.start
    }
}

/// Largest payload of one frame of [`StreamFraming::Long`], in bytes. A longer SDU takes several
/// frames, each with one piece of the SDU.
pub const PIECE_BYTES_MAX: usize = 65_536;

/// Size of the buffer in bytes, enough for two frames of maximum length.
const BUFFER_BYTES: usize = 2 * (PIECE_BYTES_MAX + 4);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream that returns its bytes in reads of the given sizes, cyclically.
    struct Bits<'a>(&'a [u8], Vec<usize>, usize);

    impl Read for Bits<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let size = self.1[self.2 % self.1.len()];
            self.2 += 1;
            let count = size.min(to.len()).min(self.0.len());
            to[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn what_was_framed_comes_out_however_it_is_cut(
            sdus in proptest::collection::vec((0usize..70_000, any::<bool>()), 1..8),
            reads in proptest::collection::vec(1usize..50_000, 1..5),
            is_long in any::<bool>(),
        ) {
            let framing = if is_long { StreamFraming::Long } else { StreamFraming::Short };
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (n, (bytes, more)) in sdus.iter().enumerate() {
                let sdu = vec![n as u8; (*bytes).min(framing.piece_bytes_max())];
                framing.put_head(&mut stream, sdu.len(), *more);
                stream.extend_from_slice(&sdu);
                expected.push((sdu, *more && is_long));
            }
            let mut bits = Bits(&stream, reads, 0);
            let mut deframer = Deframer::new(framing);
            let mut got = Vec::new();
            while deframer.fill(&mut bits).unwrap() > 0 {
                while let Some((sdu, more)) = deframer.frame().unwrap() {
                    got.push((sdu.to_vec(), more));
                    deframer.consume();
                }
            }
            prop_assert_eq!(deframer.left(), 0);
            prop_assert!(got == expected);
        }
    }

    #[test]
    fn what_is_thrown_away_is_known_by_the_frame() {
        for framing in [StreamFraming::Short, StreamFraming::Long] {
            let mut stream = Vec::new();
            for bytes in [0usize, 3, 5] {
                framing.put_head(&mut stream, bytes, false);
                stream.extend(std::iter::repeat_n(7, bytes));
            }
            assert_eq!(framing.frame_bytes(&stream), Some(framing.head_bytes()));
            assert_eq!(framing.frame_bytes(&stream[..1]), None);
            let mut deframer = Deframer::new(framing);
            deframer.fill(&mut &stream[..stream.len() - 1]).unwrap();
            deframer.consume();
            assert_eq!((deframer.discard(), deframer.left()), (2, 0));
            assert_eq!(deframer.discard(), 0);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_an_error_before_its_bytes_come() {
        let mut deframer = Deframer::new(StreamFraming::Long);
        deframer.fill(&mut &b"\x00\x01\x00\x01"[..]).unwrap();
        assert_eq!(deframer.frame(), Err(FrameTooLong { bytes: 65_537 }));
        deframer.consume();
        assert_eq!(deframer.left(), 4);
    }
}
