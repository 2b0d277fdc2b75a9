//! The SDUs of one direction of a flow. The writer generates them from a seed, and the reader
//! checks them against the same seed.
//!
//! Any byte of any SDU can be computed on its own. So the reader can check pieces as they arrive,
//! without keeping them.

use std::fmt;

use carina_wire::{Bytes, Payload};

use carina_random::mix;

/// Lengths of the SDUs of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All SDUs have this number of bytes.
    Fixed(usize),
    /// SDUs are mostly short, sometimes empty, and have at most this number of bytes.
    Mixed(usize),
}

/// Guarantees of a flow about the delivery of its SDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Each SDU arrives exactly once.
    pub loses_nothing: bool,
    /// SDUs arrive in the order in which they were written, and none arrives twice.
    pub in_order: bool,
    /// One read returns exactly one SDU.
    pub has_boundaries: bool,
}

impl Promise {
    /// Whether nothing is lost or duplicated, and everything arrives in order.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        self.loses_nothing && self.in_order
    }
}

/// The SDUs of one direction of a flow: generates them for the writer, and checks what the reader
/// gets.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    lengths: Lengths,
    promise: Promise,
    /// Number of SDUs that will be written.
    total: u64,
    /// Number of the SDU being written, and the number of its bytes written so far.
    writing: u64,
    offset: usize,
    written_bytes: u64,
    /// Number of distinct SDUs that have arrived.
    got: u64,
    got_bytes: u64,
    /// On a reliable flow: number of the SDU being read, and the number of its bytes read so far.
    reading: u64,
    read: usize,
    /// On other flows: the SDU being reassembled.
    partial: Vec<u8>,
    seen: Vec<bool>,
    latest: Option<u64>,
}

impl Stream {
    /// A stream of `total` SDUs.
    #[must_use]
    pub fn new(seed: u64, total: u64, lengths: Lengths, promise: Promise) -> Stream {
        Stream {
            seed,
            lengths,
            promise,
            total,
            writing: 0,
            offset: 0,
            written_bytes: 0,
            got: 0,
            got_bytes: 0,
            reading: 0,
            read: 0,
            partial: Vec::new(),
            seen: Vec::new(),
            latest: None,
        }
    }

    /// Returns the next piece, of at most `room` bytes, and whether the same SDU continues. `None`
    /// if everything is written or nothing fits.
    pub fn write(&mut self, room: usize) -> Option<(Bytes, bool)> {
        if self.is_written() {
            return None;
        }
        let len = self.len(self.writing);
        let piece = (len - self.offset).min(room);
        if piece == 0 && len > 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(piece);
        self.fill(self.writing, self.offset, piece, &mut bytes);
        self.offset += piece;
        self.written_bytes += piece as u64;
        let more = self.offset < len;
        if !more {
            self.writing += 1;
            self.offset = 0;
        }
        Some((Bytes::from(bytes), more))
    }

    /// Starts again from the first SDU, for a new writer; what was written before is not expected.
    pub fn begin_again(&mut self) {
        *self = Stream::new(self.seed, self.total, self.lengths, self.promise);
    }

    /// Whether all SDUs have been written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.writing == self.total
    }

    /// Whether the reader has read everything that was written so far.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.got_bytes == self.written_bytes
            && (self.got == self.writing || !self.promise.has_boundaries)
    }

    /// Number of the first SDU that has been written but not read; `None` if all have been read.
    #[must_use]
    pub fn first_missing(&self) -> Option<u64> {
        if self.is_complete() {
            return None;
        }
        if self.promise.is_reliable() {
            return Some(self.reading);
        }
        let missing = self.seen.iter().position(|seen| !seen);
        Some(missing.unwrap_or(self.seen.len()) as u64)
    }

    /// Numbers of SDUs written, bytes written, SDUs read and bytes read, in this order.
    #[must_use]
    pub fn progress(&self) -> [u64; 4] {
        [self.writing, self.written_bytes, self.got, self.got_bytes]
    }

    /// Checks a piece that was read; with `more` the same SDU continues.
    ///
    /// # Errors
    /// How it differs from what was written.
    pub fn read(&mut self, piece: &Bytes, more: bool) -> Result<(), StreamError> {
        if self.promise.is_reliable() {
            self.read_next(piece.as_slice(), more)
        } else {
            piece.append_to(&mut self.partial);
            if more {
                return Ok(());
            }
            let sdu = std::mem::take(&mut self.partial);
            self.read_any(&sdu)
        }
    }

    /// Checks a piece of the SDU that must come next.
    fn read_next(&mut self, mut bytes: &[u8], more: bool) -> Result<(), StreamError> {
        let mut ended = false;
        let mut buffer = Vec::new();
        loop {
            let (number, at) = (self.reading, self.read);
            if number >= self.total || number > self.writing {
                return Err(StreamError::NeverWritten { number });
            }
            let len = self.len(number);
            let piece = bytes.len().min(len - at);
            let (head, tail) = bytes.split_at(piece);
            buffer.clear();
            self.fill(number, at, piece, &mut buffer);
            if buffer != head {
                let place = buffer.iter().zip(head).position(|(a, b)| a != b);
                let place = at + place.unwrap_or(0);
                return Err(StreamError::Differs {
                    number,
                    len,
                    place,
                    beginning_of: self.guess(head),
                });
            }
            self.read += piece;
            self.got_bytes += piece as u64;
            bytes = tail;
            let is_whole = self.read == len;
            if is_whole && (!self.promise.has_boundaries || !more) {
                self.reading += 1;
                self.read = 0;
                self.got += 1;
                ended = true;
            }
            if bytes.is_empty() {
                break;
            }
            if self.promise.has_boundaries {
                return Err(StreamError::GoesOn {
                    number,
                    len,
                    extra: bytes.len(),
                });
            }
        }
        if self.promise.has_boundaries && !more && !ended {
            let (number, len) = (self.reading, self.len(self.reading));
            return Err(StreamError::EndsEarly {
                number,
                len,
                read: self.read,
            });
        }
        Ok(())
    }

    /// Checks a whole SDU, which may be any SDU of the stream.
    fn read_any(&mut self, sdu: &[u8]) -> Result<(), StreamError> {
        let Some(head) = sdu.first_chunk::<NUMBER_BYTES>() else {
            return Err(StreamError::TooShort { len: sdu.len() });
        };
        let number = u64::from_le_bytes(*head) ^ self.seed;
        if number > self.writing || number >= self.total {
            return Err(StreamError::Unknown { len: sdu.len() });
        }
        let mut expected = Vec::with_capacity(sdu.len());
        self.fill(number, 0, self.len(number), &mut expected);
        if expected != sdu {
            return Err(StreamError::OtherContent {
                number,
                wanted: expected.len(),
                len: sdu.len(),
            });
        }
        let at = number as usize;
        if self.seen.len() <= at {
            self.seen.resize(at + 1, false);
        }
        let is_double = std::mem::replace(&mut self.seen[at], true);
        if is_double && (self.promise.in_order || self.promise.loses_nothing) {
            return Err(StreamError::Twice { number });
        }
        if let Some(latest) = self.latest.filter(|latest| number < *latest)
            && self.promise.in_order
        {
            return Err(StreamError::OutOfOrder { number, latest });
        }
        self.latest = self.latest.max(Some(number));
        if !is_double {
            self.got += 1;
            self.got_bytes += sdu.len() as u64;
        }
        Ok(())
    }

    /// Number of the SDU that begins like a wrong piece; `None` if no SDU does.
    fn guess(&self, head: &[u8]) -> Option<u64> {
        let mut buffer = Vec::new();
        for number in 0..self.total.min(self.writing + 1) {
            let take = self.len(number).min(head.len()).min(32);
            buffer.clear();
            self.fill(number, 0, take, &mut buffer);
            if take >= 8 && buffer[..] == head[..take] {
                return Some(number);
            }
        }
        None
    }

    fn len(&self, number: u64) -> usize {
        let floor = match self.promise {
            promise if !promise.is_reliable() => NUMBER_BYTES,
            Promise {
                has_boundaries: false,
                ..
            } => 1,
            Promise { .. } => 0,
        };
        match self.lengths {
            Lengths::Fixed(len) => len.max(floor),
            Lengths::Mixed(max) => {
                let bits = mix(self.seed, number);
                let top = match bits % 16 {
                    0 => 0,
                    1..8 => 64,
                    8..14 => 1_600,
                    14 => 9_000,
                    _ => max,
                };
                ((bits >> 8) as usize % (top.min(max) + 1)).max(floor)
            }
        }
    }

    fn fill(&self, number: u64, from: usize, len: usize, out: &mut Vec<u8>) {
        let key = mix(self.seed, number | 1 << 63);
        let end = from + len;
        let mut at = from;
        while at < end {
            let index = (at / 8) as u64;
            let word = match index {
                0 => number ^ self.seed,
                _ => key
                    .wrapping_add(index)
                    .wrapping_mul(0x9fb2_1c65_1e98_df25)
                    .rotate_left(29),
            };
            let word = word.to_le_bytes();
            let start = at % 8;
            let stop = (start + end - at).min(8);
            out.extend_from_slice(&word[start..stop]);
            at += stop - start;
        }
    }
}

/// How data that was read breaks the promise of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each names its fields")]
pub enum StreamError {
    /// An SDU was read that was never written.
    NeverWritten { number: u64 },
    /// The content differs, on a flow in order; it may be the beginning of another SDU.
    Differs {
        number: u64,
        len: usize,
        place: usize,
        beginning_of: Option<u64>,
    },
    /// More bytes of an SDU were read than were written.
    GoesOn {
        number: u64,
        len: usize,
        extra: usize,
    },
    /// Fewer bytes of an SDU were read than were written.
    EndsEarly {
        number: u64,
        len: usize,
        read: usize,
    },
    /// An SDU is shorter than any SDU that was written.
    TooShort { len: usize },
    /// The number in an SDU is not the number of any SDU of this stream.
    Unknown { len: usize },
    /// The content of an SDU differs from the content that was written, on a flow without order.
    OtherContent {
        number: u64,
        wanted: usize,
        len: usize,
    },
    /// An SDU arrives twice.
    Twice { number: u64 },
    /// An SDU arrives after a later one.
    OutOfOrder { number: u64, latest: u64 },
}

impl std::error::Error for StreamError {}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverWritten { number } => write!(f, "SDU {number} was never written"),
            Self::Differs {
                number,
                len,
                place,
                beginning_of,
            } => {
                write!(f, "SDU {number} of {len} bytes differs at byte {place}: ")?;
                match beginning_of {
                    Some(other) => write!(f, "it is the beginning of SDU {other}"),
                    None => f.write_str("it is the beginning of none"),
                }
            }
            Self::GoesOn { number, len, extra } => {
                write!(f, "SDU {number} of {len} bytes goes on for {extra} bytes")
            }
            Self::EndsEarly { number, len, read } => {
                write!(f, "SDU {number} of {len} bytes ends after {read}")
            }
            Self::TooShort { len } => write!(f, "an SDU of {len} bytes; none is that short"),
            Self::Unknown { len } => {
                write!(f, "an SDU of {len} bytes that no side of this flow wrote")
            }
            Self::OtherContent {
                number,
                wanted,
                len,
            } => write!(
                f,
                "SDU {number} of {wanted} bytes arrives with other content, {len} bytes"
            ),
            Self::Twice { number } => write!(f, "SDU {number} arrives twice"),
            Self::OutOfOrder { number, latest } => {
                write!(f, "SDU {number} arrives after Some({latest})")
            }
        }
    }
}

/// Number of bytes in front of an SDU that contain its number, on flows that may lose SDUs.
const NUMBER_BYTES: usize = 8;

#[cfg(test)]
mod tests;
