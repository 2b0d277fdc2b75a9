//! Messages of the xenstore protocol, without I/O (`xen/include/public/io/xs_wire.h`).
//!
//! ```text
//! 0  kind u32        8   transaction u32, 0 for none
//! 4  request u32     12  length of the payload u32, at most 4096; then the payload
//! ```
//!
//! Integers are in the order of the processor, since both ends share a machine. An answer has the
//! number of its request. A watch event has none, and comes between answers. The decoder trusts
//! nothing: it bounds what it keeps by one message.

use thiserror::Error;

/// Longest payload in bytes (`XENSTORE_PAYLOAD_MAX`).
pub const PAYLOAD_BYTES_MAX: usize = 4096;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 16;

/// The kinds of message that Carina sends or understands (`enum xsd_sockmsg_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Lists the names below a node.
    Directory = 1,
    /// Reads the value of a node.
    Read = 2,
    /// Asks for an event at each change of a node or below.
    Watch = 4,
    /// Ends a watch.
    Unwatch = 5,
    /// Writes the value of a node, and makes the node and those above it.
    Write = 11,
    /// Removes a node and all below it.
    Remove = 13,
    /// Sets which domains may read or write a node.
    SetPermissions = 14,
    /// From the xenstore: a watched node has changed.
    WatchEvent = 15,
    /// From the xenstore: a request failed. The payload is the name of an error, such as `ENOENT`.
    Error = 16,
}

/// Encodes a request to the xenstore. Its payload is `parts`, one after another. Its transaction
/// is 0: none.
///
/// # Errors
/// [`MessageError::TooLong`]: the payload exceeds [`PAYLOAD_BYTES_MAX`].
pub fn encode(kind: Kind, request: u32, parts: &[&[u8]]) -> Result<Vec<u8>, MessageError> {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(MessageError::TooLong { bytes });
    }
    let mut message = Vec::with_capacity(HEADER_BYTES + bytes);
    for word in [kind as u32, request, 0, bytes as u32] {
        message.extend(word.to_ne_bytes());
    }
    for part in parts {
        message.extend_from_slice(part);
    }
    Ok(message)
}

/// A message from the xenstore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The kind as a number, because an answer repeats the kind of its request.
    pub kind: u32,
    /// The number of the request that is answered.
    pub request: u32,
    /// The answer.
    pub payload: Vec<u8>,
}

impl Message {
    /// The strings of the payload, each of which a NUL ends. Bytes that are not UTF-8 are replaced.
    pub fn strings(&self) -> impl Iterator<Item = String> + '_ {
        let whole = self.payload.strip_suffix(&[0]).unwrap_or(&self.payload);
        let parts = whole.split(|byte| *byte == 0);
        parts
            .filter(|_| !self.payload.is_empty())
            .map(|part| String::from_utf8_lossy(part).into_owned())
    }
}

/// Error: a message breaks the protocol. The connection is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The payload is longer than the protocol allows.
    #[error("a payload of {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    TooLong {
        /// Length of the payload.
        bytes: usize,
    },
}

/// Cuts the bytes that the xenstore sends into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Adds bytes that were read. Call [`Decoder::take`] until it returns `None` before the next
    /// call, so that at most one message is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The length of the payload is not allowed. All later calls return the same error.
    pub fn take(&mut self) -> Result<Option<Message>, MessageError> {
        let Some(header) = self.bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        let (kind, request, bytes) = (word(0), word(4), word(12) as usize);
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(MessageError::TooLong { bytes });
        }
        if self.bytes.len() < HEADER_BYTES + bytes {
            return Ok(None);
        }
        let rest = self.bytes.split_off(HEADER_BYTES + bytes);
        let mut payload = std::mem::replace(&mut self.bytes, rest);
        payload.drain(..HEADER_BYTES);
        Ok(Some(Message {
            kind,
            request,
            payload,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_bytes_of_the_protocol() {
        let bytes = encode(Kind::Read, 7, &[b"domid", &[0]]).unwrap();
        let words = [2_u32, 7, 0, 6];
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[..HEADER_BYTES], header);
        assert_eq!(&bytes[HEADER_BYTES..], b"domid\0");
        let long = [0; PAYLOAD_BYTES_MAX + 1];
        let error = encode(Kind::Write, 1, &[&long]).unwrap_err();
        assert_eq!(error, MessageError::TooLong { bytes: 4097 });
    }

    #[test]
    fn messages_come_out_whole_however_the_bytes_are_cut() {
        let one = encode(Kind::Directory, 1, &[b"a\0b\0"]).unwrap();
        let two = encode(Kind::WatchEvent, 0, &[b"@releaseDomain\0t\0"]).unwrap();
        let stream = [one, two].concat();
        for cut in 0..stream.len() {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                decoder.push(part);
                while let Some(message) = decoder.take().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found.len(), 2, "cut at {cut}");
            assert_eq!(found[0].strings().collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!((found[1].kind, found[1].request), (15, 0));
            assert_eq!(found[1].strings().next().unwrap(), "@releaseDomain");
        }
    }

    #[test]
    fn length_beyond_the_limit_ends_the_stream() {
        let mut decoder = Decoder::default();
        let words = [2_u32, 1, 0, 4097];
        decoder.push(&words.map(u32::to_ne_bytes).concat());
        for _ in 0..2 {
            let error = decoder.take().unwrap_err();
            assert_eq!(error, MessageError::TooLong { bytes: 4097 });
        }
    }

    #[test]
    fn empty_payload_has_no_strings() {
        let message = Message {
            kind: 1,
            request: 1,
            payload: Vec::new(),
        };
        assert_eq!(message.strings().count(), 0);
    }
}
