//! Encodes and decodes socket addresses as programs have them in memory (ip(7), ipv6(7)).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Decodes an address; `None` for a family other than IPv4 and IPv6, or if there are too few bytes.
pub fn decoded(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    match family {
        libc::AF_INET if bytes.len() >= BYTES_V4 => {
            let ip = Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?);
            Some(SocketAddrV4::new(ip, port(bytes)?).into())
        }
        libc::AF_INET6 if bytes.len() >= BYTES_V6 => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?);
            Some(SocketAddrV6::new(ip, port(bytes)?, 0, 0).into())
        }
        _ => None,
    }
}

/// Encodes an address in the form of its family.
pub fn encoded(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes.extend(address.ip().octets());
            bytes.resize(BYTES_V4, 0);
        }
        SocketAddr::V6(address) => {
            bytes.extend([0; 4]);
            bytes.extend(address.ip().octets());
            bytes.resize(BYTES_V6, 0);
        }
    }
    bytes
}

/// Returns the port, which is at the same place in addresses of both families; `None` if there are
/// too few bytes.
pub fn port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))
}

/// Bytes of `sockaddr_in`.
const BYTES_V4: usize = 16;

/// Bytes of `sockaddr_in6`.
const BYTES_V6: usize = 28;

/// Largest number of bytes of an address that the kernel accepts: `sockaddr_storage`.
pub const BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn address_reads_as_it_was_written() {
        for text in ["10.9.1.1:80", "[fd63::1]:443", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = encoded(address);
            assert_eq!(decoded(&bytes), Some(address));
            assert_eq!(decoded(&bytes[..bytes.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_none(bytes: Vec<u8>) {
            let _ = decoded(&bytes);
        }
    }
}
