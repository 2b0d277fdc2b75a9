//! Messages of netlink(7) and their attributes, as bytes.
//!
//! ```text
//!   0        4      6       8          12     16
//!   +--------+------+-------+----------+------+------+------------+
//!   | length | kind | flags | sequence | port | body | attributes |
//!   +--------+------+-------+----------+------+------+------------+
//! ```
//!
//! An attribute has its length, its kind, and its value, padded to 4 bytes.

use std::net::IpAddr;

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Type of the message.
    pub kind: Kind,
    /// Number of the request that this message answers.
    pub sequence: u32,
    /// The bytes of the message behind its header.
    pub body: &'a [u8],
}

/// Kind of a message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Result of a request: 0, or a negative error number.
    Result(i32),
    /// The end of a list.
    Done,
    /// A message of this kind.
    Other(u16),
}

/// The messages in a received buffer, up to the first one that is not whole.
pub fn messages(mut left: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = word(left, 0)? as usize;
        let body = left.get(HEADER_BYTES..length)?;
        let kind = u16::from_ne_bytes(left.get(4..6)?.try_into().ok()?);
        let sequence = word(left, 8)?;
        left = left.get(padded(length)..).unwrap_or_default();
        let kind = match kind {
            NLMSG_ERROR => Kind::Result(word(body, 0)?.cast_signed()),
            NLMSG_DONE => Kind::Done,
            other => Kind::Other(other),
        };
        Some(Message {
            kind,
            sequence,
            body,
        })
    })
}

/// Appends a request with its header to `bytes`.
pub fn append(bytes: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, body: &[u8]) {
    let length = (HEADER_BYTES + body.len()) as u32;
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes.resize(padded(bytes.len()), 0);
}

/// Appends an attribute to `body`.
pub fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(padded(body.len()), 0);
}

/// Appends an attribute whose value is an IP address to `body`.
pub fn address_attribute(body: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => attribute(body, kind, &address.octets()),
        IpAddr::V6(address) => attribute(body, kind, &address.octets()),
    }
}

/// The attributes in a part of a body, up to the first one that is not whole.
pub fn attributes(mut left: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(left.get(..2)?.try_into().ok()?);
        let kind = u16::from_ne_bytes(left.get(2..4)?.try_into().ok()?);
        let value = left.get(ATTRIBUTE_HEADER_BYTES..usize::from(length))?;
        left = left.get(padded(length.into())..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    })
}

/// The address family of an IP address.
pub fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => INET,
        IpAddr::V6(_) => INET6,
    }
}

/// The word of 4 bytes at a place, in the byte order of this processor.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Address family of IPv4, AF_INET.
pub const INET: u8 = 2;
/// Address family of IPv6, AF_INET6.
pub const INET6: u8 = 10;
/// Flag of each request, NLM_F_REQUEST.
const REQUEST: u16 = 1;
/// Flag: the kernel answers also if the request succeeds, NLM_F_ACK.
pub const ACKNOWLEDGE: u16 = 4;
/// Flag: what exists is replaced, NLM_F_REPLACE.
pub const REPLACE: u16 = 0x100;
/// Flag: the request fails if the object that it would create exists, NLM_F_EXCL.
pub(crate) const EXCLUSIVE: u16 = 0x200;
/// Flag: what does not exist is made, NLM_F_CREATE.
pub const CREATE: u16 = 0x400;
pub(crate) const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// The rest of an attribute's kind are flags.
const KIND_MASK: u16 = 0x3fff;
/// Kind of a message with the result of a request.
pub(crate) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
