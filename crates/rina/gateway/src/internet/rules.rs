//! Which destinations the rules of a door allow.

use std::net::{IpAddr, SocketAddr};

use carina_wrap::addresses::is_of_this_host;
use carina_wrap::rule::Destinations;

/// Whether the rules allow a client's request for this host name and port. Rules with a name and
/// `*` can allow it.
pub(crate) fn allow_name(rules: &[Destinations], name: &str, port: u16) -> bool {
    rules.iter().any(|rule| rule.has_name(name, port))
}

/// Whether the rules allow a client's request that has an IP address in place of a host name. Rules
/// with addresses and `*` can allow it.
pub(crate) fn allow_literal(rules: &[Destinations], address: IpAddr, port: u16) -> bool {
    rules.iter().any(|rule| rule.has_address(address, port))
}

/// Whether the rules allow a connection to this address, which the client gave or a look-up
/// returned. Addresses of this host itself or of its link need a rule with such an address, so that
/// a foreign name server cannot lead clients to them.
pub(crate) fn allow_address(rules: &[Destinations], address: SocketAddr) -> bool {
    allows(rules, address, is_of_this_host)
}

/// Like [`allow_address`]; `is_own` says which addresses are of this host. An address of an
/// interface needs a rule with exactly this address: a network of which the host is one member does
/// not mean the host.
fn allows(rules: &[Destinations], address: SocketAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
    let ip = address.ip().to_canonical();
    let is_near = is_near(ip);
    if !is_near && !is_own(ip) {
        return true;
    }
    let is_whole = |length: u8| length == if ip.is_ipv4() { 32 } else { 128 };
    rules
        .iter()
        .filter_map(|rule| rule.network_of(ip, address.port()))
        .any(|(network, length)| {
            if is_near {
                length > 0 && self::is_near(network)
            } else {
                is_whole(length)
            }
        })
}

/// Whether an address belongs to this host alone or to its link: loopback, unspecified (which
/// connects to the loopback), link-local, multicast and broadcast.
fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_broadcast()
                // This host on this network: RFC 1122, section 3.2.1.3.
                || first == 0
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Destinations> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn reaches(texts: &[&str], host: &str, address: &str) -> bool {
        let (rules, address): (_, SocketAddr) = (rules(texts), address.parse().unwrap());
        let is_asked = match host.parse::<IpAddr>() {
            Ok(literal) => allow_literal(&rules, literal, address.port()),
            Err(_) => allow_name(&rules, host, address.port()),
        };
        is_asked && allow_address(&rules, address)
    }

    #[test]
    fn nothing_is_allowed_without_a_rule() {
        assert!(!reaches(&[], "www.example.com", "151.101.2.132:80"));
        assert!(!reaches(
            &["other:80"],
            "www.example.com",
            "151.101.2.132:80"
        ));
        assert!(!reaches(
            &["www.example.com:80"],
            "www.example.com",
            "151.101.2.132:443"
        ));
        assert!(reaches(
            &["www.example.com:80"],
            "www.example.com",
            "151.101.2.132:80"
        ));
        // An address is not allowed by the name that leads to it, nor a name by its address.
        assert!(!reaches(
            &["www.example.com:80"],
            "151.101.2.132",
            "151.101.2.132:80"
        ));
        assert!(!reaches(
            &["151.101.2.132"],
            "www.example.com",
            "151.101.2.132:80"
        ));
    }

    #[test]
    fn this_host_and_its_link_must_be_named_by_address() {
        for address in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "169.254.169.254:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::1]:80",
            "[::]:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
            "[::ffff:127.0.0.1]:80",
        ] {
            let ip = address.parse::<SocketAddr>().unwrap().ip().to_string();
            for all in ["*", "0.0.0.0/0", "::/0"] {
                assert!(
                    !reaches(&[all, "*.example"], "rebound.example", address),
                    "{address}"
                );
                assert!(!reaches(&[all], &ip, address), "{all} {address}");
            }
        }
        assert!(reaches(&["127.0.0.1:80"], "127.0.0.1", "127.0.0.1:80"));
        assert!(!reaches(&["127.0.0.1:80"], "127.0.0.1", "127.0.0.1:81"));
        assert!(!reaches(&["127.0.0.1:80"], "127.0.0.2", "127.0.0.2:80"));
        assert!(reaches(&["127.0.0.0/8"], "127.0.0.2", "127.0.0.2:80"));
        assert!(reaches(
            &["localhost:80", "127.0.0.1"],
            "localhost",
            "127.0.0.1:80"
        ));
    }

    #[test]
    fn own_interfaces_must_be_named_by_exact_address() {
        let is_own = |ip: IpAddr| ["10.9.0.5", "2001:db8::5"].contains(&ip.to_string().as_str());
        let allowed =
            |texts: &[&str], address: &str| allows(&rules(texts), address.parse().unwrap(), is_own);
        for address in ["10.9.0.5:22", "[2001:db8::5]:22", "[::ffff:10.9.0.5]:22"] {
            for rule in [
                "*",
                "lan.example",
                "10.9.0.0/16",
                "2001:db8::/64",
                "10.9.0.5:80",
            ] {
                assert!(!allowed(&[rule], address), "{rule} {address}");
            }
        }
        assert!(allowed(&["10.9.0.5:22"], "10.9.0.5:22"));
        assert!(allowed(&["lan.example", "2001:db8::5"], "[2001:db8::5]:22"));
        assert!(
            allowed(&["10.9.0.0/16"], "10.9.0.6:22"),
            "another host of the network"
        );
    }
}
