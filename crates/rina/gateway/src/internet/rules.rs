//! Which destinations the rules of a door allow.

use std::net::{IpAddr, SocketAddr};

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
    let ip = address.ip().to_canonical();
    !is_near(ip)
        || rules.iter().any(|rule| {
            let network = rule.network_of(ip, address.port());
            network.is_some_and(|(network, length)| length > 0 && is_near(network))
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
}
