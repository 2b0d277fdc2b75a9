//! JSON messages about access points, exchanged on `vnet.sock` and between roles.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A kind of access that a token grants to an end user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// An IPv4 address in the network, and IP packets from and to that address.
    Ip,
    /// Membership in the network's DIF, as the network's nodes have it.
    Dif,
}

impl std::str::FromStr for Right {
    type Err = String;

    fn from_str(text: &str) -> Result<Right, String> {
        match text {
            "ip" => Ok(Right::Ip),
            "dif" => Ok(Right::Dif),
            other => Err(format!(
                "{other:?} is not a right; the rights are ip and dif"
            )),
        }
    }
}

/// A request to an agent to make a token, with which an end user can join the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenWanted {
    /// The end user for whom the token is made.
    pub user: String,
    /// Seconds from now for which the token is valid.
    pub lease_s: u64,
    /// Addresses at which users reach the host; the host's own addresses if the list is empty.
    #[serde(default)]
    pub at: Vec<AtAddress>,
    /// The rights that the token grants; the right to IP if the set is empty.
    #[serde(default)]
    pub rights: BTreeSet<Right>,
}

/// An address at which users reach a host, with a port if it differs from the access point's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AtAddress {
    /// An address with a port: a NAT forwards this port to the access point.
    Port(SocketAddr),
    /// An address without a port: users take the access point's port.
    Address(IpAddr),
}

impl AtAddress {
    /// The address with its own port, or with `port` (the access point's) if it has none.
    #[must_use]
    pub fn with_port(self, port: u16) -> SocketAddr {
        match self {
            AtAddress::Port(address) => address,
            AtAddress::Address(address) => SocketAddr::new(address, port),
        }
    }
}

impl std::str::FromStr for AtAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<AtAddress, String> {
        let address = text.parse().map(AtAddress::Address);
        let parsed = address.or_else(|_| text.parse().map(AtAddress::Port));
        parsed.map_err(|_| {
            format!(
                "{text:?}: write an address as 192.0.2.1, 192.0.2.1:51820 or [2001:db8::1]:51820"
            )
        })
    }
}

/// A token that the agent has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenReport {
    /// The token as text, which its holder gives to `carina vnet join`.
    pub token: String,
    /// Addresses of the access point, as the token gives them.
    pub at: Vec<SocketAddr>,
    /// When the token expires, in seconds since 1970.
    pub until: u64,
}

/// A request to revoke the tokens of an end user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserWanted {
    /// The user whose tokens are revoked.
    pub user: String,
}

/// The answer to a revocation: the user's tokens no longer hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// Whether the user had joined; if so, the access point has disconnected the user.
    pub was_joined: bool,
}

/// An access point with its users, and the packets that it has discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessReport {
    /// Name of the access point, as in the network's document.
    pub access: String,
    /// Number of the link that the access point is in the network's layout.
    pub link: u32,
    /// UDP port on which the access point listens.
    pub port: u16,
    /// The users that may join at this access point, as the network's document lists them.
    pub users: Vec<UserReport>,
    /// Number of packets that the access point has discarded, by reason.
    pub discarded: BTreeMap<String, u64>,
}

/// The state of a user at an access point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserReport {
    /// Name of the end user whose state this is.
    pub user: String,
    /// IPv4 address that is reserved for the user.
    pub address: Ipv4Addr,
    /// When the joined user's token expires, in seconds since 1970; `None` if the user has not
    /// joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The rights of the user's token; empty if the user has not joined.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rights: BTreeSet<Right>,
    /// IP address and UDP port of the user's system, outside the tunnel; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SocketAddr>,
    /// Seconds since the last WireGuard handshake with the user's system; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_s: Option<u64>,
    /// Bytes that the user has sent into the network since joining.
    pub sent_bytes: u64,
    /// Bytes that the network has sent to the user since joining.
    pub received_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_host_may_have_ports() {
        let at = |text: &str| {
            text.parse::<AtAddress>()
                .map(|address| address.with_port(7).to_string())
        };
        assert_eq!(at("192.0.2.1").as_deref(), Ok("192.0.2.1:7"));
        assert_eq!(at("192.0.2.1:9").as_deref(), Ok("192.0.2.1:9"));
        assert_eq!(at("2001:db8::1").as_deref(), Ok("[2001:db8::1]:7"));
        assert!(at("host").unwrap_err().contains("192.0.2.1:51820"));
    }
}
