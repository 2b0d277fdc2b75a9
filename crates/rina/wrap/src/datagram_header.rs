//! The header that carries the address of the peer with each datagram of a relayed socket.
//!
//! ```text
//! "Cd" | IP address, 16 bytes (IPv4 as an IPv4-mapped address) | port, 2 bytes | the datagram
//! "Cc" | IP address                                            | port: asks for the peer's flow
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Length of the header in bytes.
pub const BYTES: usize = 20;

/// Encodes the address of a peer.
pub fn encode(address: SocketAddr) -> [u8; BYTES] {
    encode_after(MAGIC, address)
}

/// Encodes the message by which a program asks its relay for the flow of a peer.
pub(crate) fn encode_connect(address: SocketAddr) -> [u8; BYTES] {
    encode_after(CONNECT, address)
}

fn encode_after(magic: &[u8; 2], address: SocketAddr) -> [u8; BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut header = [0; BYTES];
    header[..2].copy_from_slice(magic);
    header[2..18].copy_from_slice(&ip.octets());
    header[18..].copy_from_slice(&address.port().to_be_bytes());
    header
}

/// Splits a message into the address of the peer, an IPv4 address wherever possible, and the
/// datagram; `None` for a message without a header.
pub fn decode(message: &[u8]) -> Option<(SocketAddr, &[u8])> {
    decode_after(MAGIC, message)
}

/// Returns the peer whose flow a program asks for; `None` for any other message.
pub(crate) fn decode_connect(message: &[u8]) -> Option<SocketAddr> {
    let (peer, rest) = decode_after(CONNECT, message)?;
    rest.is_empty().then_some(peer)
}

fn decode_after<'a>(magic: &[u8; 2], message: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
    let (header, datagram) = message.split_at_checked(BYTES)?;
    let ip = <[u8; 16]>::try_from(header.strip_prefix(magic)?.get(..16)?).ok()?;
    let port = u16::from_be_bytes([header[18], header[19]]);
    let ip = IpAddr::from(Ipv6Addr::from(ip)).to_canonical();
    Some((SocketAddr::new(ip, port), datagram))
}

/// The first bytes of each header. A program that writes to a relayed socket without an address,
/// which the kernel cannot refuse, has no header before its datagram.
const MAGIC: &[u8; 2] = b"Cd";

/// The first bytes of a message that asks for the flow of a peer.
const CONNECT: &[u8; 2] = b"Cc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_keeps_the_address_and_the_datagram() {
        for text in ["10.9.1.1:80", "[fd63::1]:443", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let message = [&encode(address)[..], b"text"].concat();
            assert_eq!(decode(&message), Some((address, &b"text"[..])));
            assert_eq!(decode_connect(&encode_connect(address)), Some(address));
            assert_eq!(decode_connect(&message), None);
            assert_eq!(decode(&encode_connect(address)), None);
        }
        assert_eq!(decode(&[0; BYTES]), None);
        assert_eq!(decode(b"Cd"), None);
    }
}
