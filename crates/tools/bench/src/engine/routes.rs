//! A full table of IPv4 routes, and a source whose packets go to random destinations.

use std::net::Ipv4Addr;

use carina_apps::prefix::Prefix4;
use carina_apps::route4::Route4;
use carina_apps::sample_packet::udp_packet;
use carina_frame::Pool;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};

/// Number of routes, as many as in the Internet.
const ROUTES: usize = 1_000_000;

/// Number of outputs over which the routes are spread.
pub(super) const OUTPUTS: usize = 4;

/// Number of routes per thousand with each prefix length, approximately as in the Internet, where
/// three of five routes have 24 bits.
const LENGTHS: [(u8, u32); 10] = [
    (16, 20),
    (18, 20),
    (19, 30),
    (20, 50),
    (21, 50),
    (22, 110),
    (23, 100),
    (24, 610),
    (28, 5),
    (32, 5),
];

/// Number of destinations that the source uses: more than any cache has lines.
const DESTINATIONS: usize = 1 << 20;

/// A random number generator whose numbers are the same in each run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// The next number (SplitMix64).
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

/// The table: a default route, and routes with random prefixes, spread over `outputs` outputs.
pub(crate) fn full_table(outputs: usize) -> Vec<Route4> {
    let route = |prefix, number| Route4 {
        prefix,
        output: format!("o{}", number % outputs),
    };
    let mut numbers = Numbers(1);
    let all = Prefix4::new(Ipv4Addr::UNSPECIFIED, 0);
    let mut routes = vec![route(all, 0)];
    for number in 1..ROUTES {
        let mut place = numbers.next() % 1000;
        let bits = LENGTHS.iter().find(|(_, share)| {
            let is_here = place < *share;
            place = place.saturating_sub(*share);
            is_here
        });
        let bits = bits.map_or(24, |(bits, _)| *bits);
        let address = Ipv4Addr::from_bits(numbers.next());
        routes.push(route(Prefix4::new(address, bits), number));
    }
    routes
}

/// Configuration of a source whose packets go to random destinations.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Everywhere {
    /// Length of each frame in bytes.
    pub(super) size: usize,
}

pub(super) struct EverywhereApp {
    bytes: Vec<u8>,
    destinations: Vec<[u8; 4]>,
    next: usize,
    pool: Pool,
}

impl AppConfig for Everywhere {
    const KIND: &'static str = "everywhere";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = EverywhereApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<EverywhereApp, AppError> {
        let mut numbers = Numbers(2);
        let destinations = (0..DESTINATIONS).map(|_| numbers.next().to_be_bytes());
        Ok(EverywhereApp {
            bytes: udp_packet(self.size),
            destinations: destinations.collect(),
            next: 0,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for EverywhereApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (pool, bytes, next) = (&self.pool, &self.bytes[..], &mut self.next);
        ports.fill(0, FRAME_BURST, || {
            let mut frame = pool.frame_of(bytes)?;
            let place = frame.bytes_mut().get_mut(30..34)?;
            place.copy_from_slice(&self.destinations[*next]);
            *next = (*next + 1) % DESTINATIONS;
            Some(frame)
        });
    }
}

#[cfg(test)]
mod tests {
    use carina_apps::route4::{NO_ROUTE, Table4};

    use super::*;

    #[test]
    fn full_table_fits_and_spreads_over_its_outputs() {
        let routes = full_table(OUTPUTS);
        assert_eq!(routes.len(), ROUTES);
        let number = |route: &Route4| route.output[1..].parse().unwrap();
        let table = Table4::new(routes.iter().map(|route| (route.prefix, number(route)))).unwrap();
        let mut counts = [0; OUTPUTS];
        let mut numbers = Numbers(2);
        for _ in 0..100_000 {
            let found = table.find(numbers.next());
            assert_ne!(found, NO_ROUTE);
            counts[usize::from(found)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }
}
