//! Traces the path from one node to another on this host: sends echo requests while all ports of
//! the network are watched.

mod dropped;
mod piece_watch;
mod watching;

use std::time::Duration;

use carina_frame_engine::counter_file;
use carina_vnet::host_part::{HostPart, LinkEnd};
use carina_vnet::trace::{
    ECHO, ECHOES_MAX, Echoes, NoRoute, Spot, Trace, TraceQuery, addresses_of, expected,
    expected_at, trace_of,
};

use self::dropped::dropped_between;
use self::watching::Watch;
use crate::directory::VnetDir;
use crate::error::{Error, Result};
use crate::probe::Asks;
use crate::vnet::Vnet;

pub use self::piece_watch::PieceWatch;

/// Sends echo requests from one node to another, and returns where they were seen and dropped.
pub(crate) fn trace(
    vnet: &Vnet,
    part: &HostPart,
    dir: &VnetDir,
    query: &TraceQuery,
) -> Result<Trace> {
    if !(1..=ECHOES_MAX).contains(&query.echoes) {
        return Err(Error::Unsupported {
            what: format!("{} echos", query.echoes),
            instead: "1 to 100 are possible",
        });
    }
    if part.node(&query.from).is_none() {
        return Err(vnet.no_node(&query.from));
    }
    let route = match (part.node(&query.to), query.to.parse()) {
        (Some(_), _) => expected(part, &query.from, &query.to).map_err(no_route)?,
        (None, Ok(address)) => expected_at(part, &query.from, address).map_err(no_route)?,
        (None, Err(_)) => return Err(vnet.no_node(&query.to)),
    };
    let some: Vec<Spot> = route.spots.iter().map(|(_, spot)| *spot).collect();
    let watch = Watch::begin((vnet, part), &dir.counters(), &some)?;
    // Without the counter file, only the reasons of drops are unknown.
    let readings = || counter_file::read(&dir.counters()).unwrap_or_default();
    let before = readings();
    let mut answered = 0;
    let mut rtt: Option<Duration> = None;
    for _ in 0..query.echoes {
        // Requests that are not answered are what the trace explains.
        if let Ok(round_trip) = vnet.echo(&query.from, route.address, ECHO, Asks::Once) {
            answered += 1;
            rtt = Some(rtt.map_or(round_trip, |rtt| rtt.min(round_trip)));
        }
    }
    let sightings = watch.end(&addresses_of(part, &query.from), route.address)?;
    let after = readings();
    let dropped =
        |(link, side): LinkEnd| dropped_between((link, side), (link, 1 - side), (&before, &after));
    let echoes = Echoes {
        asked: query.echoes,
        answered,
        rtt,
    };
    let names = (query.from.as_str(), query.to.as_str());
    let mut trace = trace_of(part, names, &route, &echoes, &sightings, &dropped);
    if answered < query.echoes {
        let passed = part.links.iter();
        let passed =
            passed.filter(|link| trace.places.iter().any(|place| place.link == link.number));
        let off = vnet.switched_off();
        let without = passed.flat_map(|link| {
            let reason = off.reason(link);
            let down = reason.map(|reason| format!("link {} is down: {reason}", link.number));
            let fault = vnet.has_flow(link).err().map(|error| error.to_string());
            down.into_iter().chain(fault)
        });
        let without: Vec<String> = without.collect();
        trace.findings.extend(without);
    }
    Ok(trace)
}

fn no_route(NoRoute { from, to }: NoRoute) -> Error {
    Error::Unsupported {
        what: format!("tracing from {from} to {to}"),
        instead: "no route of the network leads to that node",
    }
}
