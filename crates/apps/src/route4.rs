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

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, LINK_FRAMES, PortList, PortNames, Ports,
};
use serde::{Deserialize, Serialize};

pub use self::table::{NO_ROUTE, Table4, Table4Error};

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
    /// Names of outputs, at the numbers that the table has.
    names: Vec<String>,
    output_of: Vec<Option<usize>>,
    /// What was found for the frames of a burst.
    found: Vec<u16>,
    no_route: Counter,
    not_ipv4: Counter,
    no_link: Counter,
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
        let mut names: Vec<String> = routes.iter().map(|route| route.output.clone()).collect();
        names.sort();
        names.dedup();
        let number = |route: &Route4| names.binary_search(&route.output).unwrap_or_default();
        let numbered = routes
            .iter()
            .map(|route| (route.prefix, number(route) as u16));
        Ok(RouteApp {
            table: Table4::new(numbered)?,
            output_of: vec![None; names.len()],
            names,
            found: Vec::with_capacity(LINK_FRAMES),
            no_route: context.counter("drop_no_route"),
            not_ipv4: context.counter("drop_not_ipv4"),
            no_link: context.counter("drop_no_link"),
        })
    }
}

/// Reads routes, one a line: `10.0.0.0/8 a`. Empty lines and what follows `#` do not count.
///
/// # Errors
/// The first line that is wrong.
pub fn read_routes(text: &str) -> Result<Vec<Route4>, RouteError> {
    let mut routes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        let wrong = |reason: String| RouteError::Line {
            line: index + 1,
            reason,
        };
        match words[..] {
            [] => {}
            [prefix, output] => {
                let prefix = prefix
                    .parse()
                    .map_err(|error: RouteError| wrong(error.to_string()))?;
                let output = output.to_owned();
                routes.push(Route4 { prefix, output });
            }
            _ => {
                return Err(wrong(
                    "a route is PREFIX OUTPUT, as 10.0.0.0/8 a".to_owned(),
                ));
            }
        }
    }
    Ok(routes)
}

impl FrameApp for RouteApp {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        let output_of = |name: &String| ports.outputs.iter().position(|output| output == name);
        self.output_of = self.names.iter().map(output_of).collect();
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        // All look-ups first: none waits for another, so that their accesses to memory overlap.
        let table = &self.table;
        let look_up = |frame: &[u8]| destination(frame).map_or(NOT_IPV4, |to| table.find(to));
        self.found.clear();
        self.found
            .extend(ports.frames(0).map(|frame| look_up(frame.bytes())));
        let (mut at, mut no_route, mut not_ipv4, mut no_link) = (0, 0, 0, 0);
        ports.each(0, |frame, ports| {
            let found = self.found[at];
            at += 1;
            match found {
                NO_ROUTE => no_route += 1,
                NOT_IPV4 => not_ipv4 += 1,
                number => match self.output_of[usize::from(number)] {
                    Some(output) => ports.transmit(output, frame),
                    None => no_link += 1,
                },
            }
        });
        self.no_route.add(no_route);
        self.not_ipv4.add(not_ipv4);
        self.no_link.add(no_link);
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

/// In place of the number of an output: the frame is no packet of IPv4. No table has so many.
const NOT_IPV4: u16 = u16::MAX;
