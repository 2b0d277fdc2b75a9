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

use carina_engine::frames::AppError;

pub use self::table::{Table6, Table6Error};

use crate::prefix::Prefix6;
pub use crate::route_outputs::NO_ROUTE;
use crate::router::{Route, Routed, RouterConfig};

/// The configuration of the app.
pub type Route6Config = RouterConfig<Ipv6Addr>;
/// A route.
pub type Route6 = Route<Ipv6Addr>;

impl Routed for Ipv6Addr {
    const KIND: &'static str = "route6";
    const DROP_OTHER: &'static str = "drop_not_ipv6";

    type Table = Table6;

    fn table(routes: impl IntoIterator<Item = (Prefix6, u16)>) -> Result<Table6, AppError> {
        Ok(Table6::new(routes)?)
    }

    #[inline]
    fn find(table: &Table6, frame: &[u8]) -> Option<u16> {
        let head = frame.first_chunk::<54>()?;
        let is_ipv6 = (head[12], head[13], head[14] >> 4) == (0x86, 0xdd, 6);
        let address = u128::from_be_bytes(*head.last_chunk()?);
        is_ipv6.then(|| table.find(address))
    }
}
