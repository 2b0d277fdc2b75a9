//! The destinations of flows, and a source of one flow.

use std::net::Ipv4Addr;
use std::sync::Arc;

use carina_apps::route4::{NO_ROUTE, Route4, Table4};
use carina_apps::sample_packet::udp_packet;
use carina_frame::Pool;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};
use carina_wire::inet::checksum;

use crate::engine::routes::{Numbers, full_table};

/// One-way flows: the routes that separate them, and a source for each.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    /// Routes; those of flow `n` have the output `oN`.
    pub(super) routes: Vec<Route4>,
    pub(super) sources: Vec<FlowSource>,
}

impl Flows {
    /// Flows that are separated by a table of a million routes. Destinations are random.
    pub(super) fn by_table(flows: usize, size: usize) -> Flows {
        let routes = full_table(flows);
        let number = |route: &Route4| route.output[1..].parse().unwrap_or_default();
        let table = Table4::new(routes.iter().map(|route| (route.prefix, number(route))));
        let table = table.expect("a table has room for a million routes");
        let each = DESTINATIONS / flows;
        let mut lists = vec![Vec::with_capacity(each); flows];
        let mut numbers = Numbers(2);
        while lists.iter().any(|list| list.len() < each) {
            let address = numbers.next();
            let found = table.find(address);
            assert_ne!(found, NO_ROUTE, "the table has a default route");
            let list = &mut lists[usize::from(found)];
            if list.len() < each {
                list.push(Ipv4Addr::from_bits(address));
            }
        }
        let source = |list: Vec<Ipv4Addr>| FlowSource::new(size, list.into_iter());
        Flows {
            routes,
            sources: lists.into_iter().map(source).collect(),
        }
    }

    /// Flows to one prefix each, that of [`prefix_of`].
    pub(super) fn by_number(flows: usize, size: usize) -> Flows {
        let route = |flow: usize| Route4 {
            prefix: prefix_of(flow).parse().expect("it is well formed"),
            output: format!("o{flow}"),
        };
        let source = |flow: usize| {
            let hosts = 1..255;
            FlowSource::new(
                size,
                hosts.map(|host| Ipv4Addr::new(10, 100 + flow as u8, 0, host)),
            )
        };
        Flows {
            routes: (0..flows).map(route).collect(),
            sources: (0..flows).map(source).collect(),
        }
    }
}

/// The prefix of the destinations of a flow that the kernel forwards.
pub(super) fn prefix_of(flow: usize) -> String {
    format!("10.{}.0.0/16", 100 + flow)
}

/// Configuration of a source whose packets go to a list of destinations.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FlowSource {
    size: usize,
    /// For each destination: the checksum of the IP header, and the address.
    destinations: Arc<Vec<([u8; 2], [u8; 4])>>,
}

impl FlowSource {
    fn new(size: usize, destinations: impl Iterator<Item = Ipv4Addr>) -> FlowSource {
        let mut header: Vec<u8> = udp_packet(size)[14..34].to_vec();
        header[10..12].fill(0);
        let with_sum = |address: Ipv4Addr| {
            header[16..20].copy_from_slice(&address.octets());
            (checksum(&header, 0).to_be_bytes(), address.octets())
        };
        FlowSource {
            size,
            destinations: Arc::new(destinations.map(with_sum).collect()),
        }
    }
}

pub(super) struct FlowSourceApp {
    bytes: Vec<u8>,
    destinations: Arc<Vec<([u8; 2], [u8; 4])>>,
    next: usize,
    pool: Pool,
}

impl AppConfig for FlowSource {
    const KIND: &'static str = "flow";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = FlowSourceApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<FlowSourceApp, AppError> {
        Ok(FlowSourceApp {
            bytes: udp_packet(self.size),
            destinations: Arc::clone(&self.destinations),
            next: 0,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for FlowSourceApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (pool, bytes, next) = (&self.pool, &self.bytes[..], &mut self.next);
        ports.fill(0, FRAME_BURST, || {
            let mut frame = pool.frame_of(bytes)?;
            let header = frame.bytes_mut().get_mut(24..34)?;
            let (sum, address) = &self.destinations[*next];
            header[..2].copy_from_slice(sum);
            header[6..].copy_from_slice(address);
            *next += 1;
            if *next == self.destinations.len() {
                *next = 0;
            }
            Some(frame)
        });
    }
}

/// Number of destinations of all flows by table: more than any cache has lines.
const DESTINATIONS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_headers_are_those_of_their_destinations() {
        let flows = Flows::by_number(2, 64);
        assert_eq!(flows.routes[1].output, "o1");
        for (flow, source) in flows.sources.iter().enumerate() {
            for (sum, address) in source.destinations.iter() {
                let mut header = udp_packet(64)[14..34].to_vec();
                header[10..12].copy_from_slice(sum);
                header[16..20].copy_from_slice(address);
                assert_eq!(checksum(&header, 0), 0);
                assert_eq!(address[1], 100 + flow as u8);
            }
        }
    }
}
