//! Prefixes of IPv4 and IPv6 addresses.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IP version, represented by its type of address.
pub trait Address:
    Copy + Ord + Hash + fmt::Debug + fmt::Display + FromStr + Send + Sync + 'static
{
    /// Number of bits of an address.
    const WIDTH: u8;
    /// Name of the type of address, for error messages.
    const NAME: &'static str;
    /// An example of a prefix, for error messages.
    const EXAMPLE: &'static str;

    /// The address with all bits behind the first `bits` set to 0; `bits` is at most
    /// [`Address::WIDTH`].
    #[must_use]
    fn masked(self, bits: u8) -> Self;
}

impl Address for Ipv4Addr {
    const WIDTH: u8 = 32;
    const NAME: &'static str = "IPv4 address";
    const EXAMPLE: &'static str = "10.0.0.0/8";

    fn masked(self, bits: u8) -> Ipv4Addr {
        let mask = u32::MAX.checked_shl(u32::from(Self::WIDTH - bits));
        Ipv4Addr::from_bits(self.to_bits() & mask.unwrap_or(0))
    }
}

impl Address for Ipv6Addr {
    const WIDTH: u8 = 128;
    const NAME: &'static str = "IPv6 address";
    const EXAMPLE: &'static str = "fd00::/8";

    fn masked(self, bits: u8) -> Ipv6Addr {
        let mask = u128::MAX.checked_shl(u32::from(Self::WIDTH - bits));
        Ipv6Addr::from_bits(self.to_bits() & mask.unwrap_or(0))
    }
}

/// A prefix: addresses that begin with the same bits, such as `10.0.0.0/8` or `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    bits: u8,
}

/// An IPv4 prefix, such as `10.0.0.0/8`.
pub type Prefix4 = Prefix<Ipv4Addr>;
/// An IPv6 prefix, such as `fd00::/8`.
pub type Prefix6 = Prefix<Ipv6Addr>;

/// Why a text is not a valid prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The text does not have the form ADDRESS/BITS.
    #[error(
        "{text:?}: a prefix is an {name}, a slash and a length of 0 to {bits} bits, for example \
         {example}"
    )]
    Form {
        /// The text that is not a prefix.
        text: String,
        /// The kind of address that must be in front of the slash.
        name: &'static str,
        /// Largest number of bits.
        bits: u8,
        /// An example of a prefix.
        example: &'static str,
    },
    /// Bits behind the prefix are not 0.
    #[error("{text:?}: bits after the prefix length are set; write {right}")]
    HostBits {
        /// The prefix with the excess bits, as written.
        text: String,
        /// The prefix with these bits set to 0.
        right: String,
    },
}

impl<A: Address> Prefix<A> {
    /// The prefix of the first `bits` bits of `address`; the other bits are ignored.
    ///
    /// # Panics
    /// If `bits` is more than [`Address::WIDTH`].
    #[must_use]
    pub fn new(address: A, bits: u8) -> Prefix<A> {
        assert!(bits <= A::WIDTH, "a prefix of {bits} bits");
        let address = address.masked(bits);
        Prefix { address, bits }
    }

    /// The lowest address of the prefix.
    #[must_use]
    pub fn address(self) -> A {
        self.address
    }

    /// Length of the prefix in bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix<A>, PrefixError> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let bits = bits.parse().ok().filter(|bits| *bits <= A::WIDTH)?;
            Some((address.parse::<A>().ok()?, bits))
        };
        let Some((address, bits)) = parse() else {
            return Err(PrefixError::Form {
                text: text.to_owned(),
                name: A::NAME,
                bits: A::WIDTH,
                example: A::EXAMPLE,
            });
        };
        let prefix = Prefix::new(address, bits);
        if prefix.address != address {
            let (text, right) = (text.to_owned(), prefix.to_string());
            return Err(PrefixError::HostBits { text, right });
        }
        Ok(prefix)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl<A: Address> Serialize for Prefix<A> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, A: Address> Deserialize<'de> for Prefix<A> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Prefix<A>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_which_prefix_would_be_right() {
        let error = |text: &str| text.parse::<Prefix4>().unwrap_err().to_string();
        assert_eq!(
            error("10.0.0.1/8"),
            "\"10.0.0.1/8\": bits after the prefix length are set; write 10.0.0.0/8"
        );
        assert_eq!(
            error("10.0.0.0/33"),
            "\"10.0.0.0/33\": a prefix is an IPv4 address, a slash and a length of 0 to 32 bits, for \
             example 10.0.0.0/8"
        );
        let error = "fd00::/129".parse::<Prefix6>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"fd00::/129\": a prefix is an IPv6 address, a slash and a length of 0 to 128 bits, for \
             example fd00::/8"
        );
    }

    #[test]
    fn no_bits_and_all_bits_are_prefixes() {
        for text in ["0.0.0.0/0", "10.1.2.3/32"] {
            assert_eq!(text.parse::<Prefix4>().unwrap().to_string(), text);
        }
        for text in ["::/0", "fd00::1/128"] {
            assert_eq!(text.parse::<Prefix6>().unwrap().to_string(), text);
        }
    }
}
