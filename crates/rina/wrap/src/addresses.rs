//! Addresses of sockets: in the family that a program expects, and of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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

/// Returns an address in the family that a program expects. In IPv6, an IPv4 address is an
/// IPv4-mapped one.
pub fn in_family(address: SocketAddr, is_six: bool) -> SocketAddr {
    SocketAddr::new(of_family(address.ip(), is_six), address.port())
}

/// Whether a connection to this address leads to this host: loopback, unspecified (which the kernel
/// takes for the loopback), or an address of an interface in the caller's network namespace.
pub fn is_of_this_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified() || is_of_interface(ip)
}

/// Whether an interface has this address. Only then may a socket be bound to it, unless the system
/// lets every address be bound; then the source of a connection to the address tells.
fn is_of_interface(ip: IpAddr) -> bool {
    let Ok(socket) = UdpSocket::bind((ip, 0)) else {
        return false;
    };
    let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
    let setting = format!("/proc/sys/net/{family}/ip_nonlocal_bind");
    if std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == "0") {
        return true;
    }
    drop(socket);
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent: the kernel looks up the route.
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, DISCARD_PORT))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == ip)
}

pub(crate) fn ephemeral_port() -> Result<u16, Errno> {
    let span = u32::from(u16::MAX - EPHEMERAL_PORT_MIN) + 1;
    Ok(EPHEMERAL_PORT_MIN + (random()? % span) as u16)
}

/// The wildcard address and port 0.
pub(crate) const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A port for sockets that send nothing (RFC 863).
const DISCARD_PORT: u16 = 9;

/// First port of the range from which sockets that ask for no port get one (RFC 6335 §6).
const EPHEMERAL_PORT_MIN: u16 = 49_152;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_interfaces_are_of_this_host() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_of_this_host(ip.parse().unwrap()), "{ip}");
        }
        // Reserved for documentation: of no interface.
        for ip in ["192.0.2.77", "2001:db8::77", "::ffff:192.0.2.77"] {
            assert!(!is_of_this_host(ip.parse().unwrap()), "{ip}");
        }
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.77:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_of_this_host(own), "{own}");
        }
    }
}
