//! IPv4 and IPv6 addresses with a prefix length.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IPv4 address with the length of its prefix: `10.0.0.1/30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress {
    address: Ipv4Addr,
    bits: u8,
}

/// The error for text that is not an IPv4 address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: write an address with its prefix length as 10.0.0.1/30")]
pub struct AddressError(String);

impl InterfaceAddress {
    /// An address with a prefix of `bits` bits; `None` if `bits` exceeds 32.
    #[must_use]
    pub fn new(address: Ipv4Addr, bits: u8) -> Option<InterfaceAddress> {
        (bits <= 32).then_some(InterfaceAddress { address, bits })
    }

    /// The address without the prefix length.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The length of the prefix in bits, 0 to 32.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether `address` lies in this prefix.
    #[must_use]
    pub fn has(self, address: Ipv4Addr) -> bool {
        InterfaceAddress { address, ..self }.prefix() == self.prefix()
    }

    /// The prefix itself: the address with all bits after the prefix cleared.
    #[must_use]
    pub fn prefix(self) -> InterfaceAddress {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.bits))
            .unwrap_or_default();
        let address = Ipv4Addr::from_bits(self.address.to_bits() & mask);
        InterfaceAddress { address, ..self }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<InterfaceAddress, AddressError> {
        let wrong = || AddressError(text.chars().take(40).collect());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let is_number = (1..=2).contains(&bits.len()) && bits.bytes().all(|b| b.is_ascii_digit());
        let bits = bits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        InterfaceAddress::new(address, bits).ok_or_else(wrong)
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<InterfaceAddress, AddressError> {
        text.parse()
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> String {
        address.to_string()
    }
}

/// An IPv6 address with the length of its prefix: `2001:db8::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress6 {
    address: Ipv6Addr,
    bits: u8,
}

/// The error for text that is not an IPv6 address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: write an IPv6 address with its prefix length as 2001:db8::1/64")]
pub struct Address6Error(String);

impl InterfaceAddress6 {
    /// An address with a prefix of `bits` bits; `None` if `bits` exceeds 128.
    #[must_use]
    pub fn new(address: Ipv6Addr, bits: u8) -> Option<InterfaceAddress6> {
        (bits <= 128).then_some(InterfaceAddress6 { address, bits })
    }

    /// The address without the prefix length.
    #[must_use]
    pub fn address(self) -> Ipv6Addr {
        self.address
    }

    /// Whether `address` lies in this prefix.
    #[must_use]
    pub fn has(self, address: Ipv6Addr) -> bool {
        InterfaceAddress6 { address, ..self }.prefix() == self.prefix()
    }

    /// The length of the prefix in bits, 0 to 128.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The prefix itself: the address with all bits after the prefix cleared.
    #[must_use]
    pub fn prefix(self) -> InterfaceAddress6 {
        let mask = u128::MAX
            .checked_shl(128 - u32::from(self.bits))
            .unwrap_or_default();
        let address = Ipv6Addr::from_bits(self.address.to_bits() & mask);
        InterfaceAddress6 { address, ..self }
    }
}

impl fmt::Display for InterfaceAddress6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for InterfaceAddress6 {
    type Err = Address6Error;

    fn from_str(text: &str) -> Result<InterfaceAddress6, Address6Error> {
        let wrong = || Address6Error(text.chars().take(60).collect());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let is_number = (1..=3).contains(&bits.len()) && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        let is_prefix = bits <= 128;
        is_prefix
            .then_some(InterfaceAddress6 { address, bits })
            .ok_or_else(wrong)
    }
}

impl TryFrom<String> for InterfaceAddress6 {
    type Error = Address6Error;

    fn try_from(text: String) -> Result<InterfaceAddress6, Address6Error> {
        text.parse()
    }
}

impl From<InterfaceAddress6> for String {
    fn from(address: InterfaceAddress6) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_has_no_bits_behind_it() {
        let of = |text: &str| {
            let address: InterfaceAddress = text.parse().unwrap();
            address.prefix().to_string()
        };
        assert_eq!(of("10.1.2.7/30"), "10.1.2.4/30");
        assert_eq!(of("10.1.2.7/0"), "0.0.0.0/0");
        assert_eq!(of("10.1.2.7/32"), "10.1.2.7/32");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/33",
            "10.0.0/8",
            "10.0.0.1/+8",
            "/8",
        ] {
            let error = text.parse::<InterfaceAddress>().unwrap_err();
            assert!(error.to_string().contains("10.0.0.1/30"), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_of_ipv6_have_prefixes() {
        let of = |text: &str| {
            let address: InterfaceAddress6 = text.parse().unwrap();
            address.prefix().to_string()
        };
        assert_eq!(of("2001:db8::1:7/112"), "2001:db8::1:0/112");
        assert_eq!(of("2001:db8::7/0"), "::/0");
        assert_eq!(of("2001:db8::7/128"), "2001:db8::7/128");
        for text in ["", "2001:db8::1", "2001:db8::1/129", "10.0.0.1/30", "::/+8"] {
            let error = text.parse::<InterfaceAddress6>().unwrap_err();
            assert!(
                error.to_string().contains("2001:db8::1/64"),
                "{text}: {error}"
            );
        }
    }
}
