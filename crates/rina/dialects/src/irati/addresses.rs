//! Addresses by name: from a table that every member is configured with, or from ranges for parts
//! of names.
//!
//! ```text
//!  name in `addresses`?  ---yes---> that address
//!        | no
//!  name contains a part in
//!  `prefixes`?           ---yes---> an address of the range: the IPCP's own if it is in the range,
//!        | no                       else the first free one from a place that the name determines
//!  refused: the reason names the missing entry
//! ```

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::policy::{Catalogue, Descriptor, Param, Params, PolicyError, component};

/// Name of the address policy that maps IPCP names to configured addresses.
pub(crate) const KNOWN_ADDRESSES: &str = "known-addresses";

/// A policy of component `address-assignment`: addresses by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownAddresses {
    /// Configured addresses, by name or by `name|instance`.
    by_name: BTreeMap<String, u64>,
    ranges: Vec<Range>,
}

/// Address range for members whose name contains `part`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    part: String,
    first: u64,
    last: u64,
}

/// Adds the policy to a catalogue.
pub(crate) fn describe(catalogue: &mut Catalogue) {
    let param = |name, default, help| Param {
        name,
        default,
        help,
    };
    let descriptor = Descriptor {
        component: component::ADDRESS_ASSIGNMENT,
        name: KNOWN_ADDRESSES,
        help: "Dialect irati: a table of addresses in the configuration of every member.",
        params: alloc::vec![
            param(
                "addresses",
                "",
                "NAME=ADDRESS of members, separated by commas; a name may also be NAME|INSTANCE.",
            ),
            param(
                "prefixes",
                "*=1-65535",
                "PART=FIRST-LAST, separated by commas: addresses of members whose name has PART \
                 in it; `*` matches every name.",
            ),
        ],
        is_live: false,
    };
    catalogue.register(descriptor, |params| Ok(KnownAddresses::new(params)?));
}

/// Why an IPCP gets no address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum AddressError {
    /// The configured address does not fit the DIF's address width.
    TooWide {
        /// Name of the IPCP whose configured address is too wide.
        name: String,
        /// The address that is configured for the IPCP.
        address: u64,
    },
    /// Another IPCP has the configured address.
    Taken {
        /// Name of the IPCP whose configured address is taken.
        name: String,
        /// The address that is configured for the IPCP.
        address: u64,
        /// Name of the IPCP that has the address.
        owner: String,
    },
    /// Neither the table nor a range applies to the name.
    NoEntry {
        /// Name of the IPCP for which the policy has no address.
        name: String,
    },
    /// The range has no free address.
    RangeFull {
        /// Name of the IPCP that gets no address.
        name: String,
        /// First address of the range.
        first: u64,
        /// Last address of the range.
        last: u64,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::TooWide { name, address } => write!(
                f,
                "address {address} of {name:?} is wider than the DIF's addresses"
            ),
            AddressError::Taken {
                name,
                address,
                owner,
            } => write!(f, "address {address} of {name:?} now belongs to {owner:?}"),
            AddressError::NoEntry { name } => write!(
                f,
                "no address is known for {name:?}: policy address-assignment has no entry \
                 `{name}=ADDRESS` in `addresses` and no part of that name in `prefixes`"
            ),
            AddressError::RangeFull { name, first, last } => {
                write!(f, "no address from {first} to {last} is free for {name:?}")
            }
        }
    }
}

/// Why the parameters of the address table are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// This element of `addresses` is not of the form `NAME=ADDRESS`.
    Entry(String),
    /// Two elements of `addresses` have the same address.
    Twice(u64),
    /// This element of `prefixes` is not of the form `PART=FIRST-LAST`.
    Range(String),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Entry(entry) => write!(
                f,
                "known-addresses: {entry:?} in `addresses` is not NAME=ADDRESS"
            ),
            TableError::Twice(address) => write!(
                f,
                "known-addresses: address {address} appears twice in `addresses`"
            ),
            TableError::Range(entry) => write!(
                f,
                "known-addresses: {entry:?} in `prefixes` is not PART=FIRST-LAST"
            ),
        }
    }
}

impl core::error::Error for TableError {}

impl From<TableError> for PolicyError {
    fn from(error: TableError) -> PolicyError {
        PolicyError::Refused(Cause::new(error))
    }
}

impl KnownAddresses {
    /// Parses the parameters of the policy.
    ///
    /// # Errors
    /// The first malformed or duplicate entry.
    pub(crate) fn new(params: &Params) -> Result<KnownAddresses, TableError> {
        let mut known = KnownAddresses::default();
        for entry in entries(params.text("addresses")) {
            let pair = entry.rsplit_once('=');
            let pair = pair.and_then(|(name, address)| Some((name, read(address)?)));
            let Some((name, address)) = pair.filter(|(name, _)| !name.trim().is_empty()) else {
                return Err(TableError::Entry(entry.to_string()));
            };
            let name = name.trim().to_string();
            if known.by_name.values().any(|other| *other == address) {
                return Err(TableError::Twice(address));
            }
            known.by_name.insert(name, address);
        }
        for entry in entries(params.text("prefixes")) {
            let range = entry.rsplit_once('=').and_then(|(part, range)| {
                let (first, last) = range.split_once('-')?;
                let part = part.trim().to_string();
                let (first, last) = (read(first)?, read(last)?);
                (first <= last && !part.is_empty()).then_some(Range { part, first, last })
            });
            let Some(range) = range else {
                return Err(TableError::Range(entry.to_string()));
            };
            known.ranges.push(range);
        }
        Ok(known)
    }

    /// The address in the table for a name and instance.
    fn listed(&self, name: &str, instance: &str) -> Option<u64> {
        let whole = self.by_name.get(&format!("{name}|{instance}"));
        whole.or_else(|| self.by_name.get(name)).copied()
    }

    fn range(&self, name: &str) -> Option<&Range> {
        let has = |range: &&Range| range.part == "*" || name.contains(&range.part);
        self.ranges.iter().find(has)
    }

    /// True when the table or a range applies to a name and instance, even if no address is free.
    pub(super) fn knows(&self, name: &str, instance: &str) -> bool {
        self.listed(name, instance).is_some() || self.range(name).is_some()
    }

    /// The address in the table for this IPCP itself; `None` when a member chooses one.
    pub(super) fn own(&self, name: &str, instance: &str) -> Option<u64> {
        self.listed(name, instance)
    }

    /// Chooses an address for the IPCP `name`, which has address `wanted` now (0 for none). `taken`
    /// are the addresses of others; `last` is the highest address of the DIF's width.
    ///
    /// # Errors
    /// The configuration entry that is missing, or the member that has the address.
    pub(super) fn assign(
        &self,
        name: &str,
        instance: &str,
        wanted: u64,
        last: u64,
        taken: &BTreeMap<u64, String>,
    ) -> Result<u64, AddressError> {
        let name_of = || name.to_string();
        if let Some(address) = self.listed(name, instance) {
            return match taken.get(&address) {
                _ if address > last => Err(AddressError::TooWide {
                    name: name_of(),
                    address,
                }),
                Some(owner) => Err(AddressError::Taken {
                    name: name_of(),
                    address,
                    owner: owner.clone(),
                }),
                None => Ok(address),
            };
        }
        let Some(range) = self.range(name) else {
            return Err(AddressError::NoEntry { name: name_of() });
        };
        let (first, end) = (range.first, range.last.min(last));
        let listed: Vec<u64> = self.by_name.values().copied().collect();
        let is_free = |address: u64| !taken.contains_key(&address) && !listed.contains(&address);
        if (first..=end).contains(&wanted) && is_free(wanted) {
            return Ok(wanted);
        }
        let none = || AddressError::RangeFull {
            name: name_of(),
            first,
            last: end,
        };
        let size = end.checked_sub(first).ok_or_else(none)?.saturating_add(1);
        // Starts at a place that follows from the name, so that two members that cannot communicate
        // choose the same address.
        let start = mix(name) % size;
        // Of one more try than there are addresses in use, at least one finds a free address.
        let tries = (taken.len() + listed.len()) as u64 + 1;
        (0..size.min(tries))
            .map(|step| first + (start + step) % size)
            .find(|address| is_free(*address))
            .ok_or_else(none)
    }
}

/// Highest address that fits in `width` bytes.
pub(super) fn last(width: u8) -> u64 {
    match width {
        1 => u8::MAX.into(),
        2 => u16::MAX.into(),
        _ => u32::MAX.into(),
    }
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty())
}

fn read(address: &str) -> Option<u64> {
    address.trim().parse().ok().filter(|address| *address != 0)
}

/// FNV-1a hash of a name.
fn mix(name: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carina_ipcp::config::PolicySpec;

    fn known(addresses: &str, prefixes: &str) -> Result<KnownAddresses, PolicyError> {
        let mut catalogue = Catalogue::empty();
        describe(&mut catalogue);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let params = [pair("addresses", addresses), pair("prefixes", prefixes)];
        let spec = PolicySpec {
            name: KNOWN_ADDRESSES.into(),
            params: params.into(),
        };
        catalogue.make(component::ADDRESS_ASSIGNMENT, &spec)
    }

    #[test]
    fn the_address_table_decides_and_names_missing_entries() {
        let known = known("a=16, b|2=17", "org=100-101").unwrap();
        let none = BTreeMap::new();
        let assign = |name, instance, wanted| known.assign(name, instance, wanted, 255, &none);
        assert_eq!(assign("a", "1", 0), Ok(16));
        assert_eq!(assign("a", "1", 99), Ok(16));
        assert_eq!(assign("b", "2", 17), Ok(17));
        let error = assign("b", "1", 17).unwrap_err().to_string();
        assert!(error.contains("`b=ADDRESS`"));
        assert_eq!(assign("x.org.y", "1", 101), Ok(101));
        let taken = BTreeMap::from([(16, "c".to_string())]);
        let error = known
            .assign("a", "1", 16, 255, &taken)
            .unwrap_err()
            .to_string();
        assert!(error.contains("belongs to \"c\""), "{error}");
        assert_eq!((known.own("a", "1"), known.own("z", "1")), (Some(16), None));
    }

    #[test]
    fn a_range_is_used_up_and_nothing_is_given_twice() {
        let known = known("a=3", "*=1-9").unwrap();
        let mut taken = BTreeMap::new();
        for member in 0..8 {
            let name = format!("m{member}");
            let address = known.assign(&name, "1", 0, 255, &taken).unwrap();
            assert!((1..=9).contains(&address) && address != 3);
            assert_eq!(taken.insert(address, name), None);
        }
        let error = known
            .assign("m8", "1", 0, 255, &taken)
            .unwrap_err()
            .to_string();
        assert!(error.contains("from 1 to 9"), "{error}");
    }

    #[test]
    fn a_bad_entry_is_named() {
        for (addresses, prefixes) in [("a", ""), ("a=0", ""), ("", "p=5-4"), ("", "=1-2")] {
            let error = known(addresses, prefixes).unwrap_err().to_string();
            assert!(error.contains("is not"), "{error}");
        }
        let twice = known("a=1,b=1", "").unwrap_err().to_string();
        assert!(twice.contains("twice"));
    }
}
