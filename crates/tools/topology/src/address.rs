//! Addresses of links over UDP.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Serialize, Serializer};

/// An IPv4 address of an interface with the length of its network prefix, on a link over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// IPv4 address of the interface.
    pub ip: Ipv4Addr,
    /// Length of the network prefix in bits, up to 31.
    pub prefix: u8,
}

impl Address {
    /// Parses `IP/PREFIX`; `None` if the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let (ip, prefix) = (ip.parse().ok()?, prefix.parse().ok()?);
        (prefix <= PREFIX_MAX).then_some(Self { ip, prefix })
    }

    /// Whether the two addresses are in one network, by the shorter of the two prefixes.
    pub fn meets(&self, other: &Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        self.ip.to_bits() & mask == other.ip.to_bits() & mask
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Longest prefix: a longer one leaves no room for a second system.
const PREFIX_MAX: u8 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_networks() {
        let address = |text: &str| Address::parse(text).unwrap();
        let a = address("10.0.0.1/24");
        assert_eq!(a.to_string(), "10.0.0.1/24");
        assert!(a.meets(&address("10.0.0.200/24")) && !a.meets(&address("10.0.1.1/24")));
        assert!(a.meets(&address("10.9.9.9/8")) && a.meets(&address("200.0.0.1/0")));
        for wrong in ["10.0.0.1", "10.0.0.1/32", "10.0.0/24", "::1/64", "/", ""] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }
}
