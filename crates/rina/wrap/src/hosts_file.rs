//! Names with fixed addresses, in the format of hosts(5): `ADDRESS NAME [NAME...]`, a line each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use crate::name_table::is_host;

/// Names of hosts with fixed addresses, as a file in the format of hosts(5) gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostsFile {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    names: BTreeMap<IpAddr, String>,
}

/// Why a text or file is not a list of hosts in the format of hosts(5).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostsFileError {
    /// The operating system could not open or read the file.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// A line that does not begin with an address.
    #[error("line {line}: {text:?} is no address; a line is ADDRESS NAME [NAME...]")]
    Address {
        /// Number of the line without an address, counted from 1.
        line: usize,
        /// First word of the line, which is not an address.
        text: String,
    },
    /// A word that is not a name of a host.
    #[error("line {line}: {text:?} is not a name of a host; a line is ADDRESS NAME [NAME...]")]
    Name {
        /// Number of the line with the invalid word, counted from 1.
        line: usize,
        /// The word; empty if it is missing.
        text: String,
    },
}

impl HostsFile {
    /// Reads and parses a file in the format of hosts(5).
    ///
    /// # Errors
    /// [`HostsFileError`]
    pub fn read(path: &Path) -> Result<HostsFile, HostsFileError> {
        std::fs::read_to_string(path)?.parse()
    }

    /// The addresses of a host, by its name in lower case; `None` if the file does not have the
    /// name.
    pub fn addresses(&self, host: &str) -> Option<&[IpAddr]> {
        self.addresses.get(host).map(Vec::as_slice)
    }

    /// The first name in the file that has this address; `None` if no name has it.
    pub fn name(&self, address: IpAddr) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }
}

impl FromStr for HostsFile {
    type Err = HostsFileError;

    fn from_str(text: &str) -> Result<HostsFile, HostsFileError> {
        let mut hosts = HostsFile::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else {
                continue;
            };
            let number = number + 1;
            let address = first
                .parse::<IpAddr>()
                .map_err(|_| HostsFileError::Address {
                    line: number,
                    text: first.to_owned(),
                })?;
            let mut words = words.peekable();
            if words.peek().is_none() {
                let text = String::new();
                return Err(HostsFileError::Name { line: number, text });
            }
            for word in words {
                let name = word.trim_end_matches('.').to_ascii_lowercase();
                if !is_host(&name) {
                    let text = word.to_owned();
                    return Err(HostsFileError::Name { line: number, text });
                }
                hosts.names.entry(address).or_insert_with(|| name.clone());
                hosts.addresses.entry(name).or_default().push(address);
            }
        }
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| text.parse::<HostsFile>().unwrap_err().to_string();
        assert!(error("\n# x\nweb 10.0.0.1").starts_with("line 3: \"web\" is no address"));
        assert!(error("10.0.0.1").starts_with("line 1: \"\" is not a name"));
        assert!(error("10.0.0.1 a b*c").contains("\"b*c\" is not a name"));
    }

    #[test]
    fn names_have_addresses_of_both_families() {
        let hosts: HostsFile = "10.0.0.1 Web.vm. w\n::1 web.vm #x y\n\n".parse().unwrap();
        assert_eq!(hosts.addresses("web.vm").unwrap().len(), 2);
        assert_eq!(hosts.name("10.0.0.1".parse().unwrap()), Some("web.vm"));
        assert_eq!(hosts.addresses("x"), None);
    }
}
