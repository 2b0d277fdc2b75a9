//! Converts addresses of one family to the other, for a program whose socket has that family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;

use crate::unix_name::random;

pub(crate) fn of_family(ip: IpAddr, is_six: bool) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if is_six && ip.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V4(ip) if is_six => ip.to_ipv6_mapped().into(),
        ip if is_six => ip,
        ip => match ip.to_canonical() {
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.into(),
            ip => ip,
        },
    }
}

pub(crate) fn in_family(address: SocketAddr, is_six: bool) -> SocketAddr {
    SocketAddr::new(of_family(address.ip(), is_six), address.port())
}

pub(crate) fn is_of_this_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

pub(crate) fn ephemeral_port() -> Result<u16, Errno> {
    let span = u32::from(u16::MAX - EPHEMERAL_PORT_MIN) + 1;
    Ok(EPHEMERAL_PORT_MIN + (random()? % span) as u16)
}

/// The wildcard address and port 0.
pub(crate) const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// First port of the range from which sockets that ask for no port get one (RFC 6335 §6).
const EPHEMERAL_PORT_MIN: u16 = 49_152;
