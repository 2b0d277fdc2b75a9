//! Translation of host names to addresses and back. A call may take seconds: a thread that moves
//! SDUs must not make it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Resolves `HOST`, `HOST:PORT`, an IP address, or `[IPv6]:PORT` by `/etc/hosts` or DNS. If the
/// text names no port, the result has `port`. The call may take seconds.
///
/// # Errors
/// The text is neither an address nor a known host.
pub fn address_of_host(host: &str, port: u16) -> io::Result<SocketAddr> {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, digits)) => match digits.parse() {
            Ok(port) => (name, port),
            Err(_) => (host, port),
        },
        None => (host, port),
    };
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no address for {name}"));
    (name, port).to_socket_addrs()?.next().ok_or_else(missing)
}

/// Looks up the host name of an address in `/etc/hosts` or DNS; `None` if it has none. The call may
/// take seconds.
#[must_use]
pub fn host_of_address(ip: IpAddr) -> Option<String> {
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let bytes = crate::udp::put_address(&mut name, SocketAddr::new(ip, 0), ip.is_ipv6());
    let mut host = [0 as libc::c_char; libc::NI_MAXHOST as usize];
    // SAFETY: the address is of the length given, and the buffer of its length.
    let result = unsafe {
        libc::getnameinfo(
            (&raw const name).cast(),
            bytes,
            host.as_mut_ptr(),
            host.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: on success the buffer holds a C string.
    let host = unsafe { CStr::from_ptr(host.as_ptr()) };
    host.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_port() {
        for (text, address) in [
            ("192.0.2.7", "192.0.2.7:3359"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("2001:db8::1", "[2001:db8::1]:3359"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            assert_eq!(
                address_of_host(text, 3359).unwrap(),
                address.parse().unwrap()
            );
        }
        assert_eq!(address_of_host("localhost:7", 1).unwrap().port(), 7);
        assert!(address_of_host("no such host", 1).is_err());
    }

    #[test]
    fn the_loopback_address_has_a_name_where_hosts_say_so() {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        if hosts.lines().any(|line| line.starts_with("127.0.0.1")) {
            assert!(host_of_address([127, 0, 0, 1].into()).is_some());
        }
    }
}
