//! Where a region is: the value of a node of the xenstore, which the guest writes and the host
//! reads.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What a domain publishes of a region that it granted: `1 REFERENCE PORT GENERATION`, the last in
/// hexadecimal. The first number is the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Grant reference of the station block.
    pub reference: u32,
    /// Port of the event channel that the other domain may bind.
    pub port: u32,
    /// A random number, different for each process of the guest's node. The station block contains
    /// the same number.
    pub generation: u64,
}

/// Error: the value is not the address of a region that this version understands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no address of a region: `1 REFERENCE PORT GENERATION` is expected")]
pub struct AddressError(String);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address {
            reference,
            port,
            generation,
        } = self;
        write!(f, "{VERSION} {reference} {port} {generation:016x}")
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let words: Vec<&str> = text.split(' ').collect();
        let parsed = match words[..] {
            [VERSION, reference, port, generation] => (|| {
                Some(Address {
                    reference: reference.parse().ok()?,
                    port: port.parse().ok()?,
                    generation: u64::from_str_radix(generation, 16).ok()?,
                })
            })(),
            _ => None,
        };
        parsed.ok_or_else(|| AddressError(text.chars().take(80).collect()))
    }
}

const VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_as_it_was_written() {
        let address = Address {
            reference: 8,
            port: 12,
            generation: 0xfeed,
        };
        assert_eq!(address.to_string(), "1 8 12 000000000000feed");
        assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn other_values_are_refused() {
        for text in [
            "",
            "1",
            "2 8 12 fe",
            "1 8 12",
            "1 -8 12 fe",
            "1 8 12 fe 1",
            "1 8 12 g",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("no address"), "{text}: {error}");
        }
    }
}
