//! **route4**: sends IPv4 packets to the output of the longest prefix that matches their
//! destination. (RFC 1812 §5.2.4.3)
//!
//! It does not change the packets: `hop` decrements the TTL, `arp` writes the MAC addresses.
//!
//! - inputs: `input`
//! - outputs: any names
//! - configuration: `routes`: a list of `{ prefix = "10.0.0.0/8", output = "a" }`; `file`: a file
//!   with further routes, one per line: `10.0.0.0/8 a`. Of two routes with equal prefixes, the last
//!   one is used. The app reads the file when it is made; later changes have no effect
//! - counters: `drop_no_route`; `drop_not_ipv4`; `drop_no_link`: packets whose route leads to an
//!   output without link
//! - cost: one access to a table of 32 MiB, two for prefixes longer than 24 bits; the accesses of a
//!   burst overlap

mod table;

use std::net::Ipv4Addr;

use carina_frame_engine::AppError;

pub use self::table::{Table4, Table4Error};

use crate::prefix::Prefix4;
pub use crate::route_outputs::NO_ROUTE;
use crate::router::{Route, Routed, RouterConfig};

/// The configuration of the app `route4`, which sends IPv4 packets to the output of the longest
/// prefix that matches their destination.
pub type Route4Config = RouterConfig<Ipv4Addr>;
/// A route of the app `route4`: an IPv4 prefix and an output.
pub type Route4 = Route<Ipv4Addr>;

impl Routed for Ipv4Addr {
    const KIND: &'static str = "route4";
    const DROP_OTHER: &'static str = "drop_not_ipv4";

    type Table = Table4;

    fn table(routes: impl IntoIterator<Item = (Prefix4, u16)>) -> Result<Table4, AppError> {
        Ok(Table4::new(routes)?)
    }

    #[inline]
    fn find(table: &Table4, frame: &[u8]) -> Option<u16> {
        let head = frame.first_chunk::<34>()?;
        let is_ipv4 = (head[12], head[13], head[14] >> 4) == (0x08, 0x00, 4);
        let address = u32::from_be_bytes(*head.last_chunk()?);
        is_ipv4.then(|| table.find(address))
    }
}
