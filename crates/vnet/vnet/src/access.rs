//! What is asked for and known of access points: JSON on `vnet.sock` and between roles.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What a token gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// An address in the network, and packets of IP from and to it.
    Ip,
    /// Membership in the DIF of the network, as nodes have it.
    Dif,
}

impl std::str::FromStr for Right {
    type Err = String;

    fn from_str(text: &str) -> Result<Right, String> {
        match text {
            "ip" => Ok(Right::Ip),
            "dif" => Ok(Right::Dif),
            other => Err(format!("{other:?} is no right; rights are ip and dif")),
        }
    }
}

/// A token that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenWanted {
    /// For whom.
    pub user: String,
    /// For how many seconds from now.
    pub lease_s: u64,
    /// Where users find the host; its own addresses if the list is empty.
    #[serde(default)]
    pub at: Vec<AtAddress>,
    /// What it gives; the right to IP if the set is empty.
    #[serde(default)]
    pub rights: BTreeSet<Right>,
}

/// An address at which users find a host, with a port where it is not that of the access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AtAddress {
    /// With a port: a translator of addresses leads from there to the access point.
    Port(SocketAddr),
    /// Without.
    Address(IpAddr),
}

impl AtAddress {
    /// With the port of the access point, if it has none.
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
                "{text:?}: an address is written 192.0.2.1, 192.0.2.1:51820 or [2001:db8::1]:51820"
            )
        })
    }
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenReport {
    /// The token.
    pub token: String,
    /// Where it says that the access point is.
    pub at: Vec<SocketAddr>,
    /// When it ends, seconds since 1970.
    pub until: u64,
}

/// Of whom tokens are to be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserWanted {
    /// The user.
    pub user: String,
}

/// Tokens were taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// The user had joined, and is cut off.
    pub was_joined: bool,
}

/// An access point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessReport {
    /// Its name.
    pub access: String,
    /// The number of the link that it is.
    pub link: u32,
    /// The port of UDP where it listens.
    pub port: u16,
    /// Its users.
    pub users: Vec<UserReport>,
    /// What it has discarded, by reason.
    pub discarded: BTreeMap<String, u64>,
}

/// A user of an access point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserReport {
    /// The user.
    pub user: String,
    /// The address that is kept for them.
    pub address: Ipv4Addr,
    /// Until when they have joined, seconds since 1970; none: they have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// What their token gives, if they have joined.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rights: BTreeSet<Right>,
    /// Where their system is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SocketAddr>,
    /// How long ago the last handshake was, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_s: Option<u64>,
    /// Bytes that they have sent into the network since they joined.
    pub sent_bytes: u64,
    /// Bytes that they were sent.
    pub received_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_host_may_have_ports() {
        let at = |text: &str| {
            text.parse::<AtAddress>()
                .map(|it| it.with_port(7).to_string())
        };
        assert_eq!(at("192.0.2.1").as_deref(), Ok("192.0.2.1:7"));
        assert_eq!(at("192.0.2.1:9").as_deref(), Ok("192.0.2.1:9"));
        assert_eq!(at("2001:db8::1").as_deref(), Ok("[2001:db8::1]:7"));
        assert!(at("host").unwrap_err().contains("192.0.2.1:51820"));
    }
}
