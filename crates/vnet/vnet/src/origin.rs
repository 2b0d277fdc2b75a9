//! Where something comes from that is counted by its source.

use std::net::{IpAddr, Ipv6Addr};

/// An address as one that a host may have alone: of IPv6 the network of 64 bits. (RFC 4291,
/// section 2.5.1)
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}
