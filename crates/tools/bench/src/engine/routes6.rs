//! A full table of IPv6 routes, and a source whose packets go to random destinations in it.

use std::net::Ipv6Addr;

use carina_apps::prefix::Prefix6;
use carina_apps::route6::Route6;
use carina_frame::Pool;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};

use super::routes::{Numbers, OUTPUTS};

/// Number of routes, as many as in the Internet.
const ROUTES: usize = 230_000;

/// Number of destinations that the source uses.
const DESTINATIONS: usize = 1 << 20;

/// Prefix lengths of ten routes: nearly half of the Internet's routes have 48 bits.
const LENGTHS: [u8; 10] = [48, 48, 48, 48, 48, 44, 40, 36, 32, 32];

/// A random address in 2000::/4, which is half of the assigned space.
fn address(numbers: &mut Numbers) -> u128 {
    let random = u64::from(numbers.next()) << 32 | u64::from(numbers.next());
    (u128::from(random) << 64 & !(0xf << 124)) | 2 << 124
}

/// The table: a default route, and routes with random prefixes.
pub(super) fn full_table6() -> Vec<Route6> {
    let mut numbers = Numbers(3);
    let mut routes = Vec::with_capacity(ROUTES);
    for number in 0..ROUTES {
        let bits = if number == 0 {
            0
        } else {
            LENGTHS[number % LENGTHS.len()]
        };
        // Networks with common leading bits, as allocations have them.
        let address = address(&mut numbers) & !(0xfff << 108);
        routes.push(Route6 {
            prefix: Prefix6::new(Ipv6Addr::from_bits(address), bits),
            output: format!("o{}", number % OUTPUTS),
        });
    }
    routes
}

/// Configuration of a source whose packets go to random networks of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Everywhere6 {
    /// Length of each frame in bytes.
    pub(super) size: usize,
}

pub(super) struct Everywhere6App {
    bytes: Vec<u8>,
    /// First half of each destination address.
    destinations: Vec<u64>,
    next: usize,
    pool: Pool,
}

impl AppConfig for Everywhere6 {
    const KIND: &'static str = "everywhere6";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Everywhere6App;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Everywhere6App, AppError> {
        let mut numbers = Numbers(4);
        // Every other destination is in a network of the table.
        let known = full_table6();
        let destination = |at: usize| match at % 2 {
            0 => known[at / 2 % known.len()].prefix.address().to_bits(),
            _ => address(&mut numbers) & !(0xfff << 108),
        };
        let destinations = (0..DESTINATIONS).map(destination);
        let destinations = destinations.map(|address| (address >> 64) as u64);
        let mut bytes = vec![0; self.size.max(54)];
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes[14] = 0x60;
        Ok(Everywhere6App {
            bytes,
            destinations: destinations.collect(),
            next: 0,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for Everywhere6App {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (pool, bytes, next) = (&self.pool, &self.bytes[..], &mut self.next);
        ports.fill(0, FRAME_BURST, || {
            let mut frame = pool.frame_of(bytes)?;
            let place = frame.bytes_mut().get_mut(38..46)?;
            place.copy_from_slice(&self.destinations[*next].to_be_bytes());
            // The next destination is far from this one, so that the order of the table does not
            // help.
            *next = (*next + 7919) % DESTINATIONS;
            Some(frame)
        });
    }
}
