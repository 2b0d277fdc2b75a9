//! **route6**: sends IPv6 packets to the output of the longest prefix that matches their
//! destination. (RFC 8200; RFC 7608)
//!
//! It does not change the packets: `hop` decrements the hop limit, `nd` writes the MAC addresses.
//!
//! - inputs: `input`
//! - outputs: any names
//! - configuration: `routes`: a list of `{ prefix = "fd00::/8", output = "a" }`; `file`: a file
//!   with further routes, one per line: `fd00::/8 a`. Of two routes with equal prefixes, the last
//!   one is used. The app reads the file when it is made; later changes have no effect
//! - counters: `drop_no_route`; `drop_not_ipv6`; `drop_no_link`: packets whose route leads to an
//!   output without link
//! - cost: one access to a table of 256 KiB, and one more per 6 bits beyond the first 16, as far as
//!   the longest route with this beginning extends; the accesses of a burst overlap

mod table;

use std::net::Ipv6Addr;

use carina_frame_engine::AppError;

pub use self::table::{Table6, Table6Error};

use crate::prefix::Prefix6;
pub use crate::route_outputs::NO_ROUTE;
use crate::router::{Route, Routed, RouterConfig};

/// The configuration of the app `route6`, which sends IPv6 packets to the output of the longest
/// prefix that matches their destination.
pub type Route6Config = RouterConfig<Ipv6Addr>;
/// A route of the app `route6`: an IPv6 prefix and an output.
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
