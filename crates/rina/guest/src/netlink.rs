//! Addresses and routes, through rtnetlink(7).

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::Ipv4Addr;

use crate::order::Prefix;
use crate::system::route_socket;

/// A netlink socket for requests about addresses and routes.
pub(crate) struct Routes {
    socket: File,
    sequence: u32,
}

impl Routes {
    pub(crate) fn new() -> Result<Routes> {
        Ok(Routes {
            socket: route_socket()?,
            sequence: 0,
        })
    }

    /// Adds an address with its prefix length to the interface with this index.
    pub(crate) fn add_address(&mut self, index: u32, own: Prefix) -> Result<()> {
        self.ask(|sequence| address_message(sequence, index, own))
    }

    /// Sets the route to a prefix over a neighbour, and replaces an earlier one.
    pub(crate) fn replace_route(&mut self, to: Prefix, via: Ipv4Addr) -> Result<()> {
        self.ask(|sequence| route_message(sequence, to, via))
    }

    fn ask(&mut self, message: impl FnOnce(u32) -> Vec<u8>) -> Result<()> {
        self.sequence += 1;
        self.socket.write_all(&message(self.sequence))?;
        let mut answer = [0; 4096];
        for _ in 0..ANSWERS_MAX {
            let length = self.socket.read(&mut answer)?;
            if let Some(code) = code_of(&answer[..length], self.sequence) {
                return match code {
                    0 => Ok(()),
                    code => Err(Error::from_raw_os_error(-code)),
                };
            }
        }
        Err(ErrorKind::InvalidData.into())
    }
}

/// Encodes a request to add an address (RTM_NEWADDR).
fn address_message(sequence: u32, index: u32, own: Prefix) -> Vec<u8> {
    let mut body = vec![AF_INET, own.bits, 0, 0];
    body.extend(index.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, own.address.octets());
    attribute(&mut body, IFA_ADDRESS, own.address.octets());
    message(RTM_NEWADDR, CREATE | EXCLUSIVE, sequence, &body)
}

/// Encodes a request to set a route (RTM_NEWROUTE).
fn route_message(sequence: u32, to: Prefix, via: Ipv4Addr) -> Vec<u8> {
    // Family, prefix lengths of destination and source, type of service, table, protocol (origin),
    // scope, type, flags.
    let mut body = vec![
        AF_INET,
        to.bits,
        0,
        0,
        RT_TABLE_MAIN,
        RTPROT_BOOT,
        RT_SCOPE_UNIVERSE,
        RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    attribute(&mut body, RTA_DST, to.address.octets());
    attribute(&mut body, RTA_GATEWAY, via.octets());
    message(RTM_NEWROUTE, CREATE | REPLACE, sequence, &body)
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// The kernel's result for a request: 0, or a negative error number. `None` if the message does not
/// answer the request.
fn code_of(answer: &[u8], sequence: u32) -> Option<i32> {
    let word = |at: usize| -> Option<[u8; 4]> { answer.get(at..at + 4)?.try_into().ok() };
    let kind = u16::from_ne_bytes([*answer.get(4)?, *answer.get(5)?]);
    let is_answer = kind == NLMSG_ERROR && u32::from_ne_bytes(word(8)?) == sequence;
    is_answer.then_some(i32::from_ne_bytes(word(HEADER_BYTES)?))
}

const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const AF_INET: u8 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RTN_UNICAST: u8 = 1;
/// Largest number of messages that are skipped because they do not answer the request.
const ANSWERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_known_by_its_sequence() {
        let mut answer = message(NLMSG_ERROR, 0, 7, &(-17_i32).to_ne_bytes());
        assert_eq!(code_of(&answer, 7), Some(-17));
        assert_eq!(code_of(&answer, 8), None);
        for length in 0..answer.len() {
            assert_eq!(code_of(&answer[..length], 7), None, "{length}");
        }
        answer[4] = RTM_NEWADDR as u8;
        assert_eq!(code_of(&answer, 7), None);
    }

    #[test]
    fn messages_have_their_length_and_attributes() {
        let to = Prefix {
            address: Ipv4Addr::new(10, 0, 0, 4),
            bits: 30,
        };
        let bytes = route_message(3, to, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(bytes.len(), 16 + 12 + 8 + 8);
        assert_eq!(bytes[..4], 44_u32.to_ne_bytes());
        assert_eq!(bytes[16..18], [AF_INET, 30]);
        assert_eq!(bytes[32..36], [10, 0, 0, 4]);
        assert_eq!(bytes[40..], [10, 0, 0, 2]);
        let bytes = address_message(4, 9, to);
        assert_eq!(bytes.len(), 16 + 8 + 8 + 8);
        assert_eq!(bytes[20..24], 9_u32.to_ne_bytes());
    }
}
