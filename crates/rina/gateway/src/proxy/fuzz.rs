//! Fuzz targets: bytes of hostile clients.

use crate::proxy::handshake::{Handshake, Heard};
use crate::proxy::settings::Protocol;
use crate::proxy::socks::is_version;

/// Fuzz target: parses the bytes of a SOCKS5 client, and checks that it does not matter how they
/// are divided.
pub fn socks5(data: &[u8]) {
    reads_socks5(data);
}

/// Whether the bytes are a complete request of a SOCKS5 client for a connection.
pub fn reads_socks5(data: &[u8]) -> bool {
    asks(Protocol::Socks5, data)
}

/// Fuzz target: parses the bytes of a client of an HTTP proxy, and checks the head that the server
/// would get.
pub fn http_proxy(data: &[u8]) {
    reads_http_proxy(data);
}

/// Whether the bytes are a complete request of an HTTP client for a connection.
pub fn reads_http_proxy(data: &[u8]) -> bool {
    asks(Protocol::Http, data)
}

/// Whether the bytes ask for a connection. Whether they arrive at once or one by one makes no
/// difference, nor whether the first of them tells the protocol.
fn asks(protocol: Protocol, data: &[u8]) -> bool {
    let at_once = outcome(Some(protocol), &[data]);
    let pieces: Vec<&[u8]> = data.chunks(1).collect();
    let one_by_one = outcome(Some(protocol), &pieces);
    let is_socks = data.first().is_some_and(|first| is_version(*first));
    if is_socks == (protocol == Protocol::Socks5) {
        assert_eq!(at_once, outcome(None, &[data]));
    }
    // An error may be seen before the rest has arrived; a request only when all of it has.
    if at_once.is_some() || one_by_one.is_some() {
        assert_eq!(at_once, one_by_one);
    }
    at_once.is_some()
}

/// The destination, what the server is sent first, and whether the body is complete; `None` if
/// the client is not served.
fn outcome(
    protocol: Option<Protocol>,
    pieces: &[&[u8]],
) -> Option<(String, Vec<u8>, Option<bool>)> {
    let mut handshake = Handshake::new(protocol);
    let mut input = Vec::new();
    let mut pieces = pieces.iter();
    loop {
        match handshake.hear(&mut input) {
            Heard::More => input.extend_from_slice(pieces.next()?),
            Heard::Send(bytes) => assert!(!bytes.is_empty()),
            Heard::Wrong { why, .. } => {
                assert!(!why.is_empty());
                return None;
            }
            Heard::Asked(mut asked) => {
                for piece in pieces {
                    input.extend_from_slice(piece);
                }
                let mut first = std::mem::take(&mut asked.head);
                let is_complete = match &mut asked.body {
                    None => {
                        first.append(&mut input);
                        None
                    }
                    Some(body) => {
                        let taken = body.take(&input).ok()?;
                        assert!(taken <= input.len());
                        assert!(body.is_complete() || taken == input.len());
                        first.extend_from_slice(&input[..taken]);
                        check_head(&first);
                        Some(body.is_complete())
                    }
                };
                return Some((asked.to.to_string(), first, is_complete));
            }
        }
    }
}

/// A forwarded head has one end, one host, and closes the connection.
fn check_head(bytes: &[u8]) {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&bytes[..end.expect("the head has an end")]).into_owned();
    let count = |name: &str| {
        let is_it = |line: &&str| line.to_ascii_lowercase().starts_with(name);
        head.split("\r\n").skip(1).filter(is_it).count()
    };
    assert_eq!((count("host:"), count("connection:")), (1, 1), "{head}");
    assert!(
        count("content-length:") + count("transfer-encoding:") <= 1,
        "{head}"
    );
}
