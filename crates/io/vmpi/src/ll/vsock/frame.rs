//! The format of a VMPI stream. Integers are little-endian.
//!
//! ```text
//!  preface, once:  "VMPI", version u32 = 1, window u32
//!  frame:          kind << 28 | length, as u32, then `length` bytes:
//!                  0 record: a record of VMPI-HL
//!                  1 taken: number of bytes of record frames that the sender has read, u64
//!                  2 beat: nothing; shows that the sender is alive
//! ```

/// Length of the preface in bytes.
pub const PREFACE_BYTES: usize = 12;

/// Length of a frame's header in bytes.
pub const FRAME_HEADER_BYTES: usize = 4;

/// Longest record in bytes, VMPI-HL's header included.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// The version of the format.
pub const STREAM_VERSION: u32 = 1;

/// Largest and smallest window that a side may show, in bytes.
pub const WINDOW_BYTES_MAX: u32 = 1 << 28;
/// See [`WINDOW_BYTES_MAX`].
pub const WINDOW_BYTES_MIN: u32 = 4 << 10;

const MAGIC: [u8; 4] = *b"VMPI";
const RECORD: u32 = 0;
const TAKEN: u32 = 1;
const BEAT: u32 = 2;

/// A frame of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A record of this many bytes.
    Record(usize),
    /// The sender has read this many bytes of record frames since the connection began.
    Taken(u64),
    /// The sender is alive.
    Beat,
}

/// Why bytes are not a VMPI stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream does not begin with the preface.
    #[error("the stream does not begin with VMPI")]
    Magic,
    /// The stream has another version.
    #[error("version {0} of the stream: this node speaks {STREAM_VERSION}")]
    Version(u32),
    /// The window is out of range.
    #[error("a window of {0} bytes: must be {WINDOW_BYTES_MIN} to {WINDOW_BYTES_MAX}")]
    Window(u32),
    /// The frame has a kind that does not exist, or a length that its kind does not allow.
    #[error("frame of kind {kind} with {bytes} bytes")]
    Frame {
        /// The kind's number.
        kind: u32,
        /// The length in bytes.
        bytes: usize,
    },
}

/// Encodes the preface of a side that accepts `window` bytes on the way.
#[must_use]
pub fn preface(window: u32) -> [u8; PREFACE_BYTES] {
    let mut bytes = [0; PREFACE_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&STREAM_VERSION.to_le_bytes());
    bytes[8..].copy_from_slice(&window.to_le_bytes());
    bytes
}

/// Reads the preface at the start of `bytes`, and returns the window; `None` if more bytes are
/// needed.
///
/// # Errors
/// [`FrameError`].
pub fn parse_preface(bytes: &[u8]) -> Result<Option<u32>, FrameError> {
    let begun = bytes.len().min(MAGIC.len());
    if bytes[..begun] != MAGIC[..begun] {
        return Err(FrameError::Magic);
    }
    let Some(preface) = bytes.first_chunk::<PREFACE_BYTES>() else {
        return Ok(None);
    };
    let (words, _) = preface.as_chunks::<4>();
    let (version, window) = (u32::from_le_bytes(words[1]), u32::from_le_bytes(words[2]));
    if version != STREAM_VERSION {
        return Err(FrameError::Version(version));
    }
    if !(WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX).contains(&window) {
        return Err(FrameError::Window(window));
    }
    Ok(Some(window))
}

/// Encodes the header of a frame with a record of `bytes` bytes.
#[must_use]
pub fn record_header(bytes: usize) -> [u8; FRAME_HEADER_BYTES] {
    debug_assert!(bytes <= RECORD_BYTES_MAX);
    (RECORD << 28 | bytes as u32).to_le_bytes()
}

/// Encodes a frame that shows how many bytes were read.
#[must_use]
pub fn taken(bytes: u64) -> [u8; FRAME_HEADER_BYTES + 8] {
    let mut frame = [0; FRAME_HEADER_BYTES + 8];
    frame[..FRAME_HEADER_BYTES].copy_from_slice(&(TAKEN << 28 | 8).to_le_bytes());
    frame[FRAME_HEADER_BYTES..].copy_from_slice(&bytes.to_le_bytes());
    frame
}

/// Encodes a frame that shows that the sender is alive.
#[must_use]
pub fn beat() -> [u8; FRAME_HEADER_BYTES] {
    (BEAT << 28).to_le_bytes()
}

/// Reads the frame at the start of `bytes`, of which all must have arrived. Returns it with its
/// whole length; `None` if more bytes are needed.
///
/// # Errors
/// [`FrameError::Frame`].
pub fn parse(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
    let Some(head) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let head = u32::from_le_bytes(*head);
    let (kind, len) = (head >> 28, (head & 0x0fff_ffff) as usize);
    let is_right = match kind {
        RECORD => len <= RECORD_BYTES_MAX,
        TAKEN => len == 8,
        BEAT => len == 0,
        _ => false,
    };
    if !is_right {
        return Err(FrameError::Frame { kind, bytes: len });
    }
    let Some(body) = bytes[FRAME_HEADER_BYTES..].get(..len) else {
        return Ok(None);
    };
    let frame = match kind {
        RECORD => Frame::Record(len),
        TAKEN => Frame::Taken(body.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b))),
        _ => Frame::Beat,
    };
    Ok(Some((frame, FRAME_HEADER_BYTES + len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back() {
        let mut bytes = Vec::new();
        bytes.extend(record_header(3));
        bytes.extend(b"abc");
        bytes.extend(taken(0x0102_0304_0506_0708));
        bytes.extend(beat());
        let mut at = 0;
        for want in [
            (Frame::Record(3), 7),
            (Frame::Taken(0x0102_0304_0506_0708), 12),
            (Frame::Beat, 4),
        ] {
            assert_eq!(parse(&bytes[at..at + want.1 - 1]), Ok(None));
            assert_eq!(parse(&bytes[at..]), Ok(Some(want)));
            at += want.1;
        }
        assert_eq!(parse_preface(&preface(1 << 16)), Ok(Some(1 << 16)));
        assert_eq!(parse_preface(&preface(1 << 16)[..11]), Ok(None));
    }

    #[test]
    fn streams_that_lie_are_refused() {
        assert_eq!(parse_preface(b"SSH"), Err(FrameError::Magic));
        let mut other = preface(1 << 16);
        other[4] = 2;
        assert_eq!(parse_preface(&other), Err(FrameError::Version(2)));
        for window in [0, u32::MAX] {
            let refused = parse_preface(&preface(window));
            assert_eq!(refused, Err(FrameError::Window(window)));
        }
        for (kind, bytes) in [(0, RECORD_BYTES_MAX + 1), (1, 7), (2, 1), (3, 0), (15, 9)] {
            let head = (kind << 28 | bytes as u32).to_le_bytes();
            assert_eq!(parse(&head), Err(FrameError::Frame { kind, bytes }));
        }
    }
}
