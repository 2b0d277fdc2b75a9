//! **route6**: sends packets of IPv6 to the output of the longest prefix that their destination
//! has. (RFC 8200; RFC 7608)
//!
//! It changes nothing in the packet: `nd` puts the MAC addresses in.
//!
//! - inputs: `input`
//! - outputs: any
//! - configuration: `routes`: a list of `{ prefix = "fd00::/8", output = "a" }`; `file`: a file
//!   with a line `fd00::/8 a` for each route, for many of them. Of two routes with the same prefix
//!   the last one holds
//! - counters: `drop_no_route`; `drop_not_ipv6`; `drop_no_link`: the route's output has no link
//! - cost: one access to a table of 256 KiB, and one for each 6 bits behind the first 16 of the
//!   longest route that begins so; those of a burst overlap

mod table;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports,
};
use serde::{Deserialize, Serialize};

pub use self::table::{Table6, Table6Error};
use crate::route_outputs::{OTHER, RouteCounters, RouteOutputs, read_lines};

/// What [`Table6::find`] returns for an address without a route.
pub const NO_ROUTE: u16 = crate::route_outputs::NO_ROUTE;

/// The configuration of the app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Route6Config {
    /// Routes.
    pub routes: Vec<Route6>,
    /// More routes, one a line.
    pub file: Option<PathBuf>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route6 {
    /// The destinations for which it holds.
    pub prefix: Prefix6,
    /// Name of the output.
    pub output: String,
}

/// The first bits of addresses: `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix6 {
    address: u128,
    bits: u8,
}

/// Why text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Prefix6Error {
    /// It is not ADDRESS/BITS.
    #[error("{0:?}: a prefix is an IPv6 address and 0 to 128 bits, as fd00::/8")]
    Prefix(String),
    /// Bits behind the prefix are set.
    #[error("{text:?}: bits behind the prefix are set; {right} would be right")]
    HostBits {
        /// The text.
        text: String,
        /// The prefix without them.
        right: String,
    },
}

impl Prefix6 {
    /// The first `bits` bits of `address`; what is behind them does not count.
    ///
    /// # Panics
    /// With more than 128 bits.
    #[must_use]
    pub fn new(address: Ipv6Addr, bits: u8) -> Prefix6 {
        assert!(bits <= 128, "a prefix of {bits} bits");
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        Prefix6 {
            address: address.to_bits() & mask,
            bits,
        }
    }

    /// The lowest address.
    #[must_use]
    pub fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.address)
    }

    /// Length in bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }
}

impl FromStr for Prefix6 {
    type Err = Prefix6Error;

    fn from_str(text: &str) -> Result<Prefix6, Prefix6Error> {
        let wrong = || Prefix6Error::Prefix(text.to_owned());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if bits > 128 {
            return Err(wrong());
        }
        let prefix = Prefix6::new(address, bits);
        if prefix.address() != address {
            let (text, right) = (text.to_owned(), prefix.to_string());
            return Err(Prefix6Error::HostBits { text, right });
        }
        Ok(prefix)
    }
}

impl std::fmt::Display for Prefix6 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(), self.bits)
    }
}

impl Serialize for Prefix6 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix6 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Prefix6, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The app.
pub struct Route6App {
    table: Table6,
    outputs: RouteOutputs,
    counters: RouteCounters,
}

impl AppConfig for Route6Config {
    const KIND: &'static str = "route6";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = Route6App;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Route6App, AppError> {
        let mut routes = self.routes.clone();
        if let Some(path) = &self.file {
            let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
            let lines = read_lines(&text, "fd00::/8 a");
            let lines = lines.map_err(|(line, reason)| at(&format!("line {line}: {reason}")))?;
            routes.extend(
                lines
                    .into_iter()
                    .map(|(prefix, output)| Route6 { prefix, output }),
            );
        }
        let outputs = RouteOutputs::new(routes.iter().map(|route| &route.output));
        let numbered = routes
            .iter()
            .map(|route| (route.prefix, outputs.number(&route.output)));
        Ok(Route6App {
            table: Table6::new(numbered)?,
            outputs,
            counters: RouteCounters {
                no_route: context.counter("drop_no_route"),
                other: context.counter("drop_not_ipv6"),
                no_link: context.counter("drop_no_link"),
            },
        })
    }
}

impl FrameApp for Route6App {
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

/// The destination of a packet of IPv6.
#[inline]
fn destination(frame: &[u8]) -> Option<u128> {
    let head = frame.first_chunk::<54>()?;
    let is_ipv6 = (head[12], head[13], head[14] >> 4) == (0x86, 0xdd, 6);
    let address = head.last_chunk::<16>()?;
    is_ipv6.then(|| u128::from_be_bytes(*address))
}
