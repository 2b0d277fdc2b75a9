//! Prefixes of IPv4 and IPv6, their names in DIFs, and a table of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use carina_api::AppName;
use carina_apps::prefix::{Address as Masked, Prefix4, Prefix6};
use serde::{Deserialize, Serialize};

use crate::error::IpError;

/// A prefix of IPv4 or IPv6 addresses, such as `10.9.1.0/24` or `fd00::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// A prefix of IPv4 addresses.
    V4(Prefix4),
    /// A prefix of IPv6 addresses.
    V6(Prefix6),
}

impl IpPrefix {
    /// Makes the prefix that contains this address only.
    #[must_use]
    pub fn host(address: IpAddr) -> IpPrefix {
        match address {
            IpAddr::V4(address) => IpPrefix::V4(Prefix4::new(address, Ipv4Addr::WIDTH)),
            IpAddr::V6(address) => IpPrefix::V6(Prefix6::new(address, Ipv6Addr::WIDTH)),
        }
    }

    /// Returns the name under which a member registers the prefix, such as `ip:10.9.1.0/24`.
    #[must_use]
    pub fn name(self) -> AppName {
        AppName::new(format!("{NAME_SCHEME}{self}"))
            .expect("a prefix has no character that is refused")
    }

    /// Reads the prefix from the name of an application. `None` if the name is not `ip:` and a
    /// prefix in its usual notation.
    #[must_use]
    pub fn of_name(name: &AppName) -> Option<IpPrefix> {
        let text = name.as_str().strip_prefix(NAME_SCHEME)?;
        let prefix: IpPrefix = text.parse().ok()?;
        // One prefix has one name.
        (prefix.to_string() == text).then_some(prefix)
    }

    /// Whether the prefix contains this address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (IpPrefix::V4(prefix), IpAddr::V4(address)) => {
                address.masked(prefix.bits()) == prefix.address()
            }
            (IpPrefix::V6(prefix), IpAddr::V6(address)) => {
                address.masked(prefix.bits()) == prefix.address()
            }
            _ => false,
        }
    }

    /// Whether all addresses of another prefix are in this one.
    #[must_use]
    pub fn covers(self, other: IpPrefix) -> bool {
        self.bits() <= other.bits() && self.contains(other.address())
    }

    /// The lowest address of the prefix.
    #[must_use]
    pub fn address(self) -> IpAddr {
        match self {
            IpPrefix::V4(prefix) => prefix.address().into(),
            IpPrefix::V6(prefix) => prefix.address().into(),
        }
    }

    /// Length of the prefix in bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            IpPrefix::V4(prefix) => prefix.bits(),
            IpPrefix::V6(prefix) => prefix.bits(),
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpPrefix::V4(prefix) => prefix.fmt(f),
            IpPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl FromStr for IpPrefix {
    type Err = IpError;

    fn from_str(text: &str) -> Result<IpPrefix, IpError> {
        if text.contains(':') {
            Ok(IpPrefix::V6(text.parse()?))
        } else {
            Ok(IpPrefix::V4(text.parse()?))
        }
    }
}

impl Serialize for IpPrefix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IpPrefix {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<IpPrefix, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An address of an interface with the length of its link's prefix, such as `10.9.1.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The IP address of the interface, without the prefix length.
    pub address: IpAddr,
    /// Length of the prefix of the link, in bits.
    pub bits: u8,
}

impl Address {
    /// Returns the prefix of the link: all addresses that are reached over the interface.
    #[must_use]
    pub fn link(self) -> IpPrefix {
        match self.address {
            IpAddr::V4(address) => IpPrefix::V4(Prefix4::new(address, self.bits)),
            IpAddr::V6(address) => IpPrefix::V6(Prefix6::new(address, self.bits)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Address {
    type Err = IpError;

    fn from_str(text: &str) -> Result<Address, IpError> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most)?;
            Some(Address { address, bits })
        };
        let wrong = || IpError::Address(text.to_owned());
        let address = parse().ok_or_else(wrong)?;
        if address.address.is_unspecified() || address.address.is_multicast() {
            return Err(wrong());
        }
        Ok(address)
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Prefixes, of which the longest that contains an address is found by one look-up for each length
/// in use. Unlike the tables of `apps`, which are made for a million routes and cost 32 MiB, it
/// changes while members come and go.
#[derive(Clone, Debug, Default)]
pub struct PrefixTable {
    v4: BTreeMap<Reverse<u8>, HashSet<Ipv4Addr>>,
    v6: BTreeMap<Reverse<u8>, HashSet<Ipv6Addr>>,
}

impl PrefixTable {
    /// Returns the longest prefix that contains the address.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<IpPrefix> {
        match address {
            IpAddr::V4(address) => {
                let bits = longest(&self.v4, address)?;
                Some(IpPrefix::V4(Prefix4::new(address, bits)))
            }
            IpAddr::V6(address) => {
                let bits = longest(&self.v6, address)?;
                Some(IpPrefix::V6(Prefix6::new(address, bits)))
            }
        }
    }

    /// Whether the table has exactly this prefix.
    #[must_use]
    pub fn contains(&self, prefix: IpPrefix) -> bool {
        let bits = Reverse(prefix.bits());
        match prefix {
            IpPrefix::V4(prefix) => {
                let of_length = self.v4.get(&bits);
                of_length.is_some_and(|all| all.contains(&prefix.address()))
            }
            IpPrefix::V6(prefix) => {
                let of_length = self.v6.get(&bits);
                of_length.is_some_and(|all| all.contains(&prefix.address()))
            }
        }
    }

    /// Number of prefixes.
    #[must_use]
    pub fn len(&self) -> usize {
        let v4 = self.v4.values().map(HashSet::len);
        v4.chain(self.v6.values().map(HashSet::len)).sum()
    }

    /// Whether the table has no prefix.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<IpPrefix> for PrefixTable {
    fn from_iter<I: IntoIterator<Item = IpPrefix>>(prefixes: I) -> PrefixTable {
        let mut table = PrefixTable::default();
        for prefix in prefixes {
            let bits = Reverse(prefix.bits());
            match prefix {
                IpPrefix::V4(prefix) => {
                    table.v4.entry(bits).or_default().insert(prefix.address());
                }
                IpPrefix::V6(prefix) => {
                    table.v6.entry(bits).or_default().insert(prefix.address());
                }
            }
        }
        table
    }
}

fn longest<A: Masked>(lengths: &BTreeMap<Reverse<u8>, HashSet<A>>, address: A) -> Option<u8> {
    let mut all = lengths.iter();
    all.find(|(bits, prefixes)| prefixes.contains(&address.masked(bits.0)))
        .map(|(bits, _)| bits.0)
}

const NAME_SCHEME: &str = "ip:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_map_to_each_other() {
        for text in ["10.9.1.0/24", "10.9.1.1/32", "fd00::/64", "0.0.0.0/0"] {
            let prefix: IpPrefix = text.parse().unwrap();
            assert_eq!(prefix.name().as_str(), format!("ip:{text}"));
            assert_eq!(IpPrefix::of_name(&prefix.name()), Some(prefix));
        }
        for other in [
            "10.9.1.0/24",
            "ip:10.9.1.1/24",
            "ip:fd00:0::/64",
            "ip:",
            "web",
        ] {
            let name = AppName::new(other).unwrap();
            assert_eq!(IpPrefix::of_name(&name), None, "{other}");
        }
    }

    #[test]
    fn longest_prefix_wins() {
        let prefixes = [
            "10.0.0.0/8",
            "10.9.0.0/16",
            "10.9.1.1/32",
            "fd00::/8",
            "::/0",
        ];
        let table: PrefixTable = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        let find = |address: &str| table.find(address.parse().unwrap()).map(|p| p.to_string());
        assert_eq!(find("10.9.1.1").as_deref(), Some("10.9.1.1/32"));
        assert_eq!(find("10.9.1.2").as_deref(), Some("10.9.0.0/16"));
        assert_eq!(find("10.1.1.2").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(find("11.1.1.2"), None);
        assert_eq!(find("fd00::7").as_deref(), Some("fd00::/8"));
        assert_eq!(find("2001::7").as_deref(), Some("::/0"));
        assert_eq!(table.len(), 5);
        assert!(table.contains("10.0.0.0/8".parse().unwrap()));
        assert!(!table.contains("10.0.0.0/9".parse().unwrap()));
    }

    #[test]
    fn address_of_no_interface_is_refused() {
        for wrong in [
            "10.9.1.1",
            "10.9.1.1/33",
            "fd00::1/129",
            "0.0.0.0/8",
            "224.0.0.1/4",
            "x/8",
        ] {
            let error = wrong.parse::<Address>().unwrap_err().to_string();
            assert!(
                error.contains(wrong) && error.contains("10.9.1.1/24"),
                "{error}"
            );
        }
        let address: Address = "10.9.1.1/24".parse().unwrap();
        assert_eq!(address.link().to_string(), "10.9.1.0/24");
    }
}
