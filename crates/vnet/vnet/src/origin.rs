//! Groups source addresses, for counting what comes from one host.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an address that one host may own: an IPv6 address becomes its /64 network, an IPv4
/// address stays as it is. (RFC 4291, section 2.5.1)
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}
