//! The server's side of SOCKS Protocol Version 5 (RFC 1928): CONNECT, without authentication.
//!
//! ```text
//!  client: 05 NMETHODS METHODS...          server: 05 00
//!  client: 05 01 00 ATYP ADDRESS PORT      server: 05 REP 00 01 0.0.0.0 0
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::proxy::destination::Destination;

/// How far the SOCKS handshake of one client has come.
#[derive(Debug, Default)]
pub(crate) struct Socks5 {
    is_greeted: bool,
}

/// What the proxy must do after it has read bytes of a SOCKS client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read more bytes: the client's message is incomplete.
    More,
    /// Send these bytes to the client, then read more.
    Send([u8; 2]),
    /// Connect to the destination, then send a [`reply`] to the client.
    Connect(Destination),
}

/// Why the proxy ends the connection of a SOCKS client.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum SocksError {
    #[error("the client speaks SOCKS version {0}, not 5; give it the address as socks5h://")]
    Version(u8),
    #[error("the client sends what is not SOCKS5 (first byte {0:#04x})")]
    NotSocks(u8),
    #[error("the client requires authentication; this proxy has none")]
    Methods,
    #[error("command {0} is not supported: only CONNECT (1) is")]
    Command(u8),
    #[error("{0} is no type of address: 1 (IPv4), 3 (name) and 4 (IPv6) are")]
    AddressType(u8),
    #[error("the destination has no valid name or has port 0")]
    Destination,
    #[error("the reserved byte of the request is {0}, not 0")]
    Reserved(u8),
}

impl Socks5 {
    /// Removes the next complete message from `input`, and returns what to do.
    ///
    /// # Errors
    /// The client cannot be served: [`SocksError::answer`] has what to send before closing.
    pub(crate) fn step(&mut self, input: &mut Vec<u8>) -> Result<Step, SocksError> {
        let Some(&version) = input.first() else {
            return Ok(Step::More);
        };
        match version {
            VERSION => {}
            4 => return Err(SocksError::Version(4)),
            other => return Err(SocksError::NotSocks(other)),
        }
        if self.is_greeted {
            self.request(input)
        } else {
            self.greeting(input)
        }
    }

    fn greeting(&mut self, input: &mut Vec<u8>) -> Result<Step, SocksError> {
        let Some(&count) = input.get(1) else {
            return Ok(Step::More);
        };
        let length = 2 + usize::from(count);
        let Some(methods) = input.get(2..length) else {
            return Ok(Step::More);
        };
        if !methods.contains(&NO_AUTHENTICATION) {
            return Err(SocksError::Methods);
        }
        input.drain(..length);
        self.is_greeted = true;
        Ok(Step::Send([VERSION, NO_AUTHENTICATION]))
    }

    fn request(&self, input: &mut Vec<u8>) -> Result<Step, SocksError> {
        let [_, command, reserved, kind, rest @ ..] = &input[..] else {
            return Ok(Step::More);
        };
        if *command != CONNECT {
            return Err(SocksError::Command(*command));
        }
        if *reserved != 0 {
            return Err(SocksError::Reserved(*reserved));
        }
        let (skipped, length) = match (*kind, rest.first()) {
            (IPV4, _) => (0, 4),
            (IPV6, _) => (0, 16),
            (NAME, Some(&length)) => (1, usize::from(length)),
            (NAME, None) => return Ok(Step::More),
            (other, _) => return Err(SocksError::AddressType(other)),
        };
        let end = skipped + length;
        let (Some(host), Some(port)) = (rest.get(skipped..end), rest.get(end..end + 2)) else {
            return Ok(Step::More);
        };
        let port = u16::from_be_bytes([port[0], port[1]]);
        let destination = host_text(*kind, host).and_then(|host| Destination::new(&host, port));
        let destination = destination.ok_or(SocksError::Destination)?;
        input.drain(..4 + end + 2);
        Ok(Step::Connect(destination))
    }
}

fn host_text(kind: u8, bytes: &[u8]) -> Option<String> {
    match kind {
        IPV4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|bytes| Ipv4Addr::from(bytes).to_string()),
        IPV6 => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|bytes| Ipv6Addr::from(bytes).to_string()),
        _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
    }
}

impl SocksError {
    /// The bytes to send to the client before the connection is closed; empty if the client does
    /// not speak SOCKS5.
    pub(crate) fn answer(&self) -> Vec<u8> {
        match self {
            SocksError::Version(_) | SocksError::NotSocks(_) => Vec::new(),
            SocksError::Methods => vec![VERSION, NO_ACCEPTABLE_METHOD],
            SocksError::Command(_) => reply(COMMAND_NOT_SUPPORTED).to_vec(),
            SocksError::AddressType(_) => reply(ADDRESS_TYPE_NOT_SUPPORTED).to_vec(),
            SocksError::Destination | SocksError::Reserved(_) => reply(GENERAL_FAILURE).to_vec(),
        }
    }
}

/// Whether a first byte is a version of SOCKS: no method of HTTP begins so.
pub(crate) fn is_version(first: u8) -> bool {
    [4, VERSION].contains(&first)
}

/// The reply to a request (RFC 1928 §6). A flow has no address, so the bound address is 0.0.0.0:0.
pub(crate) fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Codes of replies (RFC 1928 §6).
pub(crate) const SUCCEEDED: u8 = 0;
pub(crate) const GENERAL_FAILURE: u8 = 1;
pub(crate) const NOT_ALLOWED: u8 = 2;
pub(crate) const NETWORK_UNREACHABLE: u8 = 3;
pub(crate) const HOST_UNREACHABLE: u8 = 4;
pub(crate) const CONNECTION_REFUSED: u8 = 5;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The destination that a client asks for which sends `request` after its greeting, and what
    /// it sent behind the request.
    fn asked(request: &[u8]) -> Result<(String, Vec<u8>), SocksError> {
        let all = [&[5, 2, 1, 0], request].concat();
        let (mut socks, mut input) = (Socks5::default(), Vec::new());
        let mut bytes = all.iter();
        // Byte by byte: a message may arrive in any pieces.
        loop {
            match socks.step(&mut input)? {
                Step::Connect(to) => {
                    input.extend(bytes);
                    return Ok((to.to_string(), input));
                }
                Step::Send(greeting) => assert_eq!(greeting, [5, 0]),
                Step::More => input.push(*bytes.next().expect("the request is whole")),
            }
        }
    }

    #[test]
    fn names_and_addresses_of_both_families_are_destinations() {
        let name = [&[5, 1, 0, 3, 6][..], b"Web.vm", &[0, 80], b"early"].concat();
        assert_eq!(asked(&name), Ok(("web.vm:80".into(), b"early".to_vec())));
        let four = [5, 1, 0, 1, 10, 0, 0, 1, 31, 144];
        assert_eq!(asked(&four).unwrap().0, "10.0.0.1:8080");
        let six = [&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[1, 187]].concat();
        assert_eq!(asked(&six).unwrap().0, "[::1]:443");
        let digits = [&[5, 1, 0, 3, 7][..], b"1.2.3.4", &[0, 1]].concat();
        assert_eq!(asked(&digits).unwrap().0, "1.2.3.4:1");
    }

    #[test]
    fn wrong_requests_have_the_replies_of_the_rfc() {
        let code = |request: &[u8]| asked(request).unwrap_err().answer()[1];
        assert_eq!(code(&[5, 2, 0, 1]), COMMAND_NOT_SUPPORTED);
        assert_eq!(code(&[5, 1, 0, 2]), ADDRESS_TYPE_NOT_SUPPORTED);
        assert_eq!(code(&[5, 1, 0, 3, 0, 0, 80]), GENERAL_FAILURE);
        assert_eq!(code(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0]), GENERAL_FAILURE);
        assert_eq!(code(&[5, 1, 1, 1]), GENERAL_FAILURE);
        assert_eq!(code(&[5, 1, 0, 3, 2, 0xff, 0xfe, 0, 80]), GENERAL_FAILURE);
    }

    #[test]
    fn wrong_greetings_are_refused() {
        let error = |bytes: &[u8]| Socks5::default().step(&mut bytes.to_vec()).unwrap_err();
        assert_eq!(error(&[5, 1, 2]).answer(), [5, 0xff]);
        assert_eq!(error(&[5, 0]), SocksError::Methods);
        assert!(error(&[4, 1, 0, 80]).to_string().contains("version 4"));
        assert!(error(b"GET / HTTP/1.1").answer().is_empty());
    }
}
