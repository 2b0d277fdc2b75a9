//! Addresses of parties: a host and a port, or a name in a DIF.

use std::fmt;
use std::path::{Path, PathBuf};

use carina_api::DifName;

/// An address of a party: `HOST:PORT`, or `dif:NAME` for flows of that DIF. In a DIF, the party's
/// application name is the name in its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host and a port, `HOST:PORT`, reached over TCP.
    Tcp(String),
    /// A DIF in which this system has a member.
    Dif {
        /// Name of the DIF by which this system reaches the role.
        dif: DifName,
        /// Path of the socket `ipc.sock` of this system's node.
        node: PathBuf,
    },
}

/// The error for text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: an address must be HOST:PORT, or dif:NAME for flows of a DIF")]
pub struct AddressError(String);

impl Address {
    /// Parses an address. `node` is the path of the socket `ipc.sock` of the node to use for flows.
    ///
    /// # Errors
    /// The text is not an address.
    pub fn new(text: &str, node: &Path) -> Result<Address, AddressError> {
        let wrong = || AddressError(text.chars().take(128).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if port.parse::<u16>().is_ok() && !host.is_empty() {
            return Ok(Address::Tcp(text.to_owned()));
        }
        let name = text.strip_prefix("dif:").ok_or_else(wrong)?;
        Ok(Address::Dif {
            dif: DifName::new(name).map_err(|_| wrong())?,
            node: node.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Dif { dif, .. } => write!(f, "dif:{dif}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_tcp_or_of_a_dif() {
        let read = |text: &str| Address::new(text, Path::new("/run/carina/ipc.sock"));
        for text in ["127.0.0.1:7100", "[::1]:7100", "there.example:1"] {
            assert_eq!(read(text), Ok(Address::Tcp(text.to_owned())));
        }
        let flows = read("dif:management").unwrap();
        assert!(matches!(&flows, Address::Dif { dif, .. } if dif.to_string() == "management"));
        assert_eq!(flows.to_string(), "dif:management");
        for wrong in [
            "",
            "there",
            ":7100",
            "there:70000",
            "dif:",
            "rina:management",
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("dif:NAME"), "{error}");
        }
    }
}
