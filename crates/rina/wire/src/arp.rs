//! RINA ARP: a shim DIF over Ethernet finds the MAC address of an application's system with it.
//!
//! The frame format is that of RFC 826 with other protocol addresses, as in the Pouzin Society's
//! specification of the shim DIF over 802.1Q.
//!
//! The protocol address is an application name as text, padded with NUL:
//!
//! ```text
//!  0      2      4      5      6       8        14        14+p     20+p      20+2p
//!  +------+------+------+------+-------+--------+---------+--------+---------+--------
//!  | 1    | D1F0 | 6    | p    | op    | sender | sender  | target | target  | padding
//!  | HW   | proto| HW   | name | 1, 2  | MAC    | name    | MAC    | name    | of the frame
//!  +------+------+------+------+-------+--------+---------+--------+---------+--------
//! ```
//!
//! A request asks for the system of the target application, and requests a flow from the sender
//! application. A reply accepts the flow. Implementations differ in frame type, separator and
//! minimization: see [`Dialect`].

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ether::{ETHERTYPE_ARP, ETHERTYPE_RINA, Mac};

/// Longest application name in bytes, including separators.
pub const NAME_BYTES_MAX: usize = 255;

const HARDWARE_ETHERNET: u16 = 1;
const MAC_BYTES: u8 = 6;

/// Details of RINA ARP that differ between implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Ethertype of the frames that carry RINA ARP.
    pub ethertype: u16,
    /// ASCII character between the parts of a name.
    pub separator: u8,
    /// Whether empty parts at the end of a name, and their separators, are omitted.
    pub is_minimised: bool,
    /// Target MAC address in a request, where the real one is unknown.
    pub unknown: Mac,
}

impl Dialect {
    /// Carina's own dialect: the Ethertype of ARP, `|` between parts, and no empty parts at the
    /// end.
    pub const NATIVE: Dialect = Dialect {
        ethertype: ETHERTYPE_ARP,
        separator: b'|',
        is_minimised: true,
        unknown: Mac::ZERO,
    };

    /// The dialect of rlite, which is identical to the native one.
    pub const RLITE: Dialect = Dialect::NATIVE;

    /// The dialect of IRATI. Its Ethertype is officially assigned to another protocol, batman-adv.
    pub const IRATI: Dialect = Dialect {
        ethertype: 0x4305,
        separator: b'/',
        is_minimised: false,
        unknown: Mac::BROADCAST,
    };
}

/// An application name, split into its four parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name<'a> {
    /// Application process name.
    pub ap: &'a str,
    /// Application process instance.
    pub api: &'a str,
    /// Application entity name.
    pub ae: &'a str,
    /// Application entity instance.
    pub aei: &'a str,
}

impl<'a> Name<'a> {
    /// Makes a name that consists of the application process name only.
    #[must_use]
    pub fn of(ap: &'a str) -> Name<'a> {
        Name {
            ap,
            ..Name::default()
        }
    }

    /// Parses the text form of a name.
    ///
    /// # Errors
    /// [`ArpError::Name`] if the text has more than four parts, no first part, or a control
    /// character.
    pub fn parse(text: &'a str, dialect: &Dialect) -> Result<Name<'a>, ArpError> {
        if text.chars().any(char::is_control) {
            return Err(ArpError::Name);
        }
        Name::split(text, char::from(dialect.separator))
            .filter(|name| !name.ap.is_empty())
            .ok_or(ArpError::Name)
    }

    /// Splits a text at `separator` into the parts of a name; `None` if there are more than four.
    #[must_use]
    pub fn split(text: &'a str, separator: char) -> Option<Name<'a>> {
        let mut parts = text.split(separator);
        let mut next = || parts.next().unwrap_or_default();
        let name = Name {
            ap: next(),
            api: next(),
            ae: next(),
            aei: next(),
        };
        parts.next().is_none().then_some(name)
    }

    /// Writes the name as text.
    ///
    /// # Errors
    /// A part contains the separator or a control character, the first part is empty, or the text
    /// is longer than [`NAME_BYTES_MAX`].
    pub fn to_text(&self, dialect: &Dialect) -> Result<String, ArpError> {
        let parts = [self.ap, self.api, self.ae, self.aei];
        let used = match parts.iter().rposition(|part| !part.is_empty()) {
            Some(last) if dialect.is_minimised => last + 1,
            _ => parts.len(),
        };
        let mut text = String::new();
        for (at, part) in parts[..used].iter().enumerate() {
            if at > 0 {
                text.push(char::from(dialect.separator));
            }
            text.push_str(part);
        }
        if text.len() > NAME_BYTES_MAX || Name::parse(&text, dialect)? != *self {
            return Err(ArpError::Name);
        }
        Ok(text)
    }
}

/// Kind of a RINA ARP message: request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asks for the station that has the target's name, and requests a flow to it.
    Request,
    /// The sender has the requested name, and accepts the flow.
    Reply,
}

/// A RINA ARP message: who asks or answers, and for which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp<'a> {
    /// Whether the message is a request or a reply.
    pub operation: Operation,
    /// MAC address of the sending station.
    pub sender_mac: Mac,
    /// Application name of the sender, as text.
    pub sender: &'a str,
    /// MAC address of the target. In a request it is [`Dialect::unknown`], because the sender does
    /// not know the address.
    pub target_mac: Mac,
    /// Application name of the target, as text.
    pub target: &'a str,
}

impl<'a> Arp<'a> {
    /// Decodes the payload of a frame. Bytes after the message are padding.
    ///
    /// # Errors
    /// Why the payload is not a RINA ARP message.
    pub fn decode(payload: &'a [u8]) -> Result<Arp<'a>, ArpError> {
        let (fixed, rest) = payload.split_first_chunk::<8>().ok_or(ArpError::Short)?;
        let &[h0, h1, p0, p1, mac_bytes, name_bytes, o0, o1] = fixed;
        let is_ethernet = u16::from_be_bytes([h0, h1]) == HARDWARE_ETHERNET;
        let is_rina = u16::from_be_bytes([p0, p1]) == ETHERTYPE_RINA;
        if !is_ethernet || !is_rina || mac_bytes != MAC_BYTES || name_bytes == 0 {
            return Err(ArpError::Other);
        }
        let operation = match u16::from_be_bytes([o0, o1]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ArpError::Operation),
        };
        let name_bytes = usize::from(name_bytes);
        let (sender_mac, rest) = rest.split_first_chunk().ok_or(ArpError::Short)?;
        let (sender, rest) = rest.split_at_checked(name_bytes).ok_or(ArpError::Short)?;
        let (target_mac, rest) = rest.split_first_chunk().ok_or(ArpError::Short)?;
        let target = rest.get(..name_bytes).ok_or(ArpError::Short)?;
        Ok(Arp {
            operation,
            sender_mac: Mac(*sender_mac),
            sender: unpadded(sender)?,
            target_mac: Mac(*target_mac),
            target: unpadded(target)?,
        })
    }

    /// Encodes the message as the payload of a frame. The caller pads the frame to its minimum
    /// length.
    ///
    /// # Errors
    /// A name is empty, has a control character, or is longer than [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, ArpError> {
        check_text(self.sender)?;
        check_text(self.target)?;
        let longest = self.sender.len().max(self.target.len());
        let name_bytes = u8::try_from(longest).map_err(|_| ArpError::Name)?;
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        let mut out = Vec::with_capacity(20 + 2 * longest);
        out.extend_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        out.extend_from_slice(&ETHERTYPE_RINA.to_be_bytes());
        out.extend_from_slice(&[MAC_BYTES, name_bytes]);
        out.extend_from_slice(&operation.to_be_bytes());
        for (mac, name) in [
            (self.sender_mac, self.sender),
            (self.target_mac, self.target),
        ] {
            out.extend_from_slice(&mac.0);
            let start = out.len();
            out.extend_from_slice(name.as_bytes());
            out.resize(start + longest, 0);
        }
        Ok(out)
    }
}

/// The text in a name field, without its padding.
fn unpadded(field: &[u8]) -> Result<&str, ArpError> {
    let end = field.iter().rposition(|byte| *byte != 0);
    let used = end.map_or(0, |last| last + 1);
    let text = core::str::from_utf8(&field[..used]).map_err(|_| ArpError::Name)?;
    check_text(text)?;
    Ok(text)
}

fn check_text(text: &str) -> Result<(), ArpError> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(ArpError::Name);
    }
    Ok(())
}

/// Why a payload is not a RINA ARP message, or why a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ArpError {
    /// The payload ends before the message does.
    Short,
    /// The payload is ARP for another protocol or medium, and should be ignored.
    Other,
    /// The operation is neither request nor reply.
    Operation,
    /// A name is empty, too long, not UTF-8, or contains a character that is not allowed.
    Name,
}

impl fmt::Display for ArpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArpError::Short => "the ARP message ends too early",
            ArpError::Other => "ARP of another protocol",
            ArpError::Operation => "unknown ARP operation",
            ArpError::Name => "wrong name in an ARP message",
        })
    }
}

impl core::error::Error for ArpError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that was captured between two nodes of another implementation.
    const REQUEST: &[u8] =
        b"\x00\x01\xd1\xf0\x06\x07\x00\x01\x32\xdd\xd3\xe7\xc0\x5ared.n\0\0\0\0\0\0\0\0green.n";
    const IRATI_REQUEST: &[u8] = b"\x00\x01\xd1\xf0\x06\x14\x00\x01\x52\x54\x00\x00\x00\x02\
        test2.normal.DIF/1//\xff\xff\xff\xff\xff\xfftest1.normal.DIF/1//";

    #[test]
    fn a_request_reads_and_writes_as_captured() {
        let request = Arp::decode(REQUEST).unwrap();
        assert_eq!(
            request,
            Arp {
                operation: Operation::Request,
                sender_mac: Mac([0x32, 0xdd, 0xd3, 0xe7, 0xc0, 0x5a]),
                sender: "red.n",
                target_mac: Dialect::NATIVE.unknown,
                target: "green.n",
            }
        );
        assert_eq!(request.encode().unwrap(), REQUEST);

        let mut padded = REQUEST.to_vec();
        padded.resize(46, 0);
        assert_eq!(Arp::decode(&padded), Ok(request));
        for short in 0..REQUEST.len() {
            assert_eq!(Arp::decode(&REQUEST[..short]), Err(ArpError::Short));
        }
    }

    #[test]
    fn the_other_dialect_writes_every_separator() {
        let request = Arp::decode(IRATI_REQUEST).unwrap();
        assert_eq!(request.encode().unwrap(), IRATI_REQUEST);
        assert_eq!(request.target_mac, Dialect::IRATI.unknown);
        let name = Name::parse(request.target, &Dialect::IRATI).unwrap();
        let expected = Name {
            ap: "test1.normal.DIF",
            api: "1",
            ..Name::default()
        };
        assert_eq!(name, expected);
        assert_eq!(name.to_text(&Dialect::IRATI).unwrap(), request.target);
        assert_eq!(
            name.to_text(&Dialect::NATIVE).unwrap(),
            "test1.normal.DIF|1"
        );
        assert_eq!(Name::of("b").to_text(&Dialect::NATIVE).unwrap(), "b");
    }

    #[test]
    fn a_name_that_would_be_read_differently_is_refused() {
        for wrong in ["", "a|b", "a\0", "tab\t"] {
            let text = Name::of(wrong).to_text(&Dialect::NATIVE);
            assert_eq!(text, Err(ArpError::Name), "{wrong:?}");
        }
        let long = "n".repeat(256);
        assert_eq!(
            Name::of(&long).to_text(&Dialect::NATIVE),
            Err(ArpError::Name)
        );
        assert!(Name::of(&long[1..]).to_text(&Dialect::NATIVE).is_ok());
        assert!(Name::of("a|b").to_text(&Dialect::IRATI).is_ok());
        assert_eq!(
            Name::parse("a|b|c|d|e", &Dialect::NATIVE),
            Err(ArpError::Name)
        );
    }

    #[test]
    fn arp_of_others_and_broken_arp_are_different_errors() {
        let mut ipv4 = REQUEST.to_vec();
        ipv4[2..4].copy_from_slice(&[8, 0]);
        assert_eq!(Arp::decode(&ipv4), Err(ArpError::Other));
        let mut odd = REQUEST.to_vec();
        odd[7] = 3;
        assert_eq!(Arp::decode(&odd), Err(ArpError::Operation));
        odd = REQUEST.to_vec();
        odd[14] = 0xff;
        assert_eq!(Arp::decode(&odd), Err(ArpError::Name));
    }
}
