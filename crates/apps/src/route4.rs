//! **route4**: sends packets of IPv4 to the output of the longest prefix that their destination
//! has. (RFC 1812 §5.2.4.3)
//!
//! It changes nothing in the packet: `hop` counts the hop, `arp` puts the MAC addresses in.
//!
//! - inputs: `input`
//! - outputs: any
//! - configuration: `routes`: a list of `{ prefix = "10.0.0.0/8", output = "a" }`; `file`: a file
//!   with a line `10.0.0.0/8 a` for each route, for many of them. Of two routes with the same
//!   prefix the last one holds
//! - counters: `drop_no_route`; `drop_not_ipv4`; `drop_no_link`: the route's output has no link
//! - cost: one access to a table of 32 MiB, two for prefixes longer than 24 bits; those of a burst
//!   overlap

mod table;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports,
};
use serde::{Deserialize, Serialize};

pub use self::table::{NO_ROUTE, Table4, Table4Error};
use crate::route_outputs::{OTHER, RouteCounters, RouteOutputs, read_lines};

/// The configuration of the app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Route4Config {
    /// Routes.
    pub routes: Vec<Route4>,
    /// More routes, one a line.
    pub file: Option<PathBuf>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route4 {
    /// The destinations for which it holds.
    pub prefix: Prefix4,
    /// Name of the output.
    pub output: String,
}

/// The first bits of addresses: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix4 {
    address: u32,
    bits: u8,
}

/// Why text is no prefix or no route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// It is not ADDRESS/BITS.
    #[error("{0:?}: a prefix is an IPv4 address and 0 to 32 bits, as 10.0.0.0/8")]
    Prefix(String),
    /// Bits behind the prefix are set.
    #[error("{text:?}: bits behind the prefix are set; {right} would be right")]
    HostBits {
        /// The text.
        text: String,
        /// The prefix without them.
        right: String,
    },
    /// A line of a file is not PREFIX OUTPUT.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

impl Prefix4 {
    /// The first `bits` bits of `address`; what is behind them does not count.
    ///
    /// # Panics
    /// With more than 32 bits.
    #[must_use]
    pub fn new(address: Ipv4Addr, bits: u8) -> Prefix4 {
        assert!(bits <= 32, "a prefix of {bits} bits");
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        Prefix4 {
            address: address.to_bits() & mask,
            bits,
        }
    }

    /// The lowest address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address)
    }

    /// Length in bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }
}

impl FromStr for Prefix4 {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Prefix4, RouteError> {
        let wrong = || RouteError::Prefix(text.to_owned());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if bits > 32 {
            return Err(wrong());
        }
        let prefix = Prefix4::new(address, bits);
        if prefix.address() != address {
            let (text, right) = (text.to_owned(), prefix.to_string());
            return Err(RouteError::HostBits { text, right });
        }
        Ok(prefix)
    }
}

impl std::fmt::Display for Prefix4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(), self.bits)
    }
}

impl Serialize for Prefix4 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix4 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Prefix4, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The app.
pub struct RouteApp {
    table: Table4,
    outputs: RouteOutputs,
    counters: RouteCounters,
}

impl AppConfig for Route4Config {
    const KIND: &'static str = "route4";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = RouteApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<RouteApp, AppError> {
        let mut routes = self.routes.clone();
        if let Some(path) = &self.file {
            let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
            routes.extend(read_routes(&text).map_err(|error| at(&error))?);
        }
        let outputs = RouteOutputs::new(routes.iter().map(|route| &route.output));
        let numbered = routes
            .iter()
            .map(|route| (route.prefix, outputs.number(&route.output)));
        Ok(RouteApp {
            table: Table4::new(numbered)?,
            outputs,
            counters: RouteCounters {
                no_route: context.counter("drop_no_route"),
                other: context.counter("drop_not_ipv4"),
                no_link: context.counter("drop_no_link"),
            },
        })
    }
}

/// Reads routes, one a line: `10.0.0.0/8 a`. Empty lines and what follows `#` do not count.
///
/// # Errors
/// The first line that is wrong.
pub fn read_routes(text: &str) -> Result<Vec<Route4>, RouteError> {
    let routes = read_lines(text, "10.0.0.0/8 a");
    let routes = routes.map_err(|(line, reason)| RouteError::Line { line, reason })?;
    let route = |(prefix, output)| Route4 { prefix, output };
    Ok(routes.into_iter().map(route).collect())
}

impl FrameApp for RouteApp {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.outputs.rewired(ports);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let table = &self.table;
        self.outputs.push(ports, &self.counters, |frame| {
            destination(frame).map_or(OTHER, |to| table.find(to))
        });
    }
}

/// The destination of a packet of IPv4.
#[inline]
fn destination(frame: &[u8]) -> Option<u32> {
    let head = frame.first_chunk::<34>()?;
    let is_ipv4 = (head[12], head[13], head[14] >> 4) == (0x08, 0x00, 4);
    let bytes = [head[30], head[31], head[32], head[33]];
    is_ipv4.then(|| u32::from_be_bytes(bytes))
}
